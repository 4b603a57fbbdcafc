"""A transaction coordinator with its world: virtual time, a log in memory, and brokers that write
markers on command.

The coordinator, its runtime, its marker sender and its service are the real ones.
"""

from kctl.broker.coordinator.transaction.transaction_coordinator import Producer
from kctl.broker.coordinator.transaction_coordinator_service import TransactionCoordinatorService
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.producer_ids import ProducerIdManager
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UnreachableError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.constants import TRANSACTION_STATE_TOPIC
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from tests.support.group_world import Answer, MemoryLog
from tests.support.virtual_runtime import virtual_runtime

STATE = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
TIMEOUT_MS = 60_000


class MarkerBroker:
    """A leader that writes markers: at once, or on command."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self.is_holding = False
        self.is_down = False
        # Partition -> error codes for its next markers.
        self.failures = {}
        # (producer id, epoch, "commit" or "abort", partition) in order.
        self.written = []
        self.requests = []
        self._held = []
        self.closed = 0

    def send(self, request):
        future = self._scheduler.future()
        self.requests.append(request)
        if self.is_holding:
            self._held.append((request, future))
        else:
            self._answer(request, future)
        return future

    def release(self):
        self.is_holding = False
        held, self._held = self._held, []
        for request, future in held:
            self._answer(request, future)

    def close(self):
        self.closed += 1

    def _answer(self, request, future):
        if self.is_down:
            future.set_error(UnreachableError("the broker is down"))
            return
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                codes = [self._write(marker, topic.name, n) for n in topic.partition_indexes]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=codes))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        future.set_result(WriteTxnMarkersResponse(markers=results))

    def _write(self, marker, topic, number):
        codes = self.failures.get(TopicPartition(topic, number))
        code = codes.pop(0) if codes else 0
        if code == 0:
            kind = "commit" if marker.transaction_result else "abort"
            where = TopicPartition(topic, number)
            self.written.append((marker.producer_id, marker.producer_epoch, kind, where))
        return WritableTxnMarkerPartitionResult(partition_index=number, error_code=int(code))


class TransactionWorld:
    """One coordinator; broker 0 leads t-0 and t-1, broker 1 leads t-2."""

    def __init__(self, settings=None, log=None, seed=1):
        self.runtime = virtual_runtime(seed)
        self.clock = self.runtime.clock
        self.scheduler = self.runtime.scheduler
        self.log = log or MemoryLog()
        self.cache = MetadataCache(0)
        self.brokers = {number: MarkerBroker(self.scheduler) for number in (0, 1)}
        self.store = ClusterStore(EmbeddedStore.in_memory(self.runtime))
        creation = self.store.create_or_get_cluster_id("JzQLOi4JQkytO-cNup0VUQ")
        self.scheduler.spawn(creation)
        self.scheduler.settle()
        self.learn({STATE: 0, T0: 0, T1: 0, T2: 1})
        self.led = True
        self.service = TransactionCoordinatorService(
            self.runtime,
            BrokerConfig(settings or {}),
            self.log,
            self.cache,
            ProducerIdManager(self.scheduler, self.store, 0),
            self.brokers.get,
            self.store.topic_stays,
            self._leads,
        )
        self.service.start()

    async def _leads(self, _partition):
        """What the store says; tests change `led`, or set an error."""
        if isinstance(self.led, Exception):
            raise self.led
        return self.led

    def learn(self, leaders):
        endpoint = UpdateMetadataEndpoint(port=9092, host="kctl", listener="PLAINTEXT")
        self.cache.update(
            UpdateMetadataRequest(
                controller_id=0,
                ungrouped_partition_states=[
                    UpdateMetadataPartitionState(
                        topic_name=tp.topic, partition_index=tp.partition, leader=leader
                    )
                    for tp, leader in leaders.items()
                ],
                live_brokers=[UpdateMetadataBroker(id=0, endpoints=[endpoint])],
            )
        )

    def create_topic(self, topic):
        """In the store; brokers hear of it by `learn`."""
        partitions = {number: ReplicaAssignment((0,)) for number in range(3)}
        self.scheduler.spawn(self.store.create_topic_assignment(topic, partitions))
        self.scheduler.settle()

    def elect(self, epoch=0):
        self.service.on_elected(0, epoch)
        self.scheduler.settle()
        return self

    def resign(self, epoch):
        self.service.on_resigned(0, epoch)
        self.scheduler.settle()

    def advance(self, delay_ms):
        self.scheduler.advance(delay_ms)

    @property
    def shard(self):
        return self.service._shards.hosts[0].shard

    def current(self, name="x"):
        return self.shard.entries[name].current

    # Requests

    def init(self, name="x", *, producer=None, timeout_ms=TIMEOUT_MS):
        """Return the Answer to InitProducerId; `producer` is one that recovers from an error."""
        answer = Answer()
        claimed = Producer(
            name,
            producer.producer_id if producer else -1,
            producer.producer_epoch if producer else -1,
        )
        self.service.init_producer_id(claimed, timeout_ms, answer)
        self.scheduler.settle()
        return answer

    def new_producer(self, name="x", **options):
        """A producer that has its id and epoch."""
        response = self.init(name, **options).response
        assert response.error_code == 0, ErrorCode(response.error_code)
        return Producer(name, response.producer_id, response.producer_epoch)

    def add(self, producer, *partitions, connection=1):
        answer = Answer()
        self.service.add_partitions(producer, partitions, connection, answer)
        self.scheduler.settle()
        return answer

    def end(self, producer, *, commit, connection=1):
        answer = Answer()
        self.service.end_transaction(producer, connection, answer, is_commit=commit)
        self.scheduler.settle()
        return answer

    def begin(self, *partitions, name="x"):
        """A new producer with an open transaction over these."""
        producer = self.new_producer(name)
        assert self.add(producer, *partitions).response == 0
        return producer

    def markers(self):
        """What was written where, in order: (epoch, kind, partition)."""
        found = [item for broker in self.brokers.values() for item in broker.written]
        return [(epoch, kind, where) for _, epoch, kind, where in found]
