"""AutoTopicCreator: creates topics on demand: unknown ones in Metadata requests, and internal ones.

The request does not wait: the client gets LEADER_NOT_AVAILABLE and retries.

Kafka 2.7: kafka.server.KafkaApis (`createTopic`, `createInternalTopic`).
"""

from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.topic_creation import NewTopic, TopicCreator
from kctl.configs.broker_config import BrokerConfig
from kctl.protocol.constants import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.store.errors import StoreError


class AutoTopicCreator:
    """Creates topics with the broker's defaults, or with the settings of internal topics."""

    def __init__(
        self,
        runtime: Runtime,
        creator: TopicCreator,
        metadata_cache: MetadataCache,
        config: BrokerConfig,
    ) -> None:
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._warnings = RecurringWarnings(runtime)
        self._creator = creator
        self._cache = metadata_cache
        self._config = config

    async def create(self, topic: str) -> ErrorCode:
        """Create an ordinary topic with the broker's defaults; return the error for the client.

        The error is LEADER_NOT_AVAILABLE if the topic exists or is being created.
        """
        return await self._create(NewTopic(topic))

    async def create_internal(self, topic: str) -> ErrorCode:
        """Create `__consumer_offsets` or `__transaction_state`; return the error for the client.

        The error is INVALID_REPLICATION_FACTOR while too few brokers are alive.
        """
        new = internal_topic(self._config, topic)
        alive = len(self._cache.alive_brokers())
        if alive < new.replication_factor:
            # Clients look up their coordinator several times a second.
            self._warnings.warn(
                topic,
                f"Number of alive brokers '{alive}' does not meet the required replication factor "
                f"'{new.replication_factor}' for the topic {topic}. This error can be ignored if "
                "the cluster is starting up and not all brokers are up yet.",
            )
            return ErrorCode.INVALID_REPLICATION_FACTOR
        self._warnings.resolve(topic)
        return await self._create(new)

    async def _create(self, topic: NewTopic) -> ErrorCode:
        try:
            await self._creator.create(topic)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                return error.code
        except StoreError as error:
            self._trace.warning(f"Topic {topic.name} could not be created: {error}")
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.LEADER_NOT_AVAILABLE


def internal_topic(config: BrokerConfig, topic: str) -> NewTopic:
    """Return the settings of `__consumer_offsets` or `__transaction_state`."""
    if topic == GROUP_METADATA_TOPIC:
        return NewTopic(
            topic,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if topic == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            topic,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    raise ValueError(f"{topic} is not an internal topic")
