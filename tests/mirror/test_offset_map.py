"""An OffsetMap translates every offset, through gaps, markers and records that are copied twice."""

import random  # noqa: TID251 - seeded
from dataclasses import replace

from kctl.mirror.formats import MappedRun
from kctl.mirror.offset_map import OffsetMap, joined
from kctl.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


def run(source, target, count, copy=0):
    return MappedRun(ORDERS, "orders", source, target, count, copy)


def test_an_empty_map_translates_nothing():
    assert OffsetMap().to_target(5) is None
    assert OffsetMap().to_source(5) is None
    assert OffsetMap().source_end is None


def test_positions_in_gaps_go_to_the_next_copied_record():
    found = OffsetMap([run(100, 0, 10), run(120, 11, 5)])

    assert [found.to_target(at) for at in (0, 100, 109)] == [0, 0, 9]
    assert [found.to_target(at) for at in (110, 119, 120, 124)] == [11, 11, 11, 15]
    assert [found.to_target(at) for at in (125, 900)] == [16, 16]
    assert [found.to_source(at) for at in (0, 9, 10, 11, 15, 16)] == [100, 109, 120, 120, 124, 125]
    assert found.source_end == 125


def test_every_offset_of_a_random_log_is_translated_as_its_records_show():
    chance = random.Random(7)
    found, pairs, source, target = OffsetMap(), [], 0, 0
    for _ in range(300):
        source += chance.choice((0, 0, 1, 7))
        target += chance.choice((0, 1))
        count = chance.randrange(1, 6)
        found.add(run(source, target, count))
        pairs += [(source + at, target + at) for at in range(count)]
        source, target = source + count, target + count
    for offset in range(source + 1):
        expected = next((to for at, to in pairs if at >= offset), target)
        assert found.to_target(offset) == expected


def test_a_run_that_is_copied_again_replaces_what_it_repeats():
    found = OffsetMap([run(0, 0, 10), run(10, 10, 10), run(5, 20, 10)])

    assert [found.to_target(at) for at in (4, 5, 9, 10, 14, 15, 19)] == [4, 20, 24, 25, 29, 15, 19]
    assert [(each.source_offset, each.count) for each in found.runs] == [(0, 5), (5, 10), (15, 5)]


def test_a_run_that_grew_replaces_itself():
    found = OffsetMap([run(0, 0, 10), run(0, 0, 25)])

    assert found.runs == [run(0, 0, 25)]


def test_only_the_last_copy_of_a_recreated_topic_holds():
    found = OffsetMap([run(0, 0, 100), run(0, 100, 5, copy=1), run(50, 50, 10)])

    assert found.runs == [run(0, 100, 5, copy=1)]


def test_a_run_of_no_offsets_says_where_the_mirror_begins_and_translates_nothing():
    found = OffsetMap([run(7, 0, 0)])

    assert (found.begin, found.runs, found.source_end) == (run(7, 0, 0), [], None)
    assert (found.to_target(7), found.to_source(0)) == (None, None)
    found.add(run(9, 0, 2))
    assert (found.begin.source_offset, found.source_end, found.to_target(7)) == (7, 11, 0)


def test_runs_are_joined_where_both_sides_go_on():
    assert joined([run(0, 0, 5), run(5, 5, 5), run(10, 11, 5), run(16, 16, 1)]) == [
        run(0, 0, 10), run(10, 11, 5), run(16, 16, 1)
    ]  # fmt: skip


def test_the_last_run_is_the_same_without_the_others():
    """Also where runs continue others, are copied again, or are of another copy."""
    chance = random.Random(11)
    whole, last, target, copy = OffsetMap(), OffsetMap(), 0, 0
    for _ in range(2_000):
        source = max(0, (whole.source_end or 0) + chance.choice((-40, -6, -3, -1, 0, 0, 0, 5)))
        copy += chance.randrange(100) == 0
        count = chance.randrange(0, 12)
        added = run(source, target, count, max(0, copy - (chance.randrange(20) == 0)))
        if chance.randrange(3) == 0 and whole.runs:
            added = replace(whole.runs[-1], count=whole.runs[-1].count + count)
        target += count + chance.choice((0, 1))
        for each in (whole, last):
            each.add(added)
        last.keep_last()
        assert last.runs == whole.runs[-1:]
        assert (last.begin, last.copy, last.source_end) == (
            whole.begin, whole.copy, whole.source_end,
        )  # fmt: skip
