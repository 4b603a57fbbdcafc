"""kctl's clients against ScriptedBroker: old brokers, unusual responses, moving leaders."""

import pytest

from kctl.client.router import Router
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
def router_of(loop):
    """Return a Router whose bootstrap server is a broker."""
    routers = []

    def make(broker, timeout_ms=60_000):
        router = Router(loop.runtime, [broker.address], timeout_ms=timeout_ms)
        routers.append(router)
        return router

    yield make
    for router in routers:
        router.close()


@pytest.fixture
def run(loop):
    """Run a coroutine and return its result."""
    return loop.run
