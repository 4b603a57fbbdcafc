"""The admin library against ScriptedBroker: old brokers, unusual responses, moving leaders."""

import pytest

from kctl.admin.admin_client import AdminClient
from tests.support.real_loop import real_loop
from tests.support.scripted_brokers import scripted_brokers


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


@pytest.fixture
def make_broker(loop):
    """Start a ScriptedBroker."""
    with scripted_brokers(loop) as make:
        yield make


@pytest.fixture
def admin_of(loop):
    """Return an AdminClient of a broker."""
    clients = []

    def make(broker, timeout_ms=60_000):
        client = AdminClient.connect(loop.runtime, [broker.address], timeout_ms)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def run(loop):
    """Run a coroutine and return its result."""
    return loop.run
