"""The proof: equal partitions in any batches, and every kind of difference with its offsets."""

from random import Random  # noqa: TID251 - seeded

import numpy as np
import pytest

from kctl.mirror.proof import proof as proof_module
from kctl.mirror.proof import stream
from kctl.mirror.proof.differences import LISTED_MAX, DifferenceKind
from kctl.records.builder import build_batch
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.records.transactions import AbortedRange
from tests.mirror.proof_support import (
    MemoryLog,
    batched,
    found,
    proved,
    records_of,
    renumbered,
)

RECORDS = records_of(2_000)
SOURCE = MemoryLog(batched(RECORDS, 100))


def target_of(records, size=100, compression_type=0):
    return MemoryLog(batched(renumbered(records), size, compression_type))


class RunsMap:
    """Source offsets to target offsets, a dictionary in place of a mirror's map."""

    def __init__(self, pairs):
        self._pairs = dict(pairs)

    def target_offsets(self, source_offsets):
        return np.array([self._pairs.get(each, -1) for each in source_offsets.tolist()], np.int64)


def test_equal_batches_are_compared_without_decoding():
    result = proved(SOURCE, target_of(RECORDS))
    assert (result.equal, result.equal_raw, found(result)) == (2_000, 2_000, [])


@pytest.mark.parametrize("compression_type", range(5))
def test_other_batches_and_codecs_are_no_difference(compression_type):
    result = proved(SOURCE, target_of(RECORDS, 37, compression_type))
    assert (result.equal, result.equal_raw, found(result)) == (2_000, 0, [])


def test_what_a_mirror_rewrites_in_a_batch_is_no_difference():
    rewritten = [
        build_batch(
            renumbered(RECORDS[at : at + 100], at + 5_000), producer_id=7, producer_epoch=1,
            base_sequence=at, is_transactional=True, partition_leader_epoch=3,
        )
        for at in range(0, 2_000, 100)
    ]  # fmt: skip
    result = proved(SOURCE, MemoryLog(rewritten))
    assert (result.equal, result.equal_raw, found(result)) == (2_000, 2_000, [])


NEW = Record(0, 5, b"key", b"value")


@pytest.mark.parametrize(
    ("records", "differences"),
    [
        pytest.param(RECORDS[:700] + RECORDS[701:], [("missing", 700, 700, 1)], id="missing"),
        pytest.param(RECORDS[:700] + RECORDS[800:], [("missing", 700, 700, 100)], id="batch"),
        pytest.param(RECORDS[:310] + RECORDS[390:], [("missing", 310, 310, 80)], id="many"),
        pytest.param(RECORDS[:1990], [("missing", 1990, 1990, 10)], id="missing tail"),
        pytest.param(RECORDS[:800], [("missing", 800, 800, 1200)], id="long missing tail"),
        pytest.param(RECORDS[150:], [("missing", 0, 0, 150)], id="missing head"),
        pytest.param([*RECORDS[:7], NEW, *RECORDS[7:]], [("extra", 7, 7, 1)], id="extra"),
        pytest.param([*RECORDS, NEW], [("extra", 2000, 2000, 1)], id="extra tail"),
        pytest.param(RECORDS[:700] + RECORDS[699:], [("double", 699, 700, 1)], id="double"),
        pytest.param(RECORDS[:700] + RECORDS[500:], [("double", 500, 700, 200)], id="double run"),
        pytest.param(
            [*RECORDS[:700], RECORDS[3], *RECORDS[700:]], [("double", 3, 700, 1)], id="double far"
        ),
        pytest.param(
            [*RECORDS[:700], RECORDS[701], RECORDS[700], *RECORDS[702:]],
            [("out of order", 700, 701, 1)],
            id="swapped",
        ),
        pytest.param(
            [*RECORDS[:700], *RECORDS[701:1500], RECORDS[700], *RECORDS[1500:]],
            [("out of order", 700, 1499, 1)],
            id="late",
        ),
        pytest.param(
            [*RECORDS[:700], RECORDS[1500], *RECORDS[700:1500], *RECORDS[1501:]],
            [("out of order", 1500, 700, 1)],
            id="early",
        ),
    ],
)
def test_a_difference_is_named_with_both_offsets(records, differences):
    result = proved(SOURCE, target_of(records))
    assert found(result) == differences
    result = proved(SOURCE, target_of(records, 64, 2))
    assert found(result) == differences


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"key": b"other"}, ("key",)),
        ({"key": None}, ("key",)),
        ({"value": b"other"}, ("value",)),
        ({"value": None}, ("value",)),
        ({"headers": (("source", None),)}, ("headers",)),
        ({"timestamp": 1}, ("timestamp",)),
        ({"timestamp": 1, "headers": ()}, ("timestamp", "headers")),
    ],
)
def test_a_changed_record_names_its_fields(fields, names):
    assert RECORDS[1105].key is not None
    changed = [*RECORDS[:1105], RECORDS[1105]._replace(**fields), *RECORDS[1106:]]
    result = proved(SOURCE, target_of(changed))
    assert found(result) == [("changed", 1105, 1105, 1)]
    assert result.differences.listed[0].fields == names
    assert result.equal == 1_999


