"""Handlers of group requests over a real coordinator, metadata cache and store: a request goes in
as bytes of its version, the answer comes out as bytes of that version, decoded again."""

from types import SimpleNamespace

from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.request import Request, RequestContext
from kctl.broker.topic_waits import TopicWaits
from kctl.model import TopicPartition
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore
from tests.support.group_world import GroupWorld

BROKER_ID = 0
PORT = 9092


class RecordingTopics:
    """A fake of topic creation, which the controller does."""

    def __init__(self):
        self.wanted = []
        self.outcome = ErrorCode.LEADER_NOT_AVAILABLE

    async def create_internal(self, name):
        self.wanted.append(name)
        return self.outcome


class HandlerWorld(GroupWorld):
    """A broker with topic t (two partitions) and, as a rule, __consumer_offsets."""

    def __init__(self, settings=None, topics=("__consumer_offsets", "t")):
        super().__init__(settings)
        self.metadata_cache = MetadataCache(BROKER_ID)
        self.store = ClusterStore(EmbeddedStore.in_memory(self.runtime))
        self.topics = RecordingTopics()
        self.services = SimpleNamespace(
            runtime=self.runtime,
            config=self.config,
            metadata_cache=self.metadata_cache,
            cluster_store=self.store,
            group_coordinator=self.service,
            auto_topics=self.topics,
            topic_waits=TopicWaits(self.runtime, self.metadata_cache),
        )
        counts = {"__consumer_offsets": 1, "t": 2}
        self.learn(
            {TopicPartition(name, n): BROKER_ID for name in topics for n in range(counts[name])}
        )
        self.elect()

    def learn(self, leaders):
        """What the controller says: {partition: leader}."""
        endpoint = UpdateMetadataEndpoint(port=PORT, host="kctl", listener="PLAINTEXT")
        self.metadata_cache.update(
            UpdateMetadataRequest(
                controller_id=BROKER_ID,
                ungrouped_partition_states=[
                    UpdateMetadataPartitionState(
                        topic_name=tp.topic, partition_index=tp.partition, leader=leader
                    )
                    for tp, leader in leaders.items()
                ],
                live_brokers=[UpdateMetadataBroker(id=BROKER_ID, endpoints=[endpoint])],
            )
        )

    def ask(self, handler, body, version):
        """The list that the answer arrives in, maybe later."""
        answers = []
        api = type(body).api

        def send(response):
            data = b"".join(encode(response, version))
            answers.append(decode(api.response_class, version, data))

        request = Request(
            api_key=api,
            api_version=version,
            correlation_id=1,
            client_id="app",
            body=decode(type(body), version, b"".join(encode(body, version))),
            context=RequestContext("c", "10.0.0.7", "PLAINTEXT"),
            received_ms=self.clock.now_ms,
            send=send,
            close=lambda: answers.append("closed"),
        )
        handler(self.services, request)
        self.scheduler.settle()
        return answers

    def answer(self, handler, body, version):
        """Return the response, which must be there at once."""
        (answer,) = self.ask(handler, body, version)
        return answer
