"""A Delta or Iceberg table with `--latest-per-key` has the last record of each key, and no row for
a key whose last value is null, whatever order tasks finish in and whatever crashes in between."""

import random  # noqa: TID251 - seeded

import pytest

from kctl.cli.app import run as kctl
from kctl.errors import NotFoundError, UsageError
from kctl.export import lake, latest_rows
from kctl.export.export import run_here, work
from kctl.export.in_order import InOrder, check_order
from kctl.export.manifest import ManifestRow
from kctl.export.options import FieldFormat, TableFormat
from kctl.model import Position, PositionKind, TopicPartition
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.real.disk import RealDisk
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import write_segment
from tests.export.test_follow import Following, append, follow, runtime  # noqa: F401 - fixtures
from tests.export.test_lake import LAKES, Killed, Mortal, lakes, read

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _libraries():
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")


class Changelog:
    """Partitions of changes of few keys, as segment files, and the rows that they amount to."""

    def __init__(self, directory, seed=1, partitions=2):
        self.directory = directory
        self.random = random.Random(seed)
        self.ends = [0] * partitions
        self.rows = {}

    def grow(self, count=60):
        for partition, end in enumerate(self.ends):
            batches = [self.batch(partition, end + n, 5) for n in range(0, count, 5)]
            directory = self.directory / f"users-{partition}"
            write_segment(RealDisk(), directory, end, batches)
            self.ends[partition] += count

    def batch(self, partition, offset, count):
        builder = RecordBatchBuilder(base_offset=offset)
        for number in range(offset, offset + count):
            key = self.random.choice([None, *(b"k%d" % n for n in range(12))])
            value = self.random.choice([None, b'{"n":%d}' % number, b'{"n":%d}' % -number])
            self.note(partition, key, value, number)
            builder.append(timestamp=1_600_000_000_000 + number, key=key, value=value)
        return bytes(builder.build())

    def note(self, partition, key, value, offset):
        if key is not None:
            self.rows.pop((partition, key), None)
            if value is not None:
                self.rows[partition, key] = (value, offset)


@pytest.fixture
def changes(tmp_path):
    return Changelog(tmp_path / "logs")


def rows(path, table_format):
    found = read(path, table_format).to_pylist()
    assert {row["topic"] for row in found} <= {"users"}
    assert len({(row["partition"], row["key"]) for row in found}) == len(found)
    return {(row["partition"], row["key"]): (row["value"], row["offset"]) for row in found}


def in_any_order(plan):
    items = plan.items()
    random.Random(3).shuffle(items)
    return (work(plan.task(), item) for item in items)


def words_of(table_format, **more):
    return {"table_format": table_format, "latest_per_key": True, "file_bytes": 1024, **more}


@lakes
@pytest.mark.parametrize("runner", [run_here, in_any_order])
@pytest.mark.parametrize("keys", [(), ("topic",)])
def test_each_run_merges_what_the_log_has_gained(
    changes, export, tmp_path, table_format, runner, keys
):
    for _ in range(3):
        changes.grow()
        export(tmp_path / "logs", runner=runner, **words_of(table_format, partition_by=keys))
        assert rows(tmp_path / "table", table_format) == changes.rows
    # Nothing is new, and no file of changes is left.
    export(tmp_path / "logs", **words_of(table_format, partition_by=keys))
    assert rows(tmp_path / "table", table_format) == changes.rows
    assert list((tmp_path / "table" / latest_rows.CHANGES).iterdir()) == []


@lakes
def test_many_versions_of_few_rows_are_merged(changes, export, tmp_path, table_format, monkeypatch):
    monkeypatch.setattr(latest_rows, "MERGED_ROWS_MAX", 20)
    changes.grow()
    export(tmp_path / "logs", **words_of(table_format))
    assert rows(tmp_path / "table", table_format) == changes.rows
    assert len(list((tmp_path / "table" / "_kctl" / "published").iterdir())) > 2


@lakes
def test_changes_that_change_nothing_are_a_version_too(export, tmp_path, table_format):
    def deleted(offset):
        builder = RecordBatchBuilder(base_offset=offset)
        builder.append(timestamp=0, key=b"unknown", value=None)
        return bytes(builder.build())

    for offset in range(3):
        write_segment(RealDisk(), tmp_path / "logs" / "users-0", offset, [deleted(offset)])
        export(tmp_path / "logs", **words_of(table_format))
        assert rows(tmp_path / "table", table_format) == {}


