"""Requests of clients that connect while a broker starts: before it is registered, and before a
controller has sent it metadata."""

import threading

import pytest

from kctl.broker import broker as broker_module
from kctl.broker.controller.controller import Controller
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.list_groups import ListGroupsRequest
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.runtime.polling import poll_until
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.broker_client import BrokerClient

WAIT_S = 20


@pytest.fixture
def answers_during_start(monkeypatch):
    """A function that starts a broker, sends it requests, one by a client each, before it is
    registered, and returns the answers; "closed" for a connection that is closed."""

    def start(broker, requests):
        answers = [None] * len(requests)

        def ask(number, address):
            try:
                with BrokerClient(address) as client:
                    answers[number] = client.ask(requests[number])
            except ConnectionError:
                answers[number] = "closed"

        threads = []
        register = Controller.register_broker

        async def register_late(controller):
            process = broker._broker
            address = f"127.0.0.1:{process.endpoints[0].port}"
            for number in range(len(requests)):
                threads.append(threading.Thread(target=ask, args=(number, address), daemon=True))
                threads[-1].start()

            def have_arrived():
                return len(process._early) == len(requests)

            assert await poll_until(process.runtime, have_arrived, WAIT_S * 1000, 10)
            return await register(controller)

        monkeypatch.setattr(Controller, "register_broker", register_late)
        broker.start()
        for thread in threads:
            thread.join(WAIT_S)
        return answers

    return start


def test_the_first_metadata_has_the_broker_and_the_topic_that_it_creates(answers_during_start):
    broker = KafkaBroker(settings={"auto.create.topics.enable": "true"})
    try:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="wanted")])
        (answer,) = answers_during_start(broker, [request])
        # librdkafka forgets all brokers after a response that has none.
        assert [it.port for it in answer.brokers] == [broker.port]
        # INVALID_REPLICATION_FACTOR is the error for topics where no broker is known.
        assert answer.topics[0].error_code in (0, 5)
        assert broker.topics == {"wanted": 1}
    finally:
        broker.stop()


def test_early_requests_that_fail_close_their_own_connections_only(
    answers_during_start, monkeypatch
):
    def handler(_services, _request):
        raise CorruptDataError("a set that ends early")

    monkeypatch.setitem(broker_module.HANDLERS, ApiKey.LIST_GROUPS, handler)
    broker = KafkaBroker()
    try:
        failed, answered = answers_during_start(broker, [ListGroupsRequest(), MetadataRequest()])
        assert failed == "closed"
        assert [it.port for it in answered.brokers] == [broker.port]
    finally:
        broker.stop()
