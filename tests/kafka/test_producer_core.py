"""ProducerCore on a simulated clock: handlers in order, outcomes, and the end."""

from contextlib import nullcontext

import pytest

from kctl.errors import KctlError, UnreachableError
from kctl.kafka.encoders import DefaultEncoder
from kctl.kafka.handlers import CallbackHandler, EventHandler
from kctl.kafka.messages import Delivery, KeyedMessage, Shipment
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import ProducerCore, Settlement
from tests.support.virtual_runtime import virtual_runtime

ASYNC = {"broker.list": "0:h:1", "producer.type": "async", "batch.size": 3, "queue.size": 4}


class FakeWire:
    """Writes to a list, when the test lets it."""

    def __init__(self, runtime, settlement, log):
        self.take_max = 3
        self.log = log
        self.batches = []
        self.error = None
        self.gate = None
        self._runtime = runtime
        self._settlement = settlement

    async def open(self):
        self.log.append("open wire")

    async def send(self, items):
        if self.gate is not None:
            await self.gate
        if self.error is not None:
            raise self.error
        self.batches.append([it.message.message for it in items])
        self._settlement.settle(items, Shipment("t", 0, base_offset=10 * len(self.batches)))

    async def close(self):
        self.log.append("close wire")


class Hooks(CallbackHandler):
    """Logs every call."""

    def __init__(self, log):
        self.log = log

    def init(self, properties):
        self.log.append(f"init {properties}")

    def after_dequeuing_existing_data(self, item):
        self.log.append(f"dequeued {item and item.message.message}")
        return super().after_dequeuing_existing_data(item)

    def before_sending_data(self, items):
        self.log.append(f"before sending {[it.message.message for it in items]}")
        return items

    def last_batch_before_close(self):
        self.log.append("last batch")
        return ()

    def close(self):
        self.log.append("close hooks")


class Handler(EventHandler):
    """Logs, then sends."""

    def __init__(self, log):
        self.log = log

    def init(self, properties):
        self.log.append(f"init handler {properties}")

    def handle(self, items, sender, encoder):
        self.log.append(f"handle {[it.message.message for it in items]}")
        return super().handle(items, sender, encoder)

    def close(self):
        self.log.append("close handler")