@lakes
def test_a_run_killed_at_any_moment_is_continued(
    changes, export, tmp_path, monkeypatch, table_format
):
    """Killed before its n-th use of the file system, and right after the lake's own commit."""
    kind = lake._Delta if table_format is TableFormat.DELTA else lake._Iceberg
    changes.grow(20)
    mortal, kills = Mortal(monkeypatch, kind, "merge"), 0
    while True:
        out = f"table{kills}"
        try:
            with mortal.dies_after(kills):
                export(tmp_path / "logs", out=out, **words_of(table_format))
            break
        except Killed:
            kills += 1
        export(tmp_path / "logs", out=out, **words_of(table_format))
        assert rows(tmp_path / out, table_format) == changes.rows
        assert list((tmp_path / out / latest_rows.CHANGES).iterdir()) == []
    assert kills > 15


def test_a_table_in_a_catalog_is_merged(changes, export, tmp_path):
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    for _ in range(3):
        changes.grow()
        where = {"catalog": uri, "catalog_table": "app.users"}
        export(tmp_path / "logs", **words_of(TableFormat.ICEBERG, **where))
        found = load_catalog("kctl", uri=uri).load_table("app.users").scan().to_arrow().to_pylist()
        rows = {(it["partition"], it["key"]): (it["value"], it["offset"]) for it in found}
        assert (len(found), rows) == (len(rows), changes.rows)


@lakes
def test_decoded_values_and_later_columns(changes, export, tmp_path, table_format):
    changes.grow()
    given = {"value_format": FieldFormat.JSON, "key_format": FieldFormat.STRING}
    export(tmp_path / "logs", **words_of(table_format, **given, value_schema='{"n": "int64"}'))
    found = read(tmp_path / "table", table_format).to_pylist()
    assert {(row["partition"], row["key"].encode()): row["value"]["n"] for row in found} == {
        key: int(value[5:-1]) for key, (value, _) in changes.rows.items()
    }


@lakes
def test_records_before_those_of_the_table_are_refused(changes, export, tmp_path, table_format):
    changes.grow()
    later = Position(PositionKind.OFFSET, 30)
    export(
        tmp_path / "logs", bounds=(later, Position(PositionKind.LATEST)), **words_of(table_format)
    )
    with pytest.raises(UsageError, match="later records than offset 0"):
        export(tmp_path / "logs", **words_of(table_format))


def until(first, end):
    return Position(PositionKind.OFFSET, first), Position(PositionKind.OFFSET, end)


def test_a_run_that_would_leave_records_out_is_refused(changes, export, tmp_path):
    changes.grow()
    export(tmp_path / "logs", bounds=until(0, 20), **words_of(TableFormat.DELTA))
    with pytest.raises(UsageError, match="offsets 20 to 39 would be left out"):
        export(tmp_path / "logs", bounds=until(40, 60), **words_of(TableFormat.DELTA))
    export(tmp_path / "logs", **words_of(TableFormat.DELTA))
    assert rows(tmp_path / "table", TableFormat.DELTA) == changes.rows


def test_records_between_merged_ones_end_a_followed_table(
    changes, export, follow, tmp_path, monkeypatch  # noqa: F811
):  # fmt: skip
    """They counted as done, and were held back for ever. Earlier versions left such gaps."""
    changes.grow()
    with monkeypatch.context() as patch:
        patch.setattr("kctl.export.export.check_order", lambda *_: None)
        for bounds in (until(0, 20), until(40, 60)):
            export(tmp_path / "logs", bounds=bounds, **words_of(TableFormat.DELTA))
    with pytest.raises(UsageError, match="later records than offset 20"):
        follow(**words_of(TableFormat.DELTA)).round()


def test_records_deleted_between_merged_ones_are_reported_once(
    changes, export, follow, tmp_path  # noqa: F811
):  # fmt: skip
    for first in (0, 60, 120):
        changes.grow()
        if first != 60:
            export(
                tmp_path / "logs", bounds=until(first, first + 60), **words_of(TableFormat.DELTA)
            )
        for partition in range(2):
            (tmp_path / "logs" / f"users-{partition}" / f"{first:020d}.log").unlink()
    changes.grow()
    lost = ["offsets 60 to 119 were deleted before they were exported"]

    run = follow(**words_of(TableFormat.DELTA))
    run.round()
    assert [it.split(": ")[1] for it in run.said] == lost * 2
    assert not run.follower._order.holds_rows
    assert not (tmp_path / "table" / "_kctl" / "tmp").exists()
    again = follow(**words_of(TableFormat.DELTA))
    again.round()
    assert (again.said, again.follower.lag) == ([], 0)


