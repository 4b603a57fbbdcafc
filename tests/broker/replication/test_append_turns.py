"""Appends whose records take long to check: in turns, in order, and only for the same leader."""

import pytest

from kctl.broker.log import log_validator
from kctl.broker.log.log_rewriter import validate_and_rewrite
from kctl.broker.log.validation_rules import AppendOrigin, ValidationRules
from kctl.protocol.error_codes import ErrorCode
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kctl.records.compression_stream import WRITTEN_PER_STEP, StreamCompressor
from kctl.records.down_convert import converted_batch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from kctl.records.record_stream import RECORDS_PER_STEP
from tests.support.log_world import batch

COUNT = 10 * RECORDS_PER_STEP


def many_records(codec=GZIP):
    builder = RecordBatchBuilder(compression_type=codec)
    for _ in range(COUNT):
        builder.append(timestamp=5, key=b"k", value=b"v" * 20)
    return builder.build()


def old_messages(codec):
    builder = MessageSetBuilder(magic=1, compression_type=codec)
    for _ in range(COUNT):
        builder.append(timestamp=5, key=b"k", value=b"v")
    return builder.build()


@pytest.fixture
def world(make_world):
    world = make_world(compression_type="lz4")
    world.lead()
    return world


def turns_until(world, answers):
    """Run the loop until there are results; return the number of turns."""
    turns = 0
    while not answers:
        world.runtime.scheduler.turn()
        turns += 1
    return turns


@pytest.mark.parametrize(
    "records",
    [many_records(), many_records(NONE), old_messages(NONE), old_messages(GZIP)],
    ids=["v2 recompressed", "v2 plain compressed", "v1", "v1 wrapper"],
)
def test_records_are_checked_in_turns(world, records):
    answers = world.produce(bytearray(records), acks=1)
    assert not answers
    assert turns_until(world, answers) >= COUNT // RECORDS_PER_STEP - 2
    assert answers[0].error_code == 0
    segment = world.partition.log.segments[0]
    (stored,) = batches(segment.records.file.pread(segment.size, 0))
    assert stored.compression_type == LZ4
    assert (stored.base_offset, stored.count) == (0, COUNT)


def test_appends_to_a_partition_keep_their_order(world):
    slow = world.produce(many_records(), acks=1)
    quick = world.produce(batch(b"a"), acks=1)
    slow_too = world.produce(many_records(), acks=1)
    assert not slow
    assert not quick
    world.runtime.scheduler.settle()
    offsets = [answers[0].info.first_offset for answers in (slow, quick, slow_too)]
    assert offsets == [0, COUNT, COUNT + 1]
    # The following appends complete at once again.
    assert world.produce(batch(b"b"), acks=1)[0].info.first_offset == 2 * COUNT + 1


def test_records_checked_for_another_leader_epoch_are_refused(world):
    answers = world.produce(many_records(), acks=1)
    world.lead(epoch=1)
    world.runtime.scheduler.settle()
    assert answers[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.log.log_end_offset == 0


def test_damage_found_in_a_later_turn_is_answered(world):
    builder = RecordBatchBuilder(compression_type=NONE)
    for _ in range(COUNT):
        builder.append(timestamp=5, key=b"k", value=b"v" * 20)
    builder._body[-1] = 1
    answers = world.produce(builder.build(), acks=1)
    assert not answers
    world.runtime.scheduler.settle()
    assert answers[0].error_code == ErrorCode.INVALID_RECORD
    assert world.produce(batch(b"b"), acks=1)[0].info.first_offset == 0


def test_appends_of_a_client_wait_in_a_turn_that_is_spent(world):
    scheduler = world.runtime.scheduler
    scheduler.turn_is_spent = True
    first = world.produce(batch(b"a"), acks=1)
    second = world.produce(batch(b"b"), acks=1)
    assert not first
    assert not second
    scheduler.turn()
    assert [answers[0].info.first_offset for answers in (first, second)] == [0, 1]


def test_a_caller_that_cannot_wait_does_no_step_of_a_long_check(world, monkeypatch):
    steps = []

    def counted(*arguments):
        steps.append(arguments)
        yield

    monkeypatch.setattr(log_validator, "validate_and_rewrite", counted)
    records = many_records()
    assert world.manager.append_plain(("t", 0), records, required_acks=1) is None
    assert not steps


@pytest.fixture
def written(monkeypatch):
    """The bytes compressed since the list was last cleared, by call."""
    calls = []
    write = StreamCompressor.write
    monkeypatch.setattr(
        StreamCompressor, "write", lambda self, data: calls.append(len(data)) or write(self, data)
    )
    return calls


LONG_BYTES = 6 * 1024 * 1024


def long_record(codec):
    """A batch with a long record between two short ones."""
    builder = RecordBatchBuilder(compression_type=codec)
    for size in (10, LONG_BYTES, 10):
        builder.append(timestamp=5, key=None, value=bytes(size), headers=[("h", b"x")])
    return builder.build()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_long_record_is_compressed_in_steps(written, codec):
    rules = ValidationRules("t-0", compression_type=ZSTD)
    work = validate_and_rewrite(long_record(codec), rules, AppendOrigin.CLIENT, 0, 0, 5)
    steps = 0
    while True:
        written.clear()
        try:
            next(work)
        except StopIteration as stop:
            result = stop.value
            break
        assert sum(written) <= WRITTEN_PER_STEP + 1_000
        steps += 1
    assert steps > LONG_BYTES // WRITTEN_PER_STEP
    (stored,) = batches(result.records)
    assert [len(it.value) for it in stored.records()] == [10, LONG_BYTES, 10]


def test_a_long_record_is_converted_in_steps(written):
    (batch,) = batches(bytes(long_record(GZIP)))
    pieces = []
    for piece in converted_batch(batch, 1, 0):
        assert sum(written) <= WRITTEN_PER_STEP + 1_000
        written.clear()
        pieces.append(piece)
    (stored,) = batches(b"".join(pieces))
    assert [len(it.value) for it in stored.records()] == [10, LONG_BYTES, 10]
