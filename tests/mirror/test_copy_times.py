"""The times of a mirror's copies, and their series under MirrorMaker 2's names."""

from types import SimpleNamespace

import pytest

from kctl.mirror import mm2_metering
from kctl.mirror.copy_times import WINDOW_MS, CopyTimes
from kctl.mirror.mm2_metering import Mm2Metering
from kctl.mirror.raw_batches import BatchCopy
from kctl.model import TopicPartition
from kctl.records.builder import RecordBatchBuilder

NOW_MS = 1_000_000


def batch(*timestamps):
    builder = RecordBatchBuilder()
    for each in timestamps:
        builder.append(timestamp=each, key=None, value=b"v")
    return BatchCopy(bytearray(builder.build()), len(timestamps))


def figures(found):
    return {(it.family.name.rpartition("connector_")[2], *it.labels): it.value for it in found}


def test_ages_and_latencies_are_those_of_the_records():
    times = CopyTimes(0)
    times.add([batch(NOW_MS - 30, NOW_MS - 10)], NOW_MS, NOW_MS + 5, 0)
    ages, latencies = times.ages.figures(0), times.latencies.figures(0)
    assert (ages.least, ages.most, ages.mean, times.age_ms) == (10, 30, 20, 10)
    assert (latencies.least, latencies.most, latencies.mean, times.latency_ms) == (15, 35, 25, 15)


def test_figures_are_those_of_the_last_two_windows():
    times = CopyTimes(0)
    times.add([batch(NOW_MS - 500)], NOW_MS, NOW_MS, 0)
    times.add([batch(NOW_MS - 7)], NOW_MS, NOW_MS, WINDOW_MS)
    assert times.ages.figures(2 * WINDOW_MS - 1).most == 500
    after = times.ages.figures(2 * WINDOW_MS)
    assert (after.count, after.most) == (1, 7)
    assert times.ages.figures(10 * WINDOW_MS).most is None
    assert (times.records, times.sizes.rates(10 * WINDOW_MS)) == (2, (0.0, 0.0))


def test_rates_are_per_second():
    times = CopyTimes(0)
    copy = batch(*[NOW_MS] * 60)
    times.add([copy], NOW_MS, NOW_MS, 0)
    assert times.sizes.rates(60_000 - 1)[0] == pytest.approx(1, rel=0.01)
    assert times.sizes.rates(1)[0] == 2


def test_records_without_a_timestamp_are_counted_without_an_age():
    times = CopyTimes(0)
    times.add([batch(-1)], NOW_MS, NOW_MS, 0)
    assert (times.records, times.age_ms, times.ages.figures(0).count) == (1, None, 0)


def test_many_partitions_are_summed_by_topic(monkeypatch):
    monkeypatch.setattr(mm2_metering, "PARTITIONS_MAX", 2)
    times = {TopicPartition("t", number): CopyTimes(0) for number in range(3)}
    for number, it in enumerate(times.values()):
        it.add([batch(NOW_MS - number)], NOW_MS, NOW_MS, 0)
    metering = Mm2Metering("A", "B")
    # The others have moved to another worker.
    few = figures(metering.samples(times, list(times)[:2], 0))
    assert all(labels[-1] in ("0", "1") for _, *labels in few)
    assert few["record_count", "B", "t", "1"] == 1
    many = figures(metering.samples(times, set(times), 0))
    assert many["record_count", "B", "t", None] == 3
    assert many["record_age_ms", "B", "t", None] == many["record_age_ms_max", "B", "t", None] == 2
    assert many["record_age_ms_avg", "B", "t", None] == 1


def test_the_latency_of_checkpoints_is_that_of_their_group(monkeypatch):
    monkeypatch.setattr(mm2_metering, "GROUPS_MAX", 1)
    metering = Mm2Metering("A", "B")
    metering.add_checkpoints([SimpleNamespace(group=it) for it in ("g", "h")], 12)
    metering.add_checkpoints([SimpleNamespace(group="g")], 15)
    assert figures(metering.samples({}, (), 0)) == {("checkpoint_latency_ms", "A", "B", "g"): 15}


def test_the_lag_is_estimated_in_bytes_and_bounded_in_seconds():
    pytest.importorskip("h11")
    from kctl.mirror.metering import MirrorMetering
    from kctl.mirror.partition_report import PartitionReport, TurnCounts
    from kctl.mirror.run import MirrorReport
    from kctl.mirror.settings import MirrorSettings

    source, target = TopicPartition("t", 0), TopicPartition("b.t", 0)
    now = SimpleNamespace(monotonic=90_000, wall=NOW_MS)
    clock = SimpleNamespace(monotonic_ms=lambda: now.monotonic, wall_ms=lambda: now.wall)
    report = PartitionReport(source, target, records=4, bytes=400, position=4, end=10)
    run = SimpleNamespace(
        held={source},
        target=SimpleNamespace(router=SimpleNamespace(runtime=SimpleNamespace(clock=clock))),
        mm2=None, settings=MirrorSettings("m"), reports={source: report}, counts=TurnCounts(),
        report=MirrorReport(),
    )  # fmt: skip
    metering = MirrorMetering(run, None)

    def lag():
        found = {it.family.name: it.value for it in metering.samples()}
        return [found.get(f"kctl_mirror_lag_{unit}") for unit in ("records", "bytes", "seconds")]

    # It has never been at the end, and nothing that was copied has a timestamp.
    assert lag() == [6, 600, None]
    copied = SimpleNamespace(copies=[batch(NOW_MS - 20_000)])
    metering.copied({source: copied}, NOW_MS)
    assert lag() == [6, 600, 20]
    report.caught_up_ms = 88_000
    assert lag() == [6, 600, 2]
    report.position = 10
    assert lag() == [0, 0, 0]
