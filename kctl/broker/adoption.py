"""Adoption: registers the topics found in the log directories in a new embedded store.

The directories may come from Apache Kafka, or from a broker that lost its metadata. Their
meta.properties identify cluster and broker; their partitions give the topics, and their leader
epochs the progress of elections. The configs of topics are lost: until they are set again, nothing
is deleted for its age or size, and internal topics are compacted.

The store counts as new until it has the cluster id, which is written last: after a crash in
between, the next start adopts what is still missing. With a real ZooKeeper nothing is adopted.

Kafka 2.7: no equivalent; the znodes are those of kafka.zk.AdminZkClient and the controller.
"""

from collections.abc import Sequence
from functools import partial

from kctl.broker.auto_topic_creation import internal_topic
from kctl.broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from kctl.broker.log.log_directory import read_meta_properties
from kctl.broker.log.log_manager import LogManager
from kctl.broker.topic_creation import checked_configs
from kctl.configs.broker_config import BrokerConfig
from kctl.counts import counted
from kctl.errors import CorruptDataError, StorageError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.protocol.constants import INTERNAL_TOPICS, NO_EPOCH
from kctl.runtime.disk import Disk
from kctl.storage.layout import META_PROPERTIES, directory_name
from kctl.storage.meta_properties import MetaProperties
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.interface import Create
from kctl.store.znodes import NO_CONTROLLER_EPOCH, LeaderIsrAndControllerEpoch

KEEP_EVERYTHING = {"retention.bytes": "-1", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Adoption:
    """The result of an adoption."""

    # Number of partitions found, by topic.
    topics: dict[str, int]
    # Partitions that no directory holds although a higher-numbered one exists.
    missing: list[TopicPartition]

    def __str__(self) -> str:
        """Return one line for the operator."""
        found = sum(self.topics.values())
        text = (
            f"adopted {counted(len(self.topics), 'topic')} with {counted(found, 'partition')} from "
            "the log directories; "
            "their configs are unknown: nothing in them is deleted until retention.ms or "
            "retention.bytes is set"
        )
        if self.missing:
            text += f"; missing partitions, created empty: {', '.join(map(str, self.missing))}"
        return text


def known_identity(disk: Disk, log_dirs: Sequence[str]) -> MetaProperties | None:
    """Return the owner of the first log directory that has a readable one, or None.

    The others are checked when they are opened.
    """
    for log_dir in log_dirs:
        try:
            found = read_meta_properties(disk, log_dir)
        except (CorruptDataError, StorageError):
            continue
        if found is not None:
            return found
    return None


def check_is_new(known: MetaProperties | None, config: BrokerConfig) -> None:
    """Raise UsageError if the log directories belong to a cluster although ZooKeeper knows none.

    ZooKeeper has lost its data, or `zookeeper.connect` is wrong. Nothing may be written: a new
    `/cluster/id` would let other brokers start without their topics. (Apache Kafka 2.7.2 writes it,
    and fails afterwards.)
    """
    if known is not None and known.cluster_id is not None:
        raise UsageError(
            f"ZooKeeper at {config.zookeeper_connect} has no /cluster/id, but the log directories "
            f"of this broker belong to cluster {known.cluster_id}",
            hint="check zookeeper.connect, or restore ZooKeeper's data; to begin a new cluster, "
            f"remove {META_PROPERTIES} from the log directories",
        )


async def adopt_topics(
    disk: Disk,
    store: ClusterStore,
    log_manager: LogManager,
    broker_id: int,
    config: BrokerConfig,
) -> Adoption:
    """Create the znodes of the topics that `log_manager` found and `store` lacks."""
    epochs = _latest_epochs(disk, log_manager)
    known = dict.fromkeys(await store.get_all_topics())
    counts: dict[str, int] = {}
    missing: list[TopicPartition] = []
    for topic in dict.fromkeys(tp.topic for tp in epochs):
        if topic in known:
            continue
        numbers = [tp.partition for tp in epochs if tp.topic == topic]
        counts[topic] = len(numbers)
        everything = range(max(numbers) + 1)
        missing += [TopicPartition(topic, number) for number in everything if number not in numbers]
        await _adopt_topic(store, topic, everything, epochs, broker_id, config)
    return Adoption(counts, missing)


async def _adopt_topic(
    store: ClusterStore,
    topic: str,
    numbers: range,
    epochs: dict[TopicPartition, int],
    broker_id: int,
    config: BrokerConfig,
) -> None:
    overrides = KEEP_EVERYTHING
    if topic in INTERNAL_TOPICS:
        overrides = checked_configs(internal_topic(config, topic).configs)
    await store.set_entity_config(znodes.TOPIC_CONFIGS, topic, overrides)
    assignment = {number: ReplicaAssignment((broker_id,)) for number in numbers}
    operations = [
        Create(znodes.topic_path(topic), znodes.encode_topic(assignment)),
        Create(znodes.partitions_path(topic), znodes.NO_DATA),
    ]
    for number in numbers:
        tp = TopicPartition(topic, number)
        if tp in epochs:
            # No leader yet: the controller elects one, with the next epoch.
            last = LeaderAndIsr(NO_LEADER, max(epochs[tp], 0), (broker_id,))
            state = znodes.encode_partition_state(
                LeaderIsrAndControllerEpoch(last, NO_CONTROLLER_EPOCH)
            )
            operations += [
                Create(znodes.partition_path(tp), znodes.NO_DATA),
                Create(znodes.partition_state_path(tp), state),
            ]
    # In one transaction, so that every topic in the store is completely adopted.
    await store.call(partial(store.store.multi, operations))


def _latest_epochs(disk: Disk, log_manager: LogManager) -> dict[TopicPartition, int]:
    """Return the newest leader epoch of every partition found, or -1; sorted.

    Damaged logs are included: they belong to their topics, though they cannot be served.
    """
    epochs = {log.topic_partition: log.latest_epoch for log in log_manager.all_logs()}
    for tp, (log_dir, _) in log_manager.damaged.items():
        epochs[tp] = _epoch_on_file(disk, f"{log_dir}/{directory_name(tp)}")
    return dict(sorted(epochs.items()))


def _epoch_on_file(disk: Disk, directory: str) -> int:
    try:
        return LeaderEpochFileCache.load(disk, directory).latest_epoch
    except (CorruptDataError, StorageError):
        return NO_EPOCH
