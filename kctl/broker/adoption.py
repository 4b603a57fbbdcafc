"""Adoption: a new embedded store takes over the topics that the log directories hold.

The directories may come from Apache Kafka, or from a broker whose metadata are lost. Their
meta.properties tell cluster and broker; their partitions tell which topics there were, and their
leader epochs how far elections had come. What the topics' settings were is lost: until somebody
sets them anew, nothing in them is deleted for its age or size, and internal topics are compacted.

The store is new until it knows the cluster's id, which is written last: a crash in between means
that the next start adopts what is still missing. With a real ZooKeeper nothing is adopted.

Kafka 2.7: nothing like it; the znodes are those of kafka.zk.AdminZkClient and the controller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kctl.broker.auto_topic_creation import internal_topic
from kctl.broker.config import BrokerConfig
from kctl.broker.log.leader_epoch_file_cache import NO_EPOCH, LeaderEpochFileCache
from kctl.broker.log.log_directory import read_meta_properties
from kctl.broker.log.log_manager import LogManager
from kctl.broker.topic_creation import INTERNAL_TOPICS, checked_configs
from kctl.errors import CorruptDataError, StorageError
from kctl.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.runtime.disk import Disk
from kctl.storage.layout import directory_name
from kctl.storage.meta_properties import MetaProperties
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.interface import Create
from kctl.store.znodes import LeaderIsrAndControllerEpoch

# Before the first controller of the new store, whose epoch is 1.
NO_CONTROLLER_EPOCH = 0
KEEP_EVERYTHING = {"retention.bytes": "-1", "retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was taken over."""

    # Partitions found, by topic.
    topics: dict[str, int]
    # Partitions that no directory holds although one with a higher number is there.
    missing: list[TopicPartition]

    def __str__(self) -> str:
        """One line for the operator."""
        found = sum(self.topics.values())
        text = (
            f"adopted {len(self.topics)} topics with {found} partitions from the log directories; "
            "their settings are not known: nothing in them is deleted until retention.ms or "
            "retention.bytes is set"
        )
        if self.missing:
            text += f"; made empty, as they were not there: {', '.join(map(str, self.missing))}"
        return text


def known_identity(disk: Disk, log_dirs: Sequence[str]) -> MetaProperties | None:
    """Whose the log directories are, as far as one of them can tell: who opens them afterwards
    finds out about the others."""
    for log_dir in log_dirs:
        try:
            found = read_meta_properties(disk, log_dir)
        except (CorruptDataError, StorageError):
            continue
        if found is not None:
            return found
    return None


async def adopt_topics(
    disk: Disk,
    store: ClusterStore,
    log_manager: LogManager,
    broker_id: int,
    config: BrokerConfig,
) -> Adoption:
    """Write the znodes of the topics that `log_manager` found and `store` lacks."""
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
            # Nobody leads yet: the controller elects, with the next epoch.
            last = LeaderAndIsr(NO_LEADER, max(epochs[tp], 0), (broker_id,))
            state = znodes.encode_partition_state(
                LeaderIsrAndControllerEpoch(last, NO_CONTROLLER_EPOCH)
            )
            operations += [
                Create(znodes.partition_path(tp), znodes.NO_DATA),
                Create(znodes.partition_state_path(tp), state),
            ]
    # All or nothing, so that a topic that is there is a topic that was adopted.
    await store.call(partial(store.store.multi, operations))


def _latest_epochs(disk: Disk, log_manager: LogManager) -> dict[TopicPartition, int]:
    """The newest leader epoch of every partition found, -1 if it knows none; sorted. Logs that
    are damaged are there too: they are part of their topics, though they cannot be served."""
    epochs = {log.topic_partition: log.latest_epoch for log in log_manager.all_logs()}
    for tp, (log_dir, _) in log_manager.damaged.items():
        epochs[tp] = _epoch_on_file(disk, f"{log_dir}/{directory_name(tp)}")
    return dict(sorted(epochs.items()))


def _epoch_on_file(disk: Disk, directory: str) -> int:
    try:
        return LeaderEpochFileCache.load(disk, directory).latest_epoch
    except (CorruptDataError, StorageError):
        return NO_EPOCH
