"""CoordinatorRuntime: executes the decisions of pure coordinators.

A coordinator is sharded by the partitions of its topic: the leader of a partition coordinates the
groups or transactional ids stored in it. When this broker is elected, a `ShardHost` reads the
partition from its start into a new shard; when it resigns, the shard is released. Elections and
resignations carry the partition's leader epoch, and those with an old epoch are ignored
(KAFKA-10614).

Kafka trunk: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime; Kafka 2.7:
kafka.coordinator.group.GroupMetadataManager, transaction.TransactionStateManager.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kctl.broker.coordinator.shard_host import HostState, PartitionWriter, Shard, ShardHost
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.runtime.runtime import Runtime

S = TypeVar("S", bound=Shard)

_HOST_ERRORS = {
    HostState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    HostState.FAILED: ErrorCode.NOT_COORDINATOR,
    HostState.CLOSED: ErrorCode.NOT_COORDINATOR,
}


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """How shards are loaded and written."""

    topic: str
    # Bytes read at a time while loading, in one turn of the loop.
    load_bytes_max: int
    # The codec of the batches, a number as in the batch attributes.
    compression_type: int = 0


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator's topic that this broker hosts."""

    def __init__(
        self,
        runtime: Runtime,
        writer: PartitionWriter,
        options: CoordinatorOptions,
        new_shard: Callable[[int], S],
        on_message: Callable[[ShardHost[S], Any], object] | None = None,
    ) -> None:
        """Create a runtime without shards.

        `new_shard` takes the leader epoch of the partition; `on_message` takes a shard's messages
        to other brokers.
        """
        self._runtime = runtime
        self._writer = writer
        self._options = options
        self._new_shard = new_shard
        self._on_message = on_message
        # Partition -> its host, in the order of election.
        self.hosts: dict[int, ShardHost[S]] = {}
        # The newest leader epoch seen, also of partitions that are no longer led here.
        self._epochs: dict[int, int] = {}

    def elect(self, partition: int, epoch: int) -> None:
        """Load the shard of a partition that this broker leads in `epoch`."""
        if self._epochs.get(partition, -1) >= epoch:
            return
        self._epochs[partition] = epoch
        self._close(partition)
        host = ShardHost(
            self._runtime,
            self._writer,
            TopicPartition(self._options.topic, partition),
            self._new_shard(epoch),
            load_bytes_max=self._options.load_bytes_max,
            compression_type=self._options.compression_type,
            on_message=self._on_message,
        )
        self.hosts[partition] = host
        host.load()

    def resign(self, partition: int, epoch: int | None) -> None:
        """Release the shard of a partition that another broker leads in `epoch`; None: no replica
        is here."""
        if epoch is not None:
            if self._epochs.get(partition, -1) > epoch:
                return
            self._epochs[partition] = epoch
        self._close(partition)

    def close(self) -> None:
        """Release every shard because the broker stops."""
        for partition in list(self.hosts):
            self._close(partition)

    def error_of(self, partition: int) -> int:
        """Return 0 if the partition's shard can serve requests, else the error code."""
        host = self.hosts.get(partition)
        if host is None:
            return int(ErrorCode.NOT_COORDINATOR)
        if host.state is HostState.ACTIVE:
            return 0
        return int(_HOST_ERRORS[host.state])

    @property
    def is_loading(self) -> bool:
        """Return whether a shard is still loading."""
        return any(host.state is HostState.LOADING for host in self.hosts.values())

    def active_hosts(self) -> list[ShardHost[S]]:
        """Return the hosts whose shard can serve requests."""
        return [host for host in self.hosts.values() if host.state is HostState.ACTIVE]

    def _close(self, partition: int) -> None:
        host = self.hosts.pop(partition, None)
        if host is not None:
            host.close()


__all__ = ["CoordinatorOptions", "CoordinatorRuntime", "PartitionWriter"]
