"""Requests that a broker's own controller sends it without a socket."""

from functools import partial

import pytest

from kctl.broker import broker as broker_module
from kctl.errors import UnreachableError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.store.errors import StoppingError
from kctl.testing.kafka_broker import KafkaBroker


@pytest.mark.parametrize(("error", "is_a_bug"), [(StoppingError(), False), (LookupError(), True)])
def test_a_request_that_fails_is_sent_again_and_only_a_bug_is_raised(error, is_a_bug, monkeypatch):
    raised = []

    def handler(_services, request):
        try:
            request.failed(request, error)
        except LookupError as bug:
            raised.append(bug)

    monkeypatch.setitem(broker_module.HANDLERS, ApiKey.LEADER_AND_ISR, handler)
    with KafkaBroker() as broker:

        async def deliver():
            with pytest.raises(UnreachableError, match="was not handled"):
                await broker._broker._deliver(LeaderAndIsrRequest())

        broker._call(partial(deliver))
    assert raised == ([error] if is_a_bug else [])
