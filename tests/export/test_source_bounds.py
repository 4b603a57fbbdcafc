"""Where a query of the data source begins and ends: what it reads, and what is data loss."""

import json

import pytest

from kctl.errors import UsageError
from kctl.export.spark.bounds import (
    BoundKind,
    DataLossError,
    NoMatch,
    batch_ranges,
    check_batch,
    end_bound,
    no_match,
    start_bound,
    stream_ranges,
)
from kctl.model import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
# orders-0 holds offsets 4 to 9, orders-1 is empty.
AVAILABLE = {P0: (4, 10), P1: (0, 0)}


def offsets(first, second):
    return json.dumps({"orders": {"0": first, "1": second}})


def start(**options):
    return start_bound(options.get, BoundKind.EARLIEST)


def test_a_bound_is_offsets_of_every_partition():
    found = {P0: 7, P1: None}
    assert start().offsets(AVAILABLE, {}) == {P0: 4, P1: 0}
    assert start(startingOffsets=" LATEST ").offsets(AVAILABLE, {}) == {P0: 10, P1: 0}
    assert start(startingOffsets=offsets(5, -1)).offsets(AVAILABLE, {}) == {P0: 5, P1: 0}
    assert start(startingOffsets=offsets(-2, 0)).offsets(AVAILABLE, {}) == {P0: 4, P1: 0}
    assert start(startingTimestamp=" 99 ").times(AVAILABLE) == {P0: 99, P1: 99}
    assert start(startingTimestamp="99").offsets(AVAILABLE, found) == {P0: 7, P1: 0}
    by_time = start(startingOffsetsByTimestamp=offsets(99, -1))
    assert by_time.times(AVAILABLE) == {P0: 99}
    assert by_time.offsets(AVAILABLE, found) == {P0: 7, P1: 0}


def test_a_time_after_the_last_record_is_an_error_unless_the_strategy_says_latest():
    by_time = start(startingTimestamp="99")
    with pytest.raises(UsageError, match="startingTimestamp: orders-1 has no record at or after"):
        by_time.offsets(AVAILABLE, {P0: 7, P1: None}, NoMatch.ERROR)
    assert no_match({}.get) is NoMatch.ERROR
    assert no_match({"startingOffsetsByTimestampStrategy": "Latest"}.get) is NoMatch.LATEST
    with pytest.raises(UsageError, match="neither error nor latest: never"):
        no_match({"startingOffsetsByTimestampStrategy": "never"}.get)


def test_timestamps_take_precedence_over_times_of_partitions_and_those_over_offsets():
    options = {"startingOffsets": "x", "startingOffsetsByTimestamp": offsets(5, 6)}
    assert start(**options).kind is BoundKind.TIMES
    options |= {"startingOffsetsByTimestamp": "x", "startingTimestamp": "7"}
    assert start(**options).time_ms == 7


@pytest.mark.parametrize(
    "text", ["soon", "", "[]", "{}", '{"orders": 5}', '{"orders": {"x": 5}}', offsets("5", 0),
             '{"orders": {"0": true, "1": 0}}', offsets(5.5, 0), offsets(None, 0), offsets(-3, 0),
             offsets(2**63, 0), "[" * 100_000],
)  # fmt: skip
def test_invalid_offsets_are_rejected(text):
    with pytest.raises(UsageError, match="startingOffsets"):
        start(startingOffsets=text).offsets(AVAILABLE, {})


