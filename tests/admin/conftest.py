"""The admin library against ScriptedBroker: old brokers, odd answers, moving leaders."""

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.testing.scripted_broker import ScriptedBroker
from tests.support.real_loop import real_loop


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


@pytest.fixture
def make_broker(loop):
    """A ScriptedBroker, listening; `versions` replaces some of what it speaks."""
    started = []

    def make(topics=None, versions=None, broker_id=0):
        from kctl.protocol.api_keys import ApiKey

        spoken = {api: (0, api.max_version) for api in ApiKey} | (versions or {})
        spoken = {api: range_ for api, range_ in spoken.items() if range_ is not None}
        broker = ScriptedBroker(
            loop.runtime, topics=topics, versions=spoken, broker_id=broker_id
        ).start()
        started.append(broker)
        return broker

    yield make
    for broker in started:
        broker.stop()


@pytest.fixture
def admin_of(loop):
    """An AdminClient of a broker."""
    clients = []

    def make(broker, timeout_ms=10_000):
        client = AdminClient.connect(loop.runtime, [broker.address], timeout_ms)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def run(loop):
    """Drives a coroutine to its result."""
    return loop.run
