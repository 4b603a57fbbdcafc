"""Where a batch of a stream ends: limits shared by partitions, and waiting for records."""

from kctl.export.spark.admission import Admission, Limits
from kctl.model import TopicPartition

RANGES = {
    TopicPartition("orders", 0): (100, 1100),
    TopicPartition("orders", 1): (0, 10),
    TopicPartition("payments", 0): (5, 5),
}
START = {"orders": {"0": 100, "1": 0}, "payments": {"0": 5}}


def admit(limits, start=START, ranges=RANGES):
    return Admission(limits).admit(start, ranges, 0, waits=True)


def test_without_limits_a_batch_takes_all():
    assert admit(Limits()) == {"orders": {"0": 1100, "1": 10}, "payments": {"0": 5}}


def test_partitions_share_a_batch_in_proportion_and_none_starves():
    found = admit(Limits(offsets_max=50))
    assert found == {"orders": {"0": 149, "1": 1}, "payments": {"0": 5}}


def test_batches_of_a_stream_reach_the_end():
    admission, at, batches = Admission(Limits(offsets_max=300)), START, 0
    while (end := admission.admit(at, RANGES, 0, waits=True)) != at:
        at, batches = end, batches + 1
    assert (at, batches) == (admit(Limits()), 4)


def test_new_partition_begins_at_its_start_and_deleted_records_are_not_counted():
    start = {"orders": {"0": 40}}
    assert admit(Limits(offsets_max=101), start)["orders"] == {"0": 200, "1": 1}


def test_log_that_became_shorter_is_not_ignored():
    start = {"orders": {"0": 100, "1": 50}, "payments": {"0": 5}}
    assert admit(Limits(offsets_max=10), start)["orders"] == {"0": 110, "1": 10}


def test_batch_waits_for_enough_offsets_or_until_the_delay():
    admission = Admission(Limits(offsets_min=500, delay_ms_max=1000))

    def batch(start, end, now_ms, *, waits=True):
        ranges = {TopicPartition("orders", 0): (0, end)}
        return admission.admit({"orders": {"0": start}}, ranges, now_ms, waits=waits)["orders"]["0"]

    assert batch(0, 10, 0) == 10  # The first waits for nothing.
    assert batch(10, 400, 500) == 10
    assert batch(10, 510, 600) == 510
    assert batch(510, 600, 1500) == 510
    assert batch(510, 600, 1600) == 600
    assert batch(600, 601, 1700, waits=False) == 601
