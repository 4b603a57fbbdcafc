"""Records that are deleted after a query was planned, before its executors read them."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kctl.errors import CorruptDataError
from kctl.export.spark.bounds import DataLossError
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.places import (
    available_ranges,
    batch_splits,
    chunks_of,
    first_offsets,
    stream_splits,
)
from kctl.runtime.real import make_runtime
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, write_segment

COLUMNS = ("offset",)


class Brokers:
    """A topic of 20 records on a broker; the first ten can be deleted."""

    def __init__(self, _directory):
        self._broker = KafkaBroker(topics=["orders"])

    def __enter__(self):
        self._broker.start()
        for number in range(20):
            self._broker.produce("orders", str(number))
        self.options = {"kafka.bootstrap.servers": self._broker.bootstrap_servers}
        return self

    def __exit__(self, *_):
        self._broker.stop()

    def delete(self):
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        (deleted,) = admin.delete_records([TopicPartition("orders", 0, 10)]).values()
        assert deleted.result().low_watermark == 10


class LogDirectory:
    """The same in two segments of a log directory."""

    def __init__(self, directory):
        self._directory = directory / "orders-0"
        self.options = {"path": str(directory)}

    def __enter__(self):
        disk = make_runtime().disk
        self._first = write_segment(disk, self._directory, 0, [batch_of(0)])
        write_segment(disk, self._directory, 10, [batch_of(10)])
        return self

    def __exit__(self, *_):
        pass

    def delete(self):
        self._first.unlink()


@pytest.fixture(params=[Brokers, LogDirectory])
def place(request, tmp_path):
    with request.param(tmp_path) as place:
        yield place


def batch(options, reading):
    return batch_splits(options, reading)


def stream(options, reading):
    start = first_offsets(options, reading.isolation)
    ranges = available_ranges(options, reading.isolation)
    end = {"orders": {"0": ranges[next(iter(ranges))][1]}}
    return stream_splits(options, start, end, reading)


def offsets_read(plan, place, **more):
    """Plan a query, delete the first ten records, and return the offsets that are read."""
    options = SourceOptions(
        {"subscribe": "orders", "startingOffsets": "earliest", **place.options, **more}
    )
    reading = options.export_options(COLUMNS)
    splits = plan(options, reading)
    assert splits
    place.delete()
    return [
        int(offset)
        for split in splits
        for columns in chunks_of(options, split, reading)
        for offset in columns.offsets
    ]


@pytest.mark.parametrize("plan", [batch, stream])
def test_a_query_fails_if_records_go_between_plan_and_read(plan, place):
    with pytest.raises(DataLossError) as raised:
        offsets_read(plan, place)
    assert "orders-0" in str(raised.value)
    assert raised.value.hint == "failOnDataLoss=false reads the records that exist"


@pytest.mark.parametrize("plan", [batch, stream])
def test_a_query_that_accepts_data_loss_reads_what_is_left(plan, place):
    assert offsets_read(plan, place, failOnDataLoss="false") == list(range(10, 20))


@pytest.fixture
def ends_unreadable(tmp_path):
    """orders-0: ten records, and a last segment that holds no batch."""
    write_segment(make_runtime().disk, tmp_path / "orders-0", 0, [batch_of(0)])
    (tmp_path / "orders-0" / f"{10:020d}.log").write_bytes(b"no batch " * 100)
    return tmp_path


def planned(directory, **more):
    options = SourceOptions({"path": str(directory), "subscribe": "orders", **more})
    return batch_splits(options, options.export_options(COLUMNS))


@pytest.mark.parametrize("end", [{}, {"endingOffsets": '{"orders": {"0": -1}}'}])
def test_a_batch_fails_if_the_last_segment_has_no_readable_batch(ends_unreadable, end):
    with pytest.raises(CorruptDataError, match=f"{10:020d}.log at position 0") as raised:
        planned(ends_unreadable, **end)
    assert raised.value.hint == "failOnDataLoss=false reads the records that exist"


@pytest.mark.parametrize(
    "more", [{"failOnDataLoss": "false"}, {"endingOffsets": '{"orders": {"0": 10}}'}]
)
def test_a_batch_that_accepts_loss_or_ends_before_the_damage_reads_the_rest(ends_unreadable, more):
    (split,) = planned(ends_unreadable, **more)
    assert (split.first_offset, split.end_offset) == (0, 10)


def test_damage_between_records_names_the_option_that_skips_it(tmp_path):
    batches = [batch_of(0), batch_of(10)]
    path = write_segment(make_runtime().disk, tmp_path / "orders-0", 0, batches)
    data = bytearray(path.read_bytes())
    data[len(batches[0]) - 1] ^= 1
    path.write_bytes(data)
    options = SourceOptions({"path": str(tmp_path), "subscribe": "orders"})
    reading = options.export_options(COLUMNS)
    (split,) = batch_splits(options, reading)
    with pytest.raises(CorruptDataError, match="at position 0") as raised:
        list(chunks_of(options, split, reading))
    assert raised.value.hint == "failOnDataLoss=false reads the records that exist"