@pytest.mark.parametrize("text", ["x", "", "-3", "1_000", "1.5", str(2**63)])
def test_invalid_times_are_rejected(text):
    with pytest.raises(UsageError, match="startingTimestamp"):
        start(startingTimestamp=text)


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_json_names_every_partition_and_no_other(option):
    lacking = start(**{option: json.dumps({"orders": {"0": 5}})})
    more = start(**{option: json.dumps({"orders": {"0": 5, "1": 0, "2": 0}})})
    for bound, what in ((lacking, "lacks orders-1"), (more, "names orders-2, which is not read")):
        with pytest.raises(UsageError, match=f"{option} {what}"):
            bound.offsets(AVAILABLE, dict.fromkeys(bound.times(AVAILABLE)))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets of a batch cannot be latest"),
        ({"startingOffsets": offsets(0, -1)}, r"cannot be latest \(-1\), as of orders-1"),
        ({"endingOffsets": "earliest"}, "endingOffsets of a batch cannot be earliest"),
        ({"endingOffsets": offsets(5, -2)}, r"cannot be earliest \(-2\), as of orders-1"),
        ({"startingOffsets": offsets(8, 0), "endingOffsets": offsets(6, 0)}, "is after"),
        ({"startingOffsets": offsets(8, 0), "endingOffsets": '{"orders": {"0": 9}}'}, "lacks"),
        ({"startingOffsetsByTimestamp": offsets(8, 0),
          "endingOffsetsByTimestamp": offsets(6, 0)}, "is after"),
    ],
)  # fmt: skip
def test_invalid_ends_of_a_batch_are_rejected(options, what):
    with pytest.raises(UsageError, match=what):
        check_batch(start(**options), end_bound(options.get))


def test_a_batch_may_end_at_the_latest_offset_of_a_partition():
    options = {"startingOffsets": offsets(8, 0), "endingOffsets": offsets(-1, 0)}
    check_batch(start(**options), end_bound(options.get))


def batch(first, end, *, fails=True):
    starts, ends = {P0: first, P1: 0}, {P0: end, P1: 0}
    return batch_ranges(starts, ends, AVAILABLE, fails=fails).get(P0)


def test_a_batch_reads_what_the_log_holds():
    assert batch(4, 10) == (4, 10)
    assert batch(5, 7) == (5, 7)
    assert batch(10, 10) is None
    assert batch(2, 2) is None


@pytest.mark.parametrize(
    ("first", "end", "rest"), [(2, 10, (4, 10)), (0, 3, None), (5, 20, (5, 10)), (20, 30, None)]
)
def test_offsets_that_a_log_does_not_hold_are_data_loss_in_a_batch(first, end, rest):
    with pytest.raises(DataLossError, match="orders-0"):
        batch(first, end)
    assert batch(first, end, fails=False) == rest


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_that_ends_before_it_begins_is_an_error(fails):
    for first, end in ((100, 10), (4, 2)):
        with pytest.raises(UsageError, match=f"the start, {first}, is after the end, {end}"):
            batch(first, end, fails=fails)


def stream(first, end, *, fails=True, available=(4, 10)):
    begin = {} if first is None else {"orders": {"0": first}}
    stop = {"orders": {"0": end}}
    return stream_ranges(begin, stop, {P0: available}, fails=fails).get(P0)


def test_a_stream_continues_where_it_stopped():
    assert stream(5, 10) == (5, 10)
    assert stream(10, 10) is None
    assert stream(None, 10, available=(0, 10)) == (0, 10)


@pytest.mark.parametrize(
    ("first", "end", "rest"), [(2, 10, (4, 10)), (None, 10, (4, 10)), (100, 10, None)]
)
def test_offsets_that_a_log_does_not_hold_are_data_loss_in_a_stream(first, end, rest):
    with pytest.raises(DataLossError, match="orders-0"):
        stream(first, end)
    assert stream(first, end, fails=False) == rest


def test_a_partition_that_was_deleted_is_data_loss_in_a_stream():
    offsets = {"orders": {"0": 5}, "payments": {"0": 5}}
    with pytest.raises(DataLossError, match="payments-0 was deleted"):
        stream_ranges(offsets, {"orders": {"0": 10}}, {P0: (0, 10)}, fails=True)
    assert stream_ranges(offsets, offsets, {P0: (0, 10)}, fails=False) == {}
