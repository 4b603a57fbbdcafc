"""Seed topics: those that a broker creates when it starts, as its command line asks.

The topics wait for the brokers that will hold their replicas. A topic that exists is left alone.
"""

from collections.abc import Iterable

from kctl.broker.services import Services
from kctl.broker.topic_creation import NewTopic
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.polling import poll_until

# How long seed topics wait for the brokers that will hold them.
OTHERS_TIMEOUT_MS = 5_000
SEED_TOPIC_TIMEOUT_MS = 30_000


async def create_seed_topics(services: Services, topics: Iterable[tuple[str, int]]) -> None:
    """Create those of `topics` (name, partitions) that do not exist, and wait for their leaders;
    raise KctlError."""
    cache, replication_factor = services.metadata_cache, services.config.default_replication_factor
    # On timeout, creation reports the error.
    await poll_until(
        services.runtime,
        lambda: len(cache.alive_brokers()) >= replication_factor,
        OTHERS_TIMEOUT_MS,
    )
    wanted = []
    for name, partitions in topics:
        count = await _create(services, NewTopic(name, partitions, replication_factor))
        if count != partitions:
            services.runtime.trace.warning(
                f"seed topic {name} already exists with {counted(count, 'partition')}"
            )
        wanted.append((name, _leadable_partitions(services, name, count)))
    await services.topic_waits.wait(
        [name for name, _ in wanted],
        lambda: all(cache.have_leaders(name, numbers) for name, numbers in wanted),
        SEED_TOPIC_TIMEOUT_MS,
    )


async def _create(services: Services, topic: NewTopic) -> int:
    """Create a topic unless it exists; return its number of partitions."""
    try:
        await services.topic_creator.create(topic)
    except ApiError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise UsageError(f"seed topic {topic.name}: {error}") from None
        found = await services.cluster_store.get_topic_assignments([topic.name])
        return len(found.get(topic.name, ()))
    return topic.partitions


def _leadable_partitions(services: Services, topic: str, count: int) -> list[int]:
    """Return the partitions that can have a leader: not damaged, nor possibly in an offline
    directory."""
    manager = services.log_manager
    if manager.offline_log_dirs:
        return []
    damaged = manager.damaged
    return [number for number in range(count) if TopicPartition(topic, number) not in damaged]
