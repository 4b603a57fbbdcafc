"""Requests and responses of single records are those of the general builder and codec."""

import random  # noqa: TID251 - seeded

import pytest

from kctl.client.single_record import (
    VERSIONS,
    SingleRecordRequests,
    Written,
    single_record_batch,
)
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.records.builder import RecordBatchBuilder

SEED = 17
# Around the lengths at which a varint grows.
LENGTHS = (0, 1, 5, 57, 58, 63, 64, 100, 4_000, 8_191, 8_192, 70_000)


def joined(parts):
    return b"".join(bytes(it) for it in parts)


def random_batches(count):
    """Yield the fields of records, and their batches."""
    rng = random.Random(SEED)
    for _ in range(count):
        key, value = (
            None if rng.random() < 0.3 else rng.randbytes(rng.choice(LENGTHS)) for _ in range(2)
        )
        stamp_ms = rng.choice((0, -1, 1_790_000_000_000, (1 << 63) - 1))
        numbers = rng.choice(((-1, -1, -1), (0, 0, 0), (1 << 62, 32_767, (1 << 31) - 1)))
        names = ("producer_id", "producer_epoch", "base_sequence")
        yield key, value, stamp_ms, dict(zip(names, numbers, strict=True))


def answer(**fields):
    item = PartitionProduceResponse(**{"base_offset": 7, "partition_index": 3, **fields})
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partitions=[item])])


def make(version):
    return SingleRecordRequests("orders", version, acks=-1, timeout_ms=30_000)


def test_a_batch_of_one_record_is_that_of_the_builder():
    for key, value, stamp_ms, numbers in random_batches(500):
        builder = RecordBatchBuilder(**numbers)
        builder.append(timestamp=stamp_ms, key=key, value=value)
        assert single_record_batch(stamp_ms, key, value, **numbers) == builder.build()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_that_of_the_codec(version):
    for number, (key, value, stamp_ms, numbers) in enumerate(random_batches(40)):
        batch = single_record_batch(stamp_ms, key, value, **numbers)
        data = PartitionProduceData(partition_index=number, records=batch)
        general = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topics=[TopicProduceData(name="orders", partitions=[data])],
        )
        assert joined(make(version).body(number, batch)) == joined(encode(general, version))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_response_to_a_written_record_is_read(version):
    for offset, stamp_ms in ((0, -1), (1 << 40, 1_790_000_000_000)):
        response = answer(base_offset=offset, log_append_time_ms=stamp_ms, log_start_offset=5)
        response.throttle_time_ms = 12
        frame = b"head" + joined(encode(response, version))
        assert make(version).read(frame, 4) == Written(offset, stamp_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_other_response_is_left_to_the_codec(version):
    several = answer()
    several.responses[0].partitions *= 2
    others = [
        answer(error_code=6),
        several,
        ProduceResponse(),
        ProduceResponse(responses=[TopicProduceResponse(name="drinks")]),
    ]
    if version == VERSIONS[-1]:
        others.append(answer(error_message="no"))
        others.append(answer(record_errors=[BatchIndexAndErrorMessage(batch_index=0)]))
    for response in others:
        assert make(version).read(joined(encode(response, version)), 0) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_responses_are_never_read_as_something_else(version):
    rng = random.Random(SEED)
    whole = joined(encode(answer(), version))
    requests = make(version)
    for _ in range(1_000):
        frame = bytearray(whole)
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        del frame[rng.choice((len(frame), rng.randrange(len(frame)))) :]
        found = requests.read(bytes(frame), 0)
        try:
            general = decode(ProduceResponse, version, bytes(frame), 0)
        except CorruptDataError:
            assert found is None
            continue
        if found is not None:
            (item,) = general.responses[0].partitions
            assert not item.error_code
            assert found == (item.base_offset, item.log_append_time_ms)


def test_the_versions_are_those_that_both_sides_may_choose():
    assert VERSIONS[-1] == ApiKey.PRODUCE.max_version