def test_records_deleted_behind_the_table_do_not_end_it(
    changes, export, follow, tmp_path  # noqa: F811
):  # fmt: skip
    """What retention left is merged."""
    changes.grow()
    export(tmp_path / "logs", **words_of(TableFormat.DELTA))
    changes.grow()
    changes.grow()
    for partition in range(2):
        for first in (0, 60):
            (tmp_path / "logs" / f"users-{partition}" / f"{first:020d}.log").unlink()
    run = follow(**words_of(TableFormat.DELTA))
    run.round()
    lost = "offsets 60 to 119 were deleted before they were exported"
    assert [it.split(": ")[1] for it in run.said] == [lost] * 2
    assert run.follower.lag == 0
    assert not run.follower._order.holds_rows


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"columns": ("value", "topic", "partition")}, "the column key"),
        ({"partition_by": ("topic", "date")}, "one row in a lake"),
    ],
)
def test_options_without_a_meaning_are_refused(export, tmp_path, more, match):
    for table_format in LAKES:
        with pytest.raises(UsageError, match=match):
            export(tmp_path, **words_of(table_format, **more))


@lakes
def test_a_followed_table_is_merged_round_by_round(
    changes, follow, tmp_path, table_format  # noqa: F811
):  # fmt: skip
    changes.grow()
    run = follow(**words_of(table_format))
    for _ in range(3):
        run.round()
        assert rows(tmp_path / "table", table_format) == changes.rows
        changes.grow()
    again = follow(**words_of(table_format))
    again.round()
    assert rows(tmp_path / "table", table_format) == changes.rows


def test_a_split_that_fails_holds_later_ones_of_its_partition_back(
    changes, follow, tmp_path, monkeypatch  # noqa: F811
):  # fmt: skip
    """Its older records would come later, and win."""
    changes.grow()
    run = follow(**words_of(TableFormat.DELTA))
    source = run.follower._source
    write, failed = source.write, []

    def fail_once(request, split, attempt):
        if split.first_offset == 0 and split.partition not in failed:
            failed.append(split.partition)
            raise NotFoundError("a segment is gone")
        return write(request, split, attempt)

    monkeypatch.setattr(source, "write", fail_once)
    run.round()
    assert rows(tmp_path / "table", TableFormat.DELTA) == {}
    run.round()
    assert failed == [0, 1]
    assert rows(tmp_path / "table", TableFormat.DELTA) == changes.rows


def test_rows_are_given_out_in_order():
    def row(first, end, partition=0):
        return ManifestRow("t", partition, first, end)

    order = InOrder()
    order.plan([row(20, 30), row(0, 10), row(0, 5, 1)])
    assert order.add(row(20, 30)) == []
    assert order.holds_rows
    assert order.add(row(4, 10)) == []
    assert order.add(row(0, 5, 1)) == [row(0, 5, 1)]
    assert order.add(row(0, 4)) == [row(0, 4), row(4, 10), row(20, 30)]
    assert not order.holds_rows
    order.begin(TopicPartition("t", 7), 3)
    assert order.add(row(5, 6, 7)) == []
    # Deleted records between those of earlier runs: there is nothing to merge.
    assert order.add(row(12, 14)) == [row(12, 14)]


def test_only_records_that_are_gone_are_left_out():
    done, later = {("t", 0): [(0, 10)]}, [ManifestRow("t", 0, 20, 30), ManifestRow("t", 0, 30, 40)]
    check_order(later, done, {("t", 0): 20})
    check_order(later, {}, {})
    # The start of a broker's log is not known after --offset 20.
    for starts in ({("t", 0): 19}, {}):
        with pytest.raises(UsageError, match="offsets 10 to 19 would be left out"):
            check_order(later, done, starts)


@pytest.mark.parametrize("table_format", LAKES)
def test_from_brokers_by_the_command(tmp_path, table_format):
    with KafkaBroker() as broker:
        where = ["-b", broker.bootstrap_servers]
        broker.create_topic("users", 2)
        rounds = (["a:1", "b:1", "c:1"], ["a:2", "b:~"])
        for records in rounds:
            path = tmp_path / "records"
            path.write_text("".join(f"{it}\n" for it in records))
            assert kctl(["produce", *where, "users", "--key-separator", ":", "--null", "~",
                         "--file", str(path)]) == 0  # fmt: skip
            words = ["export", *where, "-t", "users", "-f", table_format.value, "--latest-per-key"]
            words += ["--key", "string", "--value", "string", "--out", str(tmp_path / "table")]
            assert kctl(words) == 0
    found = read(tmp_path / "table", table_format).to_pylist()
    assert {row["key"]: row["value"] for row in found} == {"a": "2", "c": "1"}