def test_timestamps_are_ignored_on_request():
    moved = [record._replace(timestamp=record.timestamp + 1) for record in RECORDS]
    assert proved(SOURCE, target_of(moved)).differences.counts == {DifferenceKind.CHANGED: 2_000}
    assert not found(proved(SOURCE, target_of(moved), ignores_timestamps=True))
    assert not found(proved(SOURCE, target_of(moved, 37), ignores_timestamps=True))


def test_aborted_records_markers_and_gaps_of_the_source_are_not_expected():
    def of(first, last, **options):
        return build_batch(RECORDS[first:last], **options)

    def marker(offset, producer_id, kind):
        return marker_batch(
            EndTransactionMarker(kind, 1), producer_id=producer_id, producer_epoch=0, timestamp=1,
            base_offset=offset,
        )  # fmt: skip

    ours = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    log = MemoryLog(
        [
            of(0, 50),
            of(50, 60, **ours),
            of(60, 80),
            marker(80, 1, ControlRecordType.ABORT),
            of(90, 100, **ours | {"base_sequence": 10}),
            marker(100, 1, ControlRecordType.COMMIT),
            build_batch([RECORDS[120], RECORDS[125], RECORDS[199]]),
            of(300, 400),
        ],
        [AbortedRange(1, 50, 80)],
        chunk_batches=3,
    )
    kept = RECORDS[:50] + RECORDS[60:80] + RECORDS[90:100]
    kept += [RECORDS[120], RECORDS[125], RECORDS[199], *RECORDS[300:400]]
    assert not found(proved(log, target_of(kept)))
    lacking = kept[:82] + kept[83:]
    assert found(proved(log, target_of(lacking))) == [("missing", 199, 82, 1)]


def test_a_source_of_an_old_format_is_compared():
    old = [record._replace(headers=()) for record in RECORDS[:300]]
    batches = []
    for at, codec in ((0, 0), (50, 1), (100, 0), (150, 2), (200, 3), (250, 0)):
        builder = MessageSetBuilder(magic=1, base_offset=at, compression_type=codec)
        for record in old[at : at + 50]:
            builder.append_record(record)
        batches.append(builder.take())
    log = MemoryLog(batches, ends=range(50, 301, 50))
    assert not found(proved(log, target_of(old, 33)))
    assert found(proved(log, target_of(old[:120] + old[121:]))) == [("missing", 120, 120, 1)]


def test_an_unreadable_batch_is_a_difference():
    batches = batched(renumbered(RECORDS), 100)
    batches[4][90] ^= 1
    result = proved(SOURCE, MemoryLog(batches))
    assert result.differences.counts == {
        DifferenceKind.UNREADABLE: 100,
        DifferenceKind.MISSING: 100,
    }
    assert found(result)[0] == ("unreadable", -1, 400, 100)


def test_both_sides_unreadable_is_not_equal():
    batches = batched(RECORDS, 100)
    batches[4][90] ^= 1
    result = proved(MemoryLog(batches), MemoryLog(batches))
    assert result.differences.counts == {DifferenceKind.UNREADABLE: 200}


def test_differences_beyond_the_list_are_counted():
    lacking = [record for record in RECORDS * 2 if record.offset % 3]
    source = MemoryLog(batched(renumbered(RECORDS * 2), 100))
    result = proved(source, target_of(lacking))
    lost = 2 * sum(record.offset % 3 == 0 for record in RECORDS)
    assert result.differences.counts == {DifferenceKind.MISSING: lost}
    assert len(result.differences.listed) == LISTED_MAX
    assert result.differences.unlisted == lost - LISTED_MAX


def test_with_a_map_every_record_has_its_offset():
    gappy = [record for record in RECORDS if record.offset % 7 not in (2, 3)]
    offsets = {record.offset: 10_000 + 2 * n for n, record in enumerate(gappy)}
    source = MemoryLog([build_batch(gappy[at : at + 40]) for at in range(0, len(gappy), 40)])
    there = [record._replace(offset=offsets[record.offset]) for record in gappy]

    def log(records):
        return MemoryLog([build_batch(records[at : at + 64]) for at in range(0, len(records), 64)])

    assert not found(proved(source, log(there), RunsMap(offsets)))
    at = 700
    mine, theirs = gappy[at].offset, there[at].offset
    lacking = there[:at] + there[at + 1 :]
    assert found(proved(source, log(lacking), RunsMap(offsets))) == [
        ("missing", mine, theirs + 2, 1)
    ]
    changed = [*there[:at], there[at]._replace(value=b"other"), *there[at + 1 :]]
    assert found(proved(source, log(changed), RunsMap(offsets))) == [("changed", mine, theirs, 1)]
    more = [*there[: at + 1], NEW._replace(offset=theirs + 1), *there[at + 1 :]]
    result = proved(source, log(more), RunsMap(offsets))
    assert found(result) == [("extra", gappy[at + 1].offset, theirs + 1, 1)]
    # Equal records at offsets that the map does not have.
    shifted = [record._replace(offset=record.offset + 1) for record in there]
    assert proved(source, log(shifted), RunsMap(offsets)).equal == 0


