"""A model of compaction, checked against random appends and events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.broker.log.cleaner_manager import cleanable_part
from kctl.broker.log.log_cleaner import CleanerSettings
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.support.cleaning import (
    all_batches,
    clean,
    committed,
    compacted,
    pass_time,
    put,
    records_of,
)
from tests.support.log_world import BASE_MS, end_transaction

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a longer key" * 9])
RECORD = st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=40)))
BATCH = st.tuples(
    st.just("batch"),
    st.lists(RECORD, min_size=1, max_size=6),
    st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
)
STEP = st.one_of(
    BATCH, BATCH, BATCH,
    st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    st.just(("roll",)), st.just(("clean",)), st.just(("hour",)), st.just(("restart",)),
)  # fmt: skip


class Model:
    """The appended records, and thereby the records that may and must be read."""

    def __init__(self):
        # (offset, key, value, headers' keys) of all records, and of those that are not aborted.
        self.values = {}
        self.aborted = set()
        self.open = {1: [], 2: []}
        self.sequences = {1: 0, 2: 0}


def live(world, steps):
    log, model = world.log(), Model()
    for step in steps:
        if step[0] == "batch":
            append_batch(log, model, *step[1:])
        elif step[0] == "end" and model.open[step[1]]:
            if not step[2]:
                model.aborted.update(model.open[step[1]])
            model.open[step[1]] = []
            end_transaction(log, step[1], commit=step[2])
            log.update_high_watermark(log.log_end_offset)
        elif step[0] == "roll":
            log.roll()
        elif step[0] == "clean":
            untouched = tail_of(log)
            clean(world)
            assert tail_of(log) == untouched
            check(log, model)
        elif step[0] == "hour":
            pass_time(world, 3_600_000)
        elif step[0] == "restart":
            log = world.restart()
            log.update_high_watermark(log.log_end_offset)
    clean(world)
    check(log, model)


def tail_of(log):
    """Return the bytes that no cleaning may change now."""
    start = cleanable_part(log, BASE_MS).first_uncleanable_offset
    return b"".join(one.to_bytes() for one in all_batches(log) if one.base_offset >= start)


def append_batch(log, model, records, codec, producer_id, is_transactional):
    options = {"compression_type": codec}
    first = log.log_end_offset
    if producer_id is not None:
        is_transactional = is_transactional or bool(model.open[producer_id])
        options |= {
            "producer_id": producer_id, "producer_epoch": 0,
            "base_sequence": model.sequences[producer_id], "is_transactional": is_transactional,
        }  # fmt: skip
        model.sequences[producer_id] += len(records)
        if is_transactional:
            model.open[producer_id] += range(first, first + len(records))
    put(log, *records, **options)
    model.values.update(enumerate(records, first))


def check(log, model):
    found = [(it.offset, (it.key, it.value)) for it in records_of(log)]
    assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    assert all(model.values[offset] == record for offset, record in found)
    last = {}
    for offset, (key, value) in sorted(model.values.items()):
        if offset not in model.aborted and offset < log.last_stable_offset:
            last[key] = value
    seen = {}
    for it in committed(log):
        assert it.offset not in model.aborted
        seen[it.key] = it.value
    for key, value in last.items():
        assert seen.get(key) == value
    assert not set(seen) - set(last)
    clean_keys = [
        it.key for it in committed(log)
        if it.offset < min(log.local.cleaned_offset, log.last_stable_offset)
    ]  # fmt: skip
    assert len(clean_keys) == len(set(clean_keys))
    for one in all_batches(log):
        one.ensure_valid()
    for producer_id, sequence in model.sequences.items():
        if sequence:
            assert log.producers[producer_id].last_sequence == sequence - 1


any_appends = given(
    st.lists(STEP, max_size=25), st.sampled_from([0, 7_200_000]), st.sampled_from([24, 10**6])
)


def cleaned_after(steps, delete_retention_ms, memory):
    cleaner = CleanerSettings(is_enabled=False, dedupe_buffer_bytes=memory, load_factor=0.004)
    world = compacted(cleaner=cleaner, delete_retention_ms=delete_retention_ms, segment_bytes=1100)
    live(world, steps)


@settings(max_examples=50)
@any_appends
def test_the_last_record_of_every_key_is_read_after_any_appends(steps, delete_retention_ms, memory):
    cleaned_after(steps, delete_retention_ms, memory)


@pytest.mark.slow
@settings(max_examples=250)
@any_appends
def test_it_is_read_after_many_appends(steps, delete_retention_ms, memory):
    cleaned_after(steps, delete_retention_ms, memory)
