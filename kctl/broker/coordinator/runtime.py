"""CoordinatorRuntime: carries out what pure coordinators decide.

A coordinator is sharded by the partitions of its topic: whoever leads a partition coordinates what
is kept in it. When this broker is elected, a `ShardHost` reads the partition from its start into a
new shard; when it resigns, the shard goes. Elections and resignations carry the partition's leader
epoch, and one that comes late is no news (KAFKA-10614).

Kafka trunk: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime; Kafka 2.7:
kafka.coordinator.group.GroupMetadataManager, transaction.TransactionStateManager.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kctl.broker.coordinator.shard_host import HostState, PartitionWriter, Shard, ShardHost
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
    # Bytes read at a time while loading; one time takes one turn of the loop.
    load_bytes_max: int
    # The codec of the batches, a number as in their attributes.
    compression_type: int = 0


class CoordinatorRuntime(Generic[S]):
    """The shards that this broker hosts of one coordinator's topic."""

    def __init__(
        self,
        runtime: Runtime,
        writer: PartitionWriter,
        options: CoordinatorOptions,
        new_shard: Callable[[int], S],
        on_message: Callable[[ShardHost[S], Any], object] | None = None,
    ) -> None:
        """`new_shard` is given the leader epoch of the partition; `on_message` what a shard has
        to say to others."""
        self._runtime = runtime
        self._writer = writer
        self._options = options
        self._new_shard = new_shard
        self._on_message = on_message
        # Partition -> its host, in the order of their elections.
        self.hosts: dict[int, ShardHost[S]] = {}
        # The newest leader epoch heard of, also of partitions that are led no more.
        self._epochs: dict[int, int] = {}

    def elect(self, partition: int, epoch: int) -> None:
        """This broker leads the partition, in that leader epoch."""
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
        """Somebody else leads it, in that epoch; None: there is no replica here any more."""
        if epoch is not None:
            if self._epochs.get(partition, -1) > epoch:
                return
            self._epochs[partition] = epoch
        self._close(partition)

    def close(self) -> None:
        """The broker stops: let every shard go."""
        for partition in list(self.hosts):
            self._close(partition)

    def error_of(self, partition: int) -> int:
        """0 if the partition's shard can be asked, else what to tell who asks."""
        host = self.hosts.get(partition)
        if host is None:
            return int(ErrorCode.NOT_COORDINATOR)
        if host.state is HostState.ACTIVE:
            return 0
        return int(_HOST_ERRORS[host.state])

    @property
    def is_loading(self) -> bool:
        """Whether some shard is not there yet."""
        return any(host.state is HostState.LOADING for host in self.hosts.values())

    def active_hosts(self) -> list[ShardHost[S]]:
        """The hosts whose shard can be asked."""
        return [host for host in self.hosts.values() if host.state is HostState.ACTIVE]

    def _close(self, partition: int) -> None:
        host = self.hosts.pop(partition, None)
        if host is not None:
            host.close()


__all__ = ["CoordinatorOptions", "CoordinatorRuntime", "PartitionWriter"]
