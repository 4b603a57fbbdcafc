"""Several real brokers in one process: one loop, real sockets and files, one embedded tree."""

import time
from contextlib import contextmanager

from kctl.admin.admin_client import AdminClient
from kctl.broker.broker import Broker
from kctl.client.router import Router
from kctl.configs.broker_config import BrokerConfig
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from tests.support.controller_cluster import RecordingTrace

PATIENCE_S = 120
SETTINGS = {
    # Longer than a busy machine holds up a follower; tests of followers that hang lower it.
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "20",
    "controlled.shutdown.retry.backoff.ms": "20",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerCluster:
    """Brokers come with `start` and go with `stop`; clients are kctl's own."""

    def __init__(self, directory):
        self.directory = directory
        self.trace = RecordingTrace()
        self.runtime = make_runtime(self.trace)
        self.database = ZnodeDatabase.in_memory(self.runtime)
        self.brokers = {}
        self._routers = []

    def run(self, awaitable):
        """Drive a coroutine or Future to its end."""
        if hasattr(awaitable, "send"):
            awaitable = self.runtime.scheduler.spawn(awaitable)
        return self.runtime.scheduler.run_until(awaitable)

    def start(self, *broker_ids, **settings):
        """Start brokers in sequence."""
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        for broker_id in broker_ids:
            config = BrokerConfig(
                {
                    **SETTINGS,
                    "broker.id": str(broker_id),
                    "log.dirs": str(self.directory / f"broker-{broker_id}"),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    **named,
                }
            )
            store = EmbeddedStore(self.runtime, self.database)
            broker = self.brokers[broker_id] = Broker(self.runtime, config, None, store=store)
            self.run(broker.start())
        return self

    def stop(self, broker_id):
        """A clean stop; its data stay."""
        self.run(self.brokers.pop(broker_id).shutdown())

    def router(self):
        """A client that knows every broker there is now."""
        addresses = [
            (broker.endpoints[0].host, broker.endpoints[0].port) for broker in self.brokers.values()
        ]
        router = Router(self.runtime, addresses)
        self._routers.append(router)
        return router

    def admin(self):
        return AdminClient(self.router())

    def partition(self, broker_id, topic, number=0):
        """Return the broker's own Partition, or None."""
        services = self.brokers[broker_id].services
        return services.replica_manager.partitions.get((topic, number))

    def end(self, broker_id, topic, number=0):
        """Where the broker's log ends; -1 as long as it has none."""
        partition = self.partition(broker_id, topic, number)
        return -1 if partition is None else partition.log.log_end_offset

    def leader(self, topic, number=0):
        """Return the leader according to the store."""
        return self.state(topic, number).leader

    def state(self, topic, number=0):
        """The partition's LeaderAndIsr in the store."""
        tp = TopicPartition(topic, number)
        store = next(iter(self.brokers.values())).services.cluster_store
        return self.run(store.get_partition_states([tp]))[tp].leader_and_isr

    def until(self, condition, what):
        """Let the brokers work until `condition()`."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came to be: {what}"
            tick = self.runtime.scheduler.future()
            self.runtime.scheduler.call_later(5, tick.set_result, None)
            self.run(tick)

    def close(self):
        for router in self._routers:
            router.close()
        for broker_id in list(self.brokers):
            self.stop(broker_id)
        self.runtime.scheduler.close()


@contextmanager
def running_brokers(directory):
    """A cluster with no broker yet; afterwards no event may have met a bug."""
    cluster = BrokerCluster(directory)
    try:
        yield cluster
    finally:
        cluster.close()
    bugs = [fields for name, fields in cluster.trace.events if name == "controller_bug"]
    assert bugs == []
