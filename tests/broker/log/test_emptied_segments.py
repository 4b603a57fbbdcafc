"""Compaction that leaves nothing of a segment."""

from tests.support.cleaning import all_batches, clean, compacted, put, records_of


def test_only_the_end_of_what_is_cleaned_is_kept_by_a_batch_without_records():
    """Some clients cannot read past such a batch; without the last one, a follower would never
    reach the end (KAFKA-17076)."""
    world = compacted(segment_bytes=200)
    log = world.log()
    put(log, (b"a", b"0"))
    for _ in range(20):
        put(log, (b"k", b"old"))
    put(log, (b"b", b"0"))
    put(log, (b"k", b"old"))
    log.roll()
    # Newer, but not cleaned yet, so that everything before the active segment's end loses `k`.
    put(log, (b"k", b"new"))
    log.roll()
    put(log, (b"k", b"newest"))
    clean(world)
    kept = [(it.base_offset, it.last_offset, it.count) for it in all_batches(log)]
    assert kept == [(0, 0, 1), (21, 21, 1), (23, 23, 1), (24, 24, 1)]
    put(log, (b"k", b"last"))
    log.roll()
    clean(world)
    assert [it.size for it in log.segments].count(0) > 1
    again = world.restart(clean=True)
    found = [(it.offset, it.value) for it in records_of(again)]
    assert found == [(0, b"0"), (21, b"0"), (25, b"last")]
    assert (again.log_start_offset, again.log_end_offset) == (0, 26)
