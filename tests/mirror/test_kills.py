"""Nothing is lost or reordered while a mirror and both brokers are killed, with transactions at the
source of which a fifth are aborted; nothing is doubled exactly once, and every position is
translated exactly, also where the source is compacted meanwhile.

`KCTL_MIRROR_KILLS=50 KCTL_TEST_SEED=7` for more.
"""

import os
import sys
from bisect import bisect_left

import pytest

from kctl.model import TopicPartition
from tests.mirror.killed_mirror import RECORDS_EACH, TOPIC, KilledMirror, read

KILLS = int(os.environ.get("KCTL_MIRROR_KILLS", "6"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.long]


def ids_of(items):
    return {number: [it.id for it in each] for number, each in items.items()}


def wrong_translations(run, offsets, copied, *, live=None):
    """Return how many positions of the source were translated, and those that are not exact.

    `offsets` says where each record was written at the source, `copied` what the target has. Each
    offset up to that of the last copied record counts: between records, at aborted and at compacted
    ones too. The next record that the target has must be at the translation, and everything that
    follows it at the source after the translation.

    With `live`, the ids that the source still has, other records at the target may be skipped: at
    least once they may be those of a turn that was killed before it wrote its map, and compaction
    has removed them since, so that they were not copied again.
    """
    translator = run.translator()
    count, wrong = 0, []
    for number, items in copied.items():
        first_copies, copies = {}, {}
        for it in items:
            first_copies.setdefault(it.id, it.offset)
            copies.setdefault(it.id, set()).add(it.offset)
        known = sorted((offsets[number][name], name) for name in first_copies)
        places = [offset for offset, _ in known]
        for position in range(places[-1] + 1 if places else 0):
            at = bisect_left(places, position)
            to = translator.to_target(TopicPartition(TOPIC, number), position).to_offset
            count += 1
            while live is not None and to not in copies[known[at][1]]:
                if known[at][1] in live[number]:
                    break
                at += 1
            expected = copies[known[at][1]]
            if to not in expected:
                wrong.append((number, position, to, expected))
    return count, wrong


def repeated(source, target):
    """Return how often, and how many records, a mirror copied again: a partition's ids at the
    target are those of the source in their order, but for steps back to an earlier record."""
    place = {name: at for at, name in enumerate(source)}
    steps_back = doubles = 0
    expected = furthest = 0
    for name in target:
        at = place[name]
        assert at <= expected, f"{source[expected]!r} was left out before {name!r}"
        steps_back += at < expected
        doubles += at < furthest
        expected = at + 1
        furthest = max(furthest, expected)
    assert furthest == len(source), f"{len(source) - furthest} records are missing"
    return steps_back, doubles


def test_each_record_is_copied_once_and_in_order_under_kill_9(tmp_path):
    with KilledMirror(tmp_path) as run:
        run.kill(KILLS, SEED)
        run.finish()
        source, target = read(run.source), read(run.target)
        assert sum(map(len, source.values())) > KILLS * RECORDS_EACH
        assert ids_of(target) == ids_of(source)
        proof = run.verify()
        assert proof.returncode == 0, proof.stdout + proof.stderr
        offsets = {number: {it.id: it.offset for it in each} for number, each in source.items()}
        count, wrong = wrong_translations(run, offsets, target)
        assert count > sum(map(len, source.values()))
        assert wrong == []


def test_at_least_once_repeats_records_only_after_kills_and_loses_none(tmp_path):
    with KilledMirror(tmp_path, ("--at-least-once",)) as run:
        run.run_in_peace(20)
        in_peace = ids_of(read(run.target))
        assert in_peace == ids_of(read(run.source))

        run.kill(KILLS, SEED)
        run.finish()
        after_kills = ids_of(read(run.target))

        # What is written after the last kill is copied once again.
        run.run_in_peace(20)
        source, target = read(run.source), read(run.target)
        ids, copied = ids_of(source), ids_of(target)
        steps_back, doubles = 0, 0
        for number, names in copied.items():
            assert names[: len(in_peace[number])] == in_peace[number]
            added = names[len(after_kills[number]) :]
            assert added == ids[number][len(ids[number]) - len(added) :]
            steps, double = repeated(ids[number], names)
            steps_back, doubles = steps_back + steps, doubles + double
        sys.stderr.write(f"{KILLS} kills: {doubles} doubles in {steps_back} steps back\n")
        offsets = {number: {it.id: it.offset for it in each} for number, each in source.items()}
        count, wrong = wrong_translations(run, offsets, target)
        assert count > sum(map(len, ids.values()))
        assert wrong == []


COMPACTED = (
    "--config", "cleanup.policy=compact", "--config", "segment.bytes=8192",
    "--config", "min.cleanable.dirty.ratio=0.01", "--config", "delete.retention.ms=0",
)  # fmt: skip
EAGER_CLEANER = ("-c", "log.cleaner.backoff.ms=100")


# The target keeps all that is copied, so that every position can be judged.
KEEPS_ALL = ("--exclude-config", "cleanup.policy")


@pytest.mark.parametrize("mode", [(), ("--at-least-once",)], ids=["exactly-once", "at-least-once"])
def test_positions_are_exact_while_the_source_is_compacted_under_kill_9(tmp_path, mode):
    with KilledMirror(tmp_path, (*KEEPS_ALL, *mode), COMPACTED, EAGER_CLEANER) as run:
        run.kill(KILLS, SEED, between_transactions=True)
        run.finish()
        offsets = run.workload.offsets
        source, target = read(run.source), read(run.target)
        committed = sum(map(len, offsets.values()))
        # Compaction has removed records at the source, and the mirror has copied some of them.
        assert sum(map(len, source.values())) < committed
        for number, items in source.items():
            assert {it.id for it in items} <= offsets[number].keys()
            copied = [offsets[number][it.id] for it in target[number]]
            assert {it.offset for it in items} <= set(copied), "a record is missing"
            if not mode:
                assert copied == sorted(set(copied)), "a record is doubled or out of order"
        live = {number: {it.id for it in items} for number, items in source.items()}
        count, wrong = wrong_translations(run, offsets, target, live=live if mode else None)
        sys.stderr.write(
            f"{KILLS} kills: {committed} committed, {sum(map(len, source.values()))} left after"
            f" compaction, {sum(map(len, target.values()))} copied, {count} positions\n"
        )
        assert count > 0
        assert wrong == []
