"""A cluster of controllers in one process: real controllers and caches over one embedded store;
of the brokers only what answers the controller's requests is a stand-in."""

from contextlib import contextmanager

from kctl.broker.controller.controller import Controller
from kctl.broker.metadata_cache import MetadataCache
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UnreachableError
from kctl.model import BrokerInfo, Endpoint, ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaResponse,
)
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore

QUIET_TURNS = 30


class RecordingTrace(NullTrace):
    def __init__(self):
        self.warnings = []
        self.events = []

    def event(self, name, /, **fields):
        self.events.append((name, fields))

    def warning(self, message, detail=""):
        self.warnings.append(f"{message}\n{detail}" if detail else message)


class StubBroker:
    """What a controller sees of a broker: its answers."""

    def __init__(self, cluster, broker_id, settings):
        self.cluster = cluster
        self.broker_id = broker_id
        self.store = ClusterStore(EmbeddedStore(cluster.runtime, cluster.database))
        self.cache = MetadataCache(broker_id)
        self.requests = []
        self.is_up = True
        # (request class, partition) -> error code to answer.
        self.errors = {}
        config = BrokerConfig({"broker.id": str(broker_id), **settings})
        info = BrokerInfo(broker_id, (Endpoint("localhost", 9000 + broker_id),))
        self.controller = Controller(
            cluster.runtime,
            self.store,
            broker_id,
            lambda: info,
            config,
            self.deliver,
            open_link=lambda broker: StubLink(cluster, broker.broker_id),
        )

    def deliver(self, request):
        self.requests.append(request)
        if isinstance(request, UpdateMetadataRequest):
            self.cache.update(request)
            return UpdateMetadataResponse()
        kind = type(request)
        states = [
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        if kind is LeaderAndIsrRequest:
            make_error, make_response = LeaderAndIsrPartitionError, LeaderAndIsrResponse
        else:
            make_error, make_response = StopReplicaPartitionError, StopReplicaResponse
        return make_response(
            partition_errors=[
                make_error(
                    topic_name=topic,
                    partition_index=partition,
                    error_code=self.errors.get(
                        (kind, TopicPartition(topic, partition)), ErrorCode.NONE
                    ),
                )
                for topic, partition in states
            ]
        )

    def take(self, kind):
        """Requests of this kind since the last call."""
        found = [request for request in self.requests if isinstance(request, kind)]
        self.requests = [request for request in self.requests if not isinstance(request, kind)]
        return found

    def kill(self):
        """Vanish as by kill -9 after which the session expired."""
        self.is_up = False
        self.controller._stopped = True
        self.cluster.run(self.store.store.close())


class StubLink:
    def __init__(self, cluster, broker_id):
        self.cluster = cluster
        self.broker_id = broker_id

    def send(self, request):
        future = self.cluster.runtime.scheduler.future()
        self.cluster.runtime.scheduler.call_soon(self._answer, request, future)
        return future

    def _answer(self, request, future):
        broker = self.cluster.brokers.get(self.broker_id)
        if broker is None or not broker.is_up:
            future.set_error(UnreachableError("connection refused"))
        else:
            future.set_result(broker.deliver(request))

    def close(self):
        pass


class ControllerCluster:
    def __init__(self, broker_class=StubBroker):
        self.broker_class = broker_class
        self.trace = RecordingTrace()
        self.runtime = make_runtime(self.trace)
        self.database = ZnodeDatabase.in_memory(self.runtime)
        self.brokers = {}
        # Our own session, which lives as long as the cluster.
        self.store = ClusterStore(EmbeddedStore(self.runtime, self.database))
        self.run(self.store.ensure_persistent_paths())

    def run(self, awaitable):
        """Drive a coroutine or Future to its end."""
        if hasattr(awaitable, "send"):
            awaitable = self.runtime.scheduler.spawn(awaitable)
        return self.runtime.scheduler.run_until(awaitable)

    def start(self, *broker_ids, **settings):
        """Register and start brokers in sequence; return the first of them."""
        for broker_id in broker_ids:
            self.register(broker_id, **settings).controller.start()
            self.settle()
        return self.brokers[broker_ids[0]]

    def register(self, broker_id, **settings):
        """A broker that is alive but does not stand for election yet."""
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        broker = self.brokers[broker_id] = self.broker_class(self, broker_id, named)
        self.run(broker.controller.register_broker())
        return broker

    def settle(self):
        """Let everything that is under way come to rest."""
        done = self.runtime.scheduler.future()

        def turn(quiet):
            idle = all(b.controller.is_idle for b in self.brokers.values())
            quiet = quiet + 1 if idle else 0
            if quiet >= QUIET_TURNS:
                done.set_result(None)
            else:
                self.runtime.scheduler.call_soon(turn, quiet)

        turn(0)
        self.run(done)

    def create_topic(self, topic, *replicas):
        """A topic in the store with these replicas per partition."""
        assignment = {p: ReplicaAssignment(tuple(r)) for p, r in enumerate(replicas)}
        self.run(self.store.create_topic_assignment(topic, assignment))
        self.settle()

    def delete_topic(self, topic):
        self.run(self.store.create_delete_topic_path(topic))
        self.settle()

    def state(self, topic, partition=0):
        """(leader, leader epoch, isr) in the store."""
        tp = TopicPartition(topic, partition)
        found = self.run(self.store.get_partition_states([tp]))
        current = found[tp].leader_and_isr
        return current.leader, current.leader_epoch, current.isr

    def exists(self, path):
        return self.run(self.store.exists(path))

    @property
    def active(self):
        (found,) = [b for b in self.brokers.values() if b.is_up and b.controller.is_active]
        return found

    def events(self, name):
        return [fields for event, fields in self.trace.events if event == name]

    def close(self):
        self.runtime.scheduler.close()


@contextmanager
def running_cluster():
    """A cluster with no broker yet; afterwards no event may have met a bug."""
    cluster = ControllerCluster()
    try:
        yield cluster
    finally:
        cluster.close()
    assert cluster.events("controller_bug") == []
