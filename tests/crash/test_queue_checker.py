"""The checker of histories: each anomaly, planted, is found, and nothing else."""

import copy

import pytest

from kctl.simulation.queue_checker import History, Kind, Outcome, Reader, Seen, Write, check


def good_history():
    """Two producers, one with transactions; two partitions; two readers besides the last."""
    history = History()
    log = {0: [], 1: []}

    def write(value, number, partition, outcome, transaction=None):
        producer = value[0]
        history.writes[value] = Write(value, producer, number, partition, outcome, transaction)

    for number in range(10):
        write(f"p{number}", number, number % 2, Outcome.OK)
        log[number % 2].append(f"p{number}")
    for number in range(12):
        transaction = number // 4
        outcome = [Outcome.OK, Outcome.ABORTED, Outcome.UNKNOWN][transaction]
        write(f"t{number}", number, number % 2, outcome, f"t-{transaction}")
        log[number % 2].append(f"t{number}")
    everything = [
        Seen(partition, offset, value)
        for partition, values in log.items()
        for offset, value in enumerate(values)
    ]
    committed = [it for it in everything if history.writes[it.value].outcome is not Outcome.ABORTED]
    history.last_committed.seen = committed
    history.last_of_all.seen = everything
    history.readers = [
        Reader("early", is_committed_only=True, seen=committed[:7]),
        Reader("all", is_committed_only=False, seen=everything[:9]),
    ]
    return history


def kinds(history):
    return {anomaly.kind for anomaly in check(history)}


def test_a_good_history_has_no_anomaly():
    assert check(good_history()) == []


def test_an_unknown_outcome_may_be_nothing_at_all():
    history = good_history()
    gone = {value for value, write in history.writes.items() if write.transaction == "t-2"}
    for reader in history.all_readers():
        reader.seen = [it for it in reader.seen if it.value not in gone]
    assert check(history) == []


def without(seen, value):
    return [it for it in seen if it.value != value]


def lose_a_write(history):
    for reader in history.all_readers():
        reader.seen = without(reader.seen, "p9")


def read_an_aborted_write(history):
    (aborted,) = [it for it in history.last_of_all.seen if it.value == "t4"]
    history.last_committed.seen = sorted(
        [*history.last_committed.seen, aborted], key=lambda it: (it.partition, it.offset)
    )


def read_what_goes_away(history):
    """As when a leader serves a record that its followers lack, and dies."""
    history.writes["p10"] = Write("p10", "p", 10, 0)
    history.readers[1].seen = [*history.readers[1].seen, Seen(0, 99, "p10")]


def read_an_unwritten_value(history):
    for reader in (history.last_of_all, history.last_committed):
        reader.seen = [*reader.seen, Seen(1, 99, "ghost")]


def write_twice(history):
    for reader in (history.last_of_all, history.last_committed):
        reader.seen = [*reader.seen, Seen(1, 99, "p9")]


def swap_two_writes(history):
    for reader in history.all_readers():
        reader.seen = [
            Seen(it.partition, it.offset, {"p2": "p4", "p4": "p2"}.get(it.value, it.value))
            for it in reader.seen
        ]


def poll_backwards(history):
    reader = history.readers[0]
    reader.seen = [*reader.seen, reader.seen[0]]


def go_past_a_write(history):
    reader = history.readers[0]
    reader.seen = [*reader.seen[:2], *reader.seen[3:]]


def have_two_values_at_one_offset(history):
    reader = history.readers[1]
    reader.seen = [Seen(0, 0, "p2"), Seen(0, 1, "p4")]
    history.last_committed.seen = history.last_of_all.seen = [
        Seen(0, 0, "p0"),
        Seen(0, 1, "p2"),
        Seen(0, 2, "p4"),
    ]
    history.writes = {value: history.writes[value] for value in ("p0", "p2", "p4")}
    history.readers = [reader]


def commit_a_part(history):
    for reader in history.all_readers():
        reader.seen = without(reader.seen, "t11")


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose_a_write, {Kind.LOST_WRITE}),
        (read_an_aborted_write, {Kind.ABORTED_READ}),
        (read_what_goes_away, {Kind.DIRTY_READ, Kind.SKIPPED}),
        (read_an_unwritten_value, {Kind.PHANTOM}),
        (write_twice, {Kind.DUPLICATE}),
        (swap_two_writes, {Kind.REORDERED}),
        (poll_backwards, {Kind.NON_MONOTONIC_POLL}),
        (go_past_a_write, {Kind.SKIPPED}),
        (have_two_values_at_one_offset, {Kind.CONFLICT}),
        (commit_a_part, {Kind.TORN_TRANSACTION}),
    ],
)
def test_a_planted_anomaly_is_found(plant, found):
    history = copy.deepcopy(good_history())
    plant(history)
    assert kinds(history) == found


def test_a_value_in_another_partition_is_no_write_of_anybodys():
    history = good_history()
    history.last_of_all.seen = [
        Seen(1 - it.partition, it.offset, it.value) for it in history.last_of_all.seen
    ]
    assert Kind.PHANTOM in kinds(history)