class World:
    """A producer on virtual time."""

    def __init__(self, settings=None, *, hooks=None, handler=None):
        self.runtime = virtual_runtime()
        self.log = []
        settlement = Settlement(self.runtime)
        self.wire = FakeWire(self.runtime, settlement, self.log)
        self.core = ProducerCore(
            self.runtime,
            ProducerConfig({**ASYNC, **(settings or {})}),
            self.wire,
            settlement,
            encoder=DefaultEncoder(),
            lock=nullcontext(),
            callback_handler=hooks(self.log) if hooks else None,
            event_handler=handler(self.log) if handler else None,
        )
        self.do(self.core.start())

    def do(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.runtime.scheduler.settle()
        return task

    def put(self, *payloads):
        """Enqueue; return the deliveries of those that were added."""
        items = [Delivery(KeyedMessage("t", it)) for it in payloads]
        return [it for it in items if self.core.enqueue(it)]

    def advance(self, delay_ms):
        self.runtime.scheduler.advance(delay_ms)


def test_a_batch_goes_when_it_is_full_and_the_rest_when_queue_time_is_over():
    world = World({"queue.time": 50})
    world.put(b"1", b"2", b"3", b"4")
    world.advance(1)
    assert world.wire.batches == [[b"1", b"2", b"3"]]
    world.advance(48)
    assert world.wire.batches == [[b"1", b"2", b"3"]]
    world.advance(1)
    assert world.wire.batches == [[b"1", b"2", b"3"], [b"4"]]


def test_deliveries_know_where_they_were_written():
    world = World({"queue.time": 5})
    one, two = world.put(b"1", b"2")
    assert not one.is_done
    world.advance(5)
    assert [it.result().offset for it in (one, two)] == [10, 11]


def test_the_hooks_and_the_handler_are_called_in_kafkas_order():
    world = World(
        {"queue.time": 50, "callback.handler.props": "a=1, b=2"}, hooks=Hooks, handler=Handler
    )
    world.put(b"1", b"2", b"3", b"4")
    world.advance(50)
    world.do(world.core.close())
    assert world.log == [
        "open wire",
        "init {'a': '1', 'b': '2'}",
        "init handler {}",
        "dequeued b'1'",
        "dequeued b'2'",
        "dequeued b'3'",
        "before sending [b'1', b'2', b'3']",
        "handle [b'1', b'2', b'3']",
        "dequeued b'4'",
        "dequeued None",
        "before sending [b'4']",
        "handle [b'4']",
        "last batch",
        "close hooks",
        "close handler",
        "close wire",
    ]


def test_a_full_queue_is_sent_at_the_end_and_the_handlers_are_closed_last():
    world = World(hooks=Hooks, handler=Handler)
    world.wire.gate = world.runtime.scheduler.future()
    first = world.put(b"1", b"2", b"3")
    world.advance(1)
    queued = world.put(b"4", b"5", b"6", b"7", b"8")
    assert len(queued) == 4, "the queue holds four"
    closing = world.do(world.core.close())
    assert not closing.done
    world.wire.gate.set_result(None)
    world.advance(1)
    assert closing.done
    assert [it for batch in world.wire.batches for it in batch] == [b"%d" % n for n in range(1, 8)]
    assert all(it.is_done and it.error() is None for it in first + queued)
    assert world.log[-4:] == ["last batch", "close hooks", "close handler", "close wire"]


class Keeping(Hooks):
    """Keeps everything until the end."""

    def __init__(self, log):
        super().__init__(log)
        self.kept = []

    def after_dequeuing_existing_data(self, item):
        self.kept += [] if item is None else [item.copy(item.message)]
        return ()

    def last_batch_before_close(self):
        return self.kept


def test_what_a_hook_kept_is_sent_at_the_end():
    world = World(hooks=Keeping)
    world.put(b"1", b"2")
    world.advance(1)
    assert world.wire.batches == []
    world.do(world.core.close())
    assert world.wire.batches == [[b"1", b"2"]]


class Splitting(Hooks):
    """Drops 2, and sends 3 as two messages."""

    def after_dequeuing_existing_data(self, item):
        if item is None or item.message.message == b"2":
            return ()
        if item.message.message == b"3":
            return [item, item.copy(KeyedMessage("t", b"3b"))]
        return [item]


def test_a_hook_may_drop_and_split_messages():
    world = World({"queue.time": 5}, hooks=Splitting)
    items = world.put(b"1", b"2", b"3")
    world.advance(5)
    assert world.wire.batches == [[b"1", b"3", b"3b"]]
    assert [str(it.error()) for it in items] == ["None", "dropped by the callback handler", "None"]


class Raising(Hooks):
    """Fails on some messages, and at the end."""

    def after_dequeuing_existing_data(self, item):
        if item is not None and item.message.message == b"bad":
            raise ValueError("no")
        return super().after_dequeuing_existing_data(item)

    def before_sending_data(self, items):
        if any(it.message.message == b"worse" for it in items):
            raise ValueError("not this batch")
        return items

    def last_batch_before_close(self):
        raise ValueError("nothing kept")

    def close(self):
        raise ValueError("cannot close")


def test_a_hook_that_raises_fails_what_it_was_shown_and_nothing_else():
    world = World({"queue.time": 5}, hooks=Raising, handler=Handler)
    items = world.put(b"1", b"bad", b"2")
    world.advance(5)
    worse = world.put(b"3", b"worse")
    world.advance(5)
    good = world.put(b"4")
    world.do(world.core.close())
    assert world.wire.batches == [[b"1", b"2"], [b"4"]]
    assert [it.error() is None for it in items + worse + good] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert world.log[-2:] == ["close handler", "close wire"]
    assert len(world.runtime.trace.warnings) == 4


def test_a_batch_that_cannot_be_sent_fails_and_the_next_one_is_tried():
    world = World({"queue.time": 5})
    world.wire.error = UnreachableError("broker 0 is down")
    (lost,) = world.put(b"1")
    world.advance(5)
    world.wire.error = None
    (sent,) = world.put(b"2")
    world.advance(5)
    with pytest.raises(UnreachableError, match="broker 0 is down"):
        lost.result()
    assert sent.error() is None
    assert world.runtime.trace.warnings == ["messages for t were not written (1): broker 0 is down"]


class ToAFile(EventHandler):
    """Sends nothing."""

    written = ()

    def handle(self, items, sender, encoder):
        self.written += tuple(encoder.to_bytes(it.message.message) for it in items)


def test_a_handler_may_do_something_else_with_a_batch():
    handler = ToAFile()
    world = World({"queue.time": 5}, handler=lambda _: handler)
    (item,) = world.put(b"1")
    world.advance(5)
    assert handler.written == (b"1",)
    assert item.result().offset == -1
    assert world.wire.batches == []


def test_a_flush_does_not_wait_for_a_full_batch_or_for_the_time():
    world = World({"queue.time": 1_000_000})
    world.put(b"1")
    flushing = world.do(world.core.flush())
    assert flushing.done
    assert world.wire.batches == [[b"1"]]
    assert world.do(world.core.flush()).done, "an empty queue is flushed at once"


def test_those_who_wait_for_space_continue_when_a_batch_is_taken():
    world = World()
    world.wire.gate = world.runtime.scheduler.future()
    world.put(b"1", b"2", b"3")
    world.advance(1)
    world.put(b"4", b"5", b"6", b"7")
    waiting = world.do(world.core.wait_for_space())
    assert not waiting.done
    world.wire.gate.set_result(None)
    world.advance(1)
    assert waiting.done
    assert world.put(b"8")


def test_what_is_left_when_the_loop_ends_fails_with_a_word():
    world = World(hooks=Hooks)
    world.wire.gate = world.runtime.scheduler.future()
    items = world.put(b"1", b"2", b"3")
    world.advance(1)
    items += world.put(b"4", b"5")
    world.do(world.core.abandon())
    assert all(isinstance(it.error(), KctlError) for it in items)
    assert world.runtime.trace.warnings == [
        "messages for t were not written (5): the producer was closed"
    ]
