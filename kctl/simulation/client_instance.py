"""Instance: one process of a transactional client in the simulation, and what it reads.

An instance has its own connections, a name that is part of every value that it writes, and a number
for each write. A machine starts several instances, in sequence or at the same time.
"""

from kctl.client.consumer import AbortedFilter
from kctl.client.retry import RetryPolicy
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.memory_records import batches
from kctl.runtime.future import sleep
from kctl.runtime.runtime import Runtime
from kctl.simulation.cluster import BROKER_PORT, SimCluster
from kctl.simulation.group_client import GroupClient, GroupRecord
from kctl.simulation.queue_checker import History, Outcome, Seen, Write
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.transactional_client import TransactionalClient

CALL_TIMEOUT_MS = 3_000
FETCH_TIMEOUT_MS = 500
FETCH_BYTES = 4_000


@dataclass(slots=True)
class Batch:
    """Records that a consumer received, and the offset at which it continues."""

    seen: list[Seen]
    end_offset: int


class Instance:
    """See the module."""

    def __init__(self, cluster: SimCluster, runtime: Runtime, name: str) -> None:
        self.cluster = cluster
        self.runtime = runtime
        self.name = name
        self.entropy: SimEntropy = cluster.entropy.split(name)
        # Writes so far.
        self.number = 0
        self._routers: list[Router] = []

    def router(self) -> Router:
        """Return a router with its own connections: a producer and a consumer do not
        share theirs.
        """
        router = Router(
            self.runtime,
            [(host, BROKER_PORT) for host in self.cluster.hosts()],
            client_id=self.name,
            timeout_ms=CALL_TIMEOUT_MS,
            retry=RetryPolicy(),
            security=self.cluster.security_of(self.name),
        )
        self._routers.append(router)
        return router

    def producer(
        self, transactional_id: str, newest: dict[str, tuple[int, int]], timeout_ms: int
    ) -> TransactionalClient:
        """Return a producer in this process."""
        return TransactionalClient(
            self.cluster, self.router(), self.entropy, transactional_id, newest,
            timeout_ms=timeout_ms,
        )  # fmt: skip

    def member(
        self, group: str, record: GroupRecord, topic: str, partitions: int, static_id: str | None
    ) -> GroupClient:
        """Return a consumer of one topic in this process."""
        return GroupClient(
            self.cluster, self.router(), group, record, {topic: partitions}, static_id
        )

    def write(self, history: History, value: str, partition: int, transaction: str) -> Write:
        """Return a new write of this process; its commit has not been requested yet."""
        self.number += 1
        value = f"{value}|{self.name}:{self.number}"
        write = Write(value, self.name, self.number, partition, Outcome.ABORTED, transaction)
        history.writes[value] = write
        return write

    async def fetch(
        self, router: Router, partition: TopicPartition, offset: int, *, is_committed: bool
    ) -> Batch | None:
        """Fetch what a consumer of that isolation level receives from `offset` on; None after an
        error.
        """
        asked = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=int(is_committed),
            topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
        )
        try:
            answer = await router.send_to_leader(partition, request, timeout_ms=FETCH_TIMEOUT_MS)
        except KctlError:
            return None
        found = answer.responses[0].partition_responses[0]
        # A deposed leader that does not know it yet may have less.
        is_less = found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        if is_less and self.cluster.knows_leader(router, partition):
            self.cluster.fail(f"{partition}: offset {offset} was readable and is out of range")
        if found.error_code or not found.record_set:
            return None
        is_hidden = AbortedFilter(found)
        seen = []
        for batch in batches(found.record_set):
            if not is_hidden(batch):
                seen += [
                    Seen(partition.partition, record.offset, (record.value or b"").decode())
                    for record in batch.records()
                    if record.offset >= offset
                ]
            offset = max(offset, batch.next_offset)
        return Batch(seen, offset)

    async def sleep(self, delay_ms: int) -> None:
        """Wait for `delay_ms` of virtual time."""
        await sleep(self.runtime.scheduler, delay_ms)

    def close(self) -> None:
        """Close its connections; callbacks of requests in flight do not run."""
        for router in self._routers:
            router.close()