@pytest.mark.parametrize("size", [1, 7, 100, 1_000])
def test_with_a_map_records_that_were_lost_around_the_end_of_a_window_are_missing(size):
    lost = {500, *range(990, 1_011), *range(1_990, 2_000)}
    copied = [record for record in RECORDS if record.offset not in lost]
    offsets = {record.offset: n for n, record in enumerate(copied)}
    source = MemoryLog(batched(RECORDS, size))
    result = proved(source, target_of(copied, size), RunsMap(offsets))
    assert result.differences.counts == {DifferenceKind.MISSING: len(lost)}
    assert result.equal == len(copied)


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("has_map", [False, True])
def test_records_after_the_ends_are_not_compared(size, has_map):
    source = MemoryLog(batched(RECORDS, 10))
    target = target_of([*RECORDS[:900], NEW, *RECORDS[901:]], size)
    mapping = RunsMap((n, n) for n in range(2_000)) if has_map else None
    result = proved(source, target, mapping, ends=(895, 895))
    assert (result.equal, found(result)) == (895, [])
    result = proved(source, target, mapping, ends=(895, 890))
    assert found(result) == [("missing", 890, 890, 5)]
    result = proved(source, target, mapping, ends=(890, 895))
    assert [row[:1] + row[2:] for row in found(result)] == [("extra", 890, 5)]


def test_differences_everywhere_in_large_logs_are_named(monkeypatch):
    monkeypatch.setattr(stream, "WINDOW_BYTES", 5_000)
    lacking = [record for record in RECORDS if record.offset % 5]
    result = proved(SOURCE, target_of(lacking))
    assert result.differences.counts == {DifferenceKind.MISSING: 400}
    later = [record._replace(timestamp=record.timestamp + 1) for record in RECORDS]
    result = proved(SOURCE, target_of(later))
    assert result.differences.counts == {DifferenceKind.CHANGED: 2_000}


def plant(rng, records):
    """Return records with some random faults."""
    records = list(records)
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(records))
        length = rng.choice((1, 1, 1, 2, 30, 150))
        fault = rng.choice(("drop", "double", "swap", "change", "insert"))
        if fault == "drop":
            del records[at : at + length]
        elif fault == "double":
            records[at:at] = records[max(0, at - length) : at]
        elif fault == "swap":
            other = rng.randrange(len(records))
            records[at], records[other] = records[other], records[at]
        elif fault == "change":
            records[at] = records[at]._replace(value=rng.randbytes(20))
        else:
            records[at:at] = [NEW._replace(value=rng.randbytes(9))]
    return records


# Batches of one record each, which both sides search for: seconds.
COSTLY_SEEDS = (3, 5, 21)
SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow if seed in COSTLY_SEEDS else ()) for seed in range(24)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_equal_or_in_one_difference(seed, monkeypatch):
    rng = Random(seed)
    if seed % 2:
        # Windows so small that both sides must be searched.
        monkeypatch.setattr(stream, "WINDOW_BYTES", 2_000)
        monkeypatch.setattr(stream, "RECENT_BYTES_MAX", 3_000)
        monkeypatch.setattr(proof_module, "_HEAD_MAX", 40)
    records = records_of(1_200, seed)
    planted = plant(rng, records)
    size = rng.choice((1, 10, 64))
    source = MemoryLog(batched(records, size), chunk_batches=rng.choice((1, 5, 50)))
    target = target_of(planted, rng.choice((size, 17)), rng.choice((0, 2)))
    result = proved(source, target)
    counts = result.differences.counts
    on_both = result.equal + sum(
        counts.get(kind, 0) for kind in (DifferenceKind.CHANGED, DifferenceKind.OUT_OF_ORDER)
    )
    assert on_both + counts.get(DifferenceKind.MISSING, 0) == len(records)
    there = counts.get(DifferenceKind.EXTRA, 0) + counts.get(DifferenceKind.DOUBLE, 0)
    assert on_both + there == len(planted)
    contents = [record._replace(offset=0) for record in planted]
    assert bool(counts) == (contents != [record._replace(offset=0) for record in records])
    for each in result.differences.listed:
        if each.kind in (DifferenceKind.MISSING, DifferenceKind.CHANGED):
            assert RecordBatch(source.batches[0]).base_offset <= each.source_offset < 1_200
