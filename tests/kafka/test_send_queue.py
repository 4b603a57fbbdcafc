"""The queue of a producer, with a time that only the test moves."""

import pytest

from kctl.kafka.send_queue import BatchCollector, Offer, SendQueue


def make_queue(count_max=4, bytes_max=100, batch_count=3):
    return SendQueue(count_max=count_max, bytes_max=bytes_max, batch_count=batch_count, size_of=len)


def make_collector(hook=None, linger_ms=50, batch_count=3, take_max=3):
    return BatchCollector(
        linger_ms=linger_ms, batch_count=batch_count, take_max=take_max, now_ms=0, hook=hook
    )


def step(queue, collector, now_ms, *, is_urgent=False):
    """What a sender does when it wakes."""
    room = collector.room(queue.count, now_ms, is_urgent=is_urgent)
    taken = queue.take(room) if room else []
    return collector.collect(taken, now_ms, is_urgent=is_urgent)


def test_the_sender_is_woken_by_the_first_message_and_by_a_full_batch():
    queue = make_queue()
    assert [queue.offer("m") for _ in range(4)] == [
        Offer.WAKES, Offer.ADDED, Offer.WAKES, Offer.ADDED,
    ]  # fmt: skip


def test_a_full_queue_takes_nothing_and_keeps_what_it_has():
    queue = make_queue(count_max=2)
    assert [queue.offer(it) for it in "abc"] == [Offer.WAKES, Offer.ADDED, Offer.FULL]
    assert queue.take(9) == ["a", "b"]
    assert queue.offer("c") is Offer.WAKES


def test_the_queue_is_bounded_in_bytes_too():
    queue = make_queue(bytes_max=10)
    assert queue.offer("12345678") is Offer.WAKES
    assert queue.offer("123") is Offer.FULL
    assert queue.offer("12") is Offer.ADDED
    queue.take(1)
    assert queue.bytes == 2


def test_a_message_larger_than_the_whole_queue_passes_alone():
    queue = make_queue(bytes_max=10)
    assert queue.offer("x" * 1_000) is Offer.WAKES
    assert queue.offer("y") is Offer.FULL


def test_a_batch_is_due_when_it_is_full():
    queue, collector = make_queue(), make_collector()
    for it in "ab":
        queue.offer(it)
    assert step(queue, collector, 10) == []
    assert queue.count == 2
    queue.offer("c")
    assert step(queue, collector, 11) == ["a", "b", "c"]


def test_a_batch_is_due_when_the_time_since_the_last_one_is_over():
    queue, collector = make_queue(), make_collector()
    queue.offer("a")
    assert collector.due_ms(queue.count) == 50
    assert step(queue, collector, 49) == []
    assert step(queue, collector, 50) == ["a"]
    assert collector.due_ms(queue.count) is None
    queue.offer("b")
    assert collector.due_ms(queue.count) == 100


def test_a_message_after_idle_time_waits_no_longer_than_the_rest_of_the_current_interval():
    queue, collector = make_queue(), make_collector()
    assert step(queue, collector, 1_020) == []
    queue.offer("a")
    assert collector.due_ms(queue.count) == 1_050


def test_a_sender_that_is_behind_takes_more_than_one_batch_if_its_wire_wants_that():
    queue, collector = make_queue(count_max=100), make_collector(take_max=8)
    for number in range(10):
        queue.offer(str(number))
    assert step(queue, collector, 1) == list("01234567")
    assert step(queue, collector, 1) == []
    assert step(queue, collector, 1, is_urgent=True) == ["8", "9"]


def test_without_a_linger_everything_is_due_at_once():
    queue, collector = make_queue(), make_collector(linger_ms=0)
    queue.offer("a")
    assert step(queue, collector, 0) == ["a"]
    assert collector.due_ms(0) is None


def test_a_hook_sees_each_message_when_it_is_taken_and_none_when_the_time_is_over():
    seen = []

    def hook(item):
        seen.append(item)
        return [] if item is None else [item]

    queue, collector = make_queue(), make_collector(hook)
    queue.offer("a")
    assert step(queue, collector, 10) == []
    assert (queue.count, collector.collected) == (0, 1)
    assert step(queue, collector, 50) == ["a"]
    assert seen == ["a", None]
    assert collector.due_ms(0) == 100
    assert step(queue, collector, 100) == []
    assert seen == ["a", None, None]


@pytest.mark.parametrize(
    ("hook", "batch"),
    [
        (lambda item: [], []),
        (lambda item: [item, item] if item else [], ["a", "a", "b", "b"]),
        (lambda item: ["tick"] if item is None else [item], ["a", "b"]),
    ],
    ids=["drops", "splits", "keeps"],
)
def test_what_a_hook_returns_is_what_is_collected(hook, batch):
    queue, collector = make_queue(), make_collector(hook)
    for it in "ab":
        queue.offer(it)
    assert step(queue, collector, 10, is_urgent=True) == batch


def test_with_a_hook_and_no_linger_the_sender_still_sleeps():
    collector = make_collector(lambda item: [] if item is None else [item], linger_ms=0)
    assert collector.due_ms(0) is None
