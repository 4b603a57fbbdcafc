"""How a link appends what it has fetched."""

from kctl.broker.replication.fetched_parts import BATCHES_PER_PART, BYTES_PER_PART, parts_of
from kctl.records.builder import RecordBatchBuilder


def batch(offset, size):
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(timestamp=0, key=None, value=b"x" * size)
    return bytes(builder.build())


def test_a_response_is_appended_in_parts_of_whole_batches():
    small = [batch(n, 5) for n in range(BATCHES_PER_PART + 1)]
    big = [batch(1000 + n, BYTES_PER_PART // 2) for n in range(3)]
    everything = b"".join([*small, *big])
    parts = [bytes(part) for part in parts_of(everything + batch(9, 50)[:-1])]
    assert b"".join(parts) == everything
    assert parts[0] == b"".join(small[:BATCHES_PER_PART])
    assert all(len(part) <= BYTES_PER_PART for part in parts)


def test_a_batch_above_the_limit_is_a_part_of_its_own():
    large = batch(0, 2 * BYTES_PER_PART)
    assert [bytes(part) for part in parts_of(large + batch(1, 5))] == [large, batch(1, 5)]


def test_without_a_whole_batch_there_is_nothing_to_append():
    assert list(parts_of(None)) == [None]
    assert list(parts_of(batch(0, 50)[:-1])) == [None]
