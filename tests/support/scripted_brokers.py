"""Scripted brokers for tests of clients and of administration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kctl.protocol.api_keys import ApiKey
from kctl.testing.scripted_broker import ScriptedBroker
from tests.support.real_loop import RealLoop


@contextmanager
def scripted_brokers(loop: RealLoop) -> Iterator[Callable[..., ScriptedBroker]]:
    """Yield a function that starts a ScriptedBroker; all of them stop at the end.

    `versions` replaces version ranges of single APIs; None removes the API.
    """
    started = []

    def make(topics=None, versions=None, broker_id=0):
        supported = {api: (0, api.max_version) for api in ApiKey} | (versions or {})
        supported = {api: range_ for api, range_ in supported.items() if range_ is not None}
        broker = ScriptedBroker(
            loop.runtime, topics=topics, versions=supported, broker_id=broker_id
        ).start()
        started.append(broker)
        return broker

    yield make
    for broker in started:
        broker.stop()
