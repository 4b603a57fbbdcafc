"""Errors of a request that happen after its handler has returned."""

import pytest

from kctl.broker.replies import reply_from, reply_in_turns
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.runtime.future import sleep
from kctl.runtime.turns import in_turns
from tests.broker.network.test_server import Broker, heartbeat


async def fail_later(scheduler):
    await sleep(scheduler, 1)
    raise LookupError("handler's bug")


def fail_in_second_part():
    yield
    raise LookupError("handler's bug")


@pytest.mark.parametrize(
    "handle",
    [
        lambda loop, request: reply_in_turns(loop.scheduler, request, fail_in_second_part()),
        lambda loop, request: reply_from(
            loop.scheduler, request, fail_later(loop.scheduler), "late"
        ),
        lambda loop, request: in_turns(
            loop.scheduler, fail_in_second_part(), request.reply, request.fail
        ),
    ],
)
def test_a_handler_that_fails_in_a_later_turn_closes_its_connection(loop, handle):
    def handler(request):
        if request.body.group_id != "bad":
            request.reply(HeartbeatResponse())
            return
        handle(loop, request)

    broker = Broker(loop, handler)
    bad, good = broker.connect(), broker.connect()
    bad.send(broker.writer.frame(heartbeat("bad"), 1))
    bad.wait_for_close()
    assert broker.counters.handler_errors == 1
    assert "handler's bug" in loop.trace.warnings[0]
    good.send(broker.writer.frame(heartbeat("good"), 1))
    good.receive_frame()


def test_an_error_after_the_response_leaves_the_connection_open(loop):
    broker = Broker(loop)
    peer = broker.connect()
    peer.send(broker.writer.frame(heartbeat(), 1))
    request = broker.next_request()
    request.reply(HeartbeatResponse())
    request.fail(LookupError("too late to matter"))
    peer.receive_frame()
    peer.send(broker.writer.frame(heartbeat(), 1))
    broker.next_request().reply(HeartbeatResponse())
    peer.receive_frame()
    assert broker.counters.handler_errors == 1
