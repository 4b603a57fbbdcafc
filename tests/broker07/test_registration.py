"""What a broker of Kafka 0.7 writes into ZooKeeper, and when."""

import pytest

from kctl.broker07.config import Broker07Config
from kctl.broker07.registration import Registration
from kctl.errors import KctlError
from kctl.model import Endpoint
from kctl.runtime.future import Future
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.interface import SessionState
from tests.support.golden07 import golden07_json
from tests.support.virtual_runtime import virtual_runtime

MOMENTS = golden07_json("znodes.json")
ADVERTISED = Endpoint("127.0.0.1", 27096)


class Ensemble:
    """One tree, and the brokers that are registered in it."""

    def __init__(self):
        self.runtime = virtual_runtime()
        self.database = ZnodeDatabase.in_memory(self.runtime)
        self.reader = EmbeddedStore(self.runtime, self.database)

    def broker(self, broker_id, partitions=2, port=27096):
        config = Broker07Config(broker_id=broker_id, partitions=partitions)
        store = EmbeddedStore(self.runtime, self.database)
        registration = Registration(self.runtime, config, store, Endpoint("127.0.0.1", port))
        registration.start()
        self.settle()
        return registration, store

    def settle(self):
        self.runtime.scheduler.settle()

    def get(self, future: Future):
        self.settle()
        return future.result()

    def brokers(self, path="/brokers"):
        """The znodes below /brokers: path -> data with its time masked, and whether ephemeral."""
        data, stat = self.get(self.reader.get(path))
        found = {path: (masked(path, data.decode()), bool(stat.ephemeral_owner))}
        for name in self.get(self.reader.children(path)):
            found |= self.brokers(f"{path}/{name}")
        return found


def masked(path, data):
    """The data of a broker without the time of its registration."""
    if not path.startswith("/brokers/ids/"):
        return data
    creator, _, rest = data.partition(":")
    return f"{creator.rpartition('-')[0]}:{rest}"


def golden(moment):
    return {
        path: (masked(path, znode["data"] or ""), znode["ephemeral"])
        for path, znode in MOMENTS[moment].items()
        if path.startswith("/brokers")
    }


def test_the_znodes_are_those_of_apache_kafka_at_each_moment():
    ensemble = Ensemble()
    first, _ = ensemble.broker(0)
    assert first.ready.done
    assert ensemble.brokers() == golden("01 one broker, no topic")
    first.add_topic("t")
    ensemble.settle()
    assert ensemble.brokers() == golden("02 first message to t-0")
    first.add_topic("t")
    first.add_topic("u")
    ensemble.settle()
    assert ensemble.brokers() == golden("03 messages to t-1 and u-1")
    second, store = ensemble.broker(1, partitions=3, port=27097)
    second.add_topic("t")
    ensemble.settle()
    assert ensemble.brokers() == golden("04 a second broker with three partitions of t")
    second.stop()
    store.close()
    ensemble.settle()
    assert ensemble.brokers() == golden("12 broker 1 stopped")


def test_an_id_in_use_is_waited_for():
    ensemble = Ensemble()
    _, old_store = ensemble.broker(0)
    new, new_store = ensemble.broker(0, port=1)
    ensemble.runtime.scheduler.advance(5_000)
    assert not new.ready.done
    lines = [line for line in ensemble.runtime.trace.warnings if "broker id 0 is in use" in line]
    assert len(lines) == 1
    old_store.close()
    ensemble.runtime.scheduler.advance(1_000)
    assert new.ready.done
    _, stat = ensemble.get(ensemble.reader.get("/brokers/ids/0"))
    assert stat.ephemeral_owner == new_store.session_id


def test_a_broker_that_waits_for_its_id_can_be_stopped():
    ensemble = Ensemble()
    ensemble.broker(0)
    new, _ = ensemble.broker(0)
    new.stop()
    ensemble.runtime.scheduler.advance(2_000)
    assert ensemble.runtime.scheduler.timer_count == 0


def test_what_zookeeper_refuses_is_logged_once_until_it_is_accepted(monkeypatch):
    ensemble = Ensemble()
    broker, _ = ensemble.broker(0)
    refused = {"is": True}
    make_path = broker._client.make_path

    async def refuse(path):
        if refused["is"]:
            raise KctlError(f"{path} is refused")
        await make_path(path)

    monkeypatch.setattr(broker._client, "make_path", refuse)

    def lines():
        return [it for it in ensemble.runtime.trace.warnings if "is refused" in it]

    broker.add_topic("t")
    ensemble.runtime.scheduler.advance(10_000)
    assert len(lines()) == 1
    refused["is"] = False
    ensemble.runtime.scheduler.advance(1_000)
    assert "/brokers/topics/t/0" in ensemble.brokers()
    refused["is"] = True
    broker.add_topic("u")
    ensemble.runtime.scheduler.advance(10_000)
    assert len(lines()) == 2


@pytest.mark.parametrize("topics", [[], ["t", "u"]])
def test_after_a_lost_session_everything_is_registered_again(topics):
    ensemble = Ensemble()
    broker, store = ensemble.broker(0)
    for topic in topics:
        broker.add_topic(topic)
    ensemble.settle()
    before = ensemble.brokers()
    states = []
    store.on_session_state(states.append)
    ensemble.database.expire_session(store.session_id)
    ensemble.settle()
    assert SessionState.EXPIRED in states
    assert ensemble.brokers() == before
    _, stat = ensemble.get(ensemble.reader.get("/brokers/ids/0"))
    assert stat.ephemeral_owner == store.session_id
