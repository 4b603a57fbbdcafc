"""Workload: what clients do to a simulated cluster, and how they check its responses.

Producers send idempotent batches with acks=all, one at a time, each until it is acknowledged, or
several at a time (`pipelined_producer.py`). Some also send plain batches with acks=1, so that logs
have tails that need not survive. Readers follow every partition from its beginning. One member
commits offsets to a group and reads them back. The operator's actions are in `operator.py`.

The guarantees: an acknowledged batch is committed, at the offset in the response; a producer that
sends in order is never rejected; readers see what is committed and nothing else; committed offsets
of a group never go back. There are fewer where an operator allows unclean elections (`ledger.py`
keeps what was lost after it was acknowledged or read; a producer may have to start over), trims
logs at their start (a late reader continues where the log begins) or deletes a topic.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from kctl.client.retry import RetryPolicy
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.constants import ACKS_ALL, ACKS_LEADER
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kctl.runtime.future import sleep
from kctl.simulation.cluster import BROKER_PORT, SimCluster
from kctl.simulation.group_client import STALE_ANSWERS_MAX
from kctl.simulation.invariants import Invariants
from kctl.simulation.ledger import CommittedBatch, Key, Ledger, identities
from kctl.simulation.operator import Operator
from kctl.simulation.pipelined_producer import PipelinedProducer, committed_identities
from kctl.simulation.requests import batch_of, commit_request, fetch_request, produce_request
from kctl.simulation.runtime import SimEntropy

CALL_TIMEOUT_MS = 3_000
PAUSE_MS = 40
# A producer that gets one of these has lost its place, which must not happen.
REFUSALS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
GROUP = "group"


class Workload:
    """The clients of one simulation."""

    def __init__(
        self, cluster: SimCluster, invariants: Invariants, *, topics: int, rf: int,
        habits: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Create the clients; for `habits` see `Operator`."""
        self.cluster = cluster
        self.invariants = invariants
        self.is_over = False
        # No new work: only what was begun is finished.
        self.is_draining = False
        self.acknowledged = 0
        self.records_read = 0
        self.commits = 0
        # By pipelined producers.
        self.epochs_raised = 0
        self.unfinished: dict[str, str] = {}
        # Partition -> (its topic's incarnation, the offset that a reader has reached).
        self._read_to: dict[Key, tuple[int, int]] = {}
        self.operator = Operator(self, topics, rf, habits or {})

    def start(self, *, producers: int, plain_producers: int, pipelined_producers: int = 0) -> None:
        """Start all clients."""
        self.start_client("operator", self.operator.operate)
        for number in range(producers):
            self.start_client(f"producer-{number}", self._produce)
        for number in range(plain_producers):
            self.start_client(f"plain-{number}", self._produce_plain)
        for number in range(pipelined_producers):
            self.start_client(f"pipelined-{number}", self._produce_pipelined)
        self.start_client("reader", self._read)
        self.start_client("member", self._commit)

    @property
    def partitions(self) -> list[Key]:
        """Return the partitions of topics that keep all that was committed."""
        topics = self.operator.lasting
        return [key for topic in topics for key in self.invariants.partitions_of(topic)]

    def all_partitions(self) -> list[Key]:
        """Return the partitions of all topics, also of those that may be trimmed or deleted."""
        return self.partitions + self.operator.fleeting_partitions()

    def read_to(self, key: Key) -> int:
        """Return the offset that a reader has reached in the partition."""
        incarnation, offset = self._read_to.get(key, (0, 0))
        return offset if incarnation == self.invariants.incarnation(key[0]) else 0

    def start_client(self, name: str, work: Any) -> None:
        """Start a client process that does `work(name, router, entropy)`."""
        runtime = self.cluster.client_runtime(name)
        router = Router(
            runtime,
            [(host, BROKER_PORT) for host in self.cluster.hosts()],
            client_id=name,
            timeout_ms=CALL_TIMEOUT_MS,
            retry=RetryPolicy(),
            security=self.cluster.security_of(name),
        )
        entropy = self.cluster.entropy.split(f"{name}-plan")
        coroutine: Coroutine[Any, Any, None] = work(name, router, entropy)
        runtime.scheduler.call_soon(runtime.scheduler.spawn, coroutine, name)

    # --- producers ---------------------------------------------------------------------------

    async def _produce(self, name: str, router: Router, entropy: SimEntropy) -> None:
        scheduler = router.runtime.scheduler
        producer_id, epoch = await self.producer_id(router)
        sequences: dict[Key, int] = {}
        while not self.is_over and not self.is_draining:
            await sleep(scheduler, entropy.between(1, 2 * PAUSE_MS))
            partitions = self.all_partitions()
            if not partitions:
                continue
            key = entropy.choice(partitions)
            sequence = sequences.get(key, 0)
            count = entropy.between(1, 4)
            batch = batch_of(name, key, sequence, count, producer_id, epoch, entropy)
            self.unfinished[name] = f"produce to {key} sequence {sequence}"
            if await self._until_acknowledged(router, key, batch):
                sequences[key] = sequence + count
            elif not self.is_over:
                # Its place was lost with the topic, or by an unclean election.
                producer_id, epoch = await self.producer_id(router)
                sequences.clear()
            self.unfinished.pop(name, None)

    async def producer_id(self, router: Router) -> tuple[int, int]:
        """Return a new producer id and its epoch."""
        while True:
            try:
                answer = await router.send_to_any(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
            except KctlError:
                await sleep(router.runtime.scheduler, PAUSE_MS)
                continue
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            await sleep(router.runtime.scheduler, PAUSE_MS)

    async def _until_acknowledged(self, router: Router, key: Key, batch: bytes) -> bool:
        """Send a batch until it is acknowledged; False if it is lost as the operator intended."""
        incarnation = self.invariants.incarnation(key[0])
        while not self.is_over and self.invariants.incarnation(key[0]) == incarnation:
            try:
                answer = await router.send_to_leader(
                    TopicPartition(*key), produce_request(key, batch, acks=ACKS_ALL)
                )
            except KctlError:
                await sleep(router.runtime.scheduler, PAUSE_MS)
                continue
            found = answer.responses[0].partitions[0]
            code = found.error_code
            if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.acknowledged += 1
                if self._is_same(key, incarnation):
                    self._check_acknowledged(key, batch, found.base_offset)
                return True
            # A deposed leader that does not know it lacks the later batches.
            if code in REFUSALS and self.cluster.knows_leader(router, TopicPartition(*key)):
                if self._is_same(key, incarnation) and not self._may_be_lost(key):
                    self.cluster.fail(
                        f"a batch in order to {key} is rejected with {ErrorCode(code).name}"
                    )
                return False
            await sleep(router.runtime.scheduler, PAUSE_MS)
        return False

    def _is_same(self, key: Key, incarnation: int) -> bool:
        """Return whether the response was about the current topic, whose deletion is
        not requested.
        """
        topic = key[0]
        return self.invariants.is_alive(topic) and self.invariants.incarnation(topic) == incarnation

    def _may_be_lost(self, key: Key) -> bool:
        ledger = self.invariants.ledgers.get(key)
        return ledger is not None and ledger.was_elected_uncleanly

    def _check_acknowledged(self, key: Key, batch: bytes, base_offset: int) -> None:
        sent = identities(batch, 1 << 62)[0]
        ledger = self.invariants.ledgers.get(key) or Ledger()
        found = ledger.at(base_offset) if base_offset >= 0 else ledger.batches
        may_be_cut = base_offset < ledger.start_offset
        if any(_is_batch(sent, it) for it in found):
            return
        if may_be_cut or any(_is_batch(sent, it) for it in ledger.lost):
            return
        self.cluster.fail(
            f"{key}: producer {sent.producer_id} was acknowledged a batch with sequence "
            f"{sent.base_sequence} at {base_offset}, which is not committed"
        )

    async def _produce_pipelined(self, name: str, router: Router, entropy: SimEntropy) -> None:
        request = partial(produce_request, acks=ACKS_ALL)
        await PipelinedProducer(self, name, router, entropy, request).run()

    def check_stored(self, key: Key, batch: bytes, base_offset: int) -> None:
        """Check a batch that a pipelined producer takes for stored, at `base_offset` unless that is
        -1.
        """
        self.acknowledged += 1
        self._check_acknowledged(key, batch, base_offset)

    def refused_in_order(self, router: Router, key: Key, code: int) -> bool:
        """Return whether a current leader rejected a producer's next batch; report a violation
        unless records were lost by an unclean election.
        """
        if not self.cluster.knows_leader(router, TopicPartition(*key)):
            return False
        if not self._may_be_lost(key):
            self.cluster.fail(f"a batch in order to {key} is rejected with {ErrorCode(code).name}")
        return True

    def committed_identities(self, key: Key) -> set[tuple[int, int, int]] | None:
        """Return (producer id, epoch, first sequence) of what is committed in a partition; None if
        records may have been lost there.
        """
        ledger = self.invariants.ledgers.get(key)
        if ledger is None or ledger.was_elected_uncleanly:
            return None
        return committed_identities(ledger.batches)

    async def _produce_plain(self, name: str, router: Router, entropy: SimEntropy) -> None:
        """Produce with acks=1 and without retries."""
        count = 0
        while not self.is_over and not self.is_draining:
            await sleep(router.runtime.scheduler, entropy.between(1, 3 * PAUSE_MS))
            partitions = self.all_partitions()
            if not partitions:
                continue
            key = entropy.choice(partitions)
            count += 1
            batch = batch_of(name, key, count, entropy.between(1, 3), -1, -1, entropy)
            try:
                await router.send_to_leader(
                    TopicPartition(*key),
                    produce_request(key, batch, acks=ACKS_LEADER),
                    timeout_ms=300,
                )
            except KctlError:
                continue

    # --- readers -----------------------------------------------------------------------------

    async def _read(self, name: str, router: Router, entropy: SimEntropy) -> None:
        del name
        while not self.is_over:
            await sleep(router.runtime.scheduler, entropy.between(20, 3 * PAUSE_MS))
            for key in self.all_partitions():
                await self._read_once(router, key)

    async def _read_once(self, router: Router, key: Key) -> None:
        incarnation = self.invariants.incarnation(key[0])
        offset = self.read_to(key)
        try:
            answer = await router.send_to_leader(
                TopicPartition(*key), fetch_request(key, offset), timeout_ms=500
            )
        except KctlError:
            return
        ledger = self.invariants.ledgers.get(key)
        if ledger is None or not self._is_same(key, incarnation):
            return
        found = answer.responses[0].partition_responses[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A new leader's high watermark may be lower; its log must not be shorter. A deposed
            # leader that does not know it may have less.
            is_lost = offset >= ledger.log_start_offset and not ledger.was_elected_uncleanly
            if is_lost and self.cluster.knows_leader(router, TopicPartition(*key)):
                self.cluster.fail(f"{key}: offset {offset} was readable and is out of range")
            offset = max(ledger.log_start_offset, ledger.start_offset)
        elif not found.error_code and found.record_set:
            offset = self._take(key, ledger, offset, bytes(found.record_set))
        self._read_to[key] = incarnation, offset

    def _take(self, key: Key, ledger: Ledger, offset: int, data: bytes) -> int:
        for batch in identities(data, 1 << 62):
            if batch.last_offset < offset:
                continue
            if batch.base_offset != offset and not ledger.was_elected_uncleanly:
                self.cluster.fail(f"{key}: read {batch} where {offset} comes next")
            committed = ledger.at(batch.base_offset)
            if committed != [batch] and not _is_lost(ledger, batch):
                self.cluster.fail(f"{key}: read {batch}, committed is {[*map(str, committed)]}")
            self.records_read += batch.last_offset - batch.base_offset + 1
            offset = batch.last_offset + 1
        return offset

    # --- a group -----------------------------------------------------------------------------

    async def _commit(self, name: str, router: Router, entropy: SimEntropy) -> None:
        scheduler = router.runtime.scheduler
        last = -1
        number = 0
        # Commits that may still be in flight: they may be applied after later ones.
        unsure: set[int] = set()
        while not self.is_over and not self.is_draining:
            await sleep(scheduler, entropy.between(50, 400))
            if not self.partitions:
                continue
            key = self.partitions[0]
            if entropy.chance(400):
                await self._check_committed(router, key, last, unsure)
            number += 1
            self.unfinished[name] = f"commit {number}"
            while not self.is_over:
                try:
                    code = await _commit_offset(router, key, number)
                except KctlError:
                    code = -1
                    unsure.add(number)
                if not code:
                    last = number
                    self.commits += 1
                    break
                await sleep(scheduler, PAUSE_MS)
            self.unfinished.pop(name, None)

    async def _check_committed(self, router: Router, key: Key, last: int, unsure: set[int]) -> None:
        """Check the committed offset that a coordinator returns.

        A deposed coordinator that does not know it returns old offsets, as Apache Kafka 2.7.2's
        does; then the request is repeated.
        """
        found: int | None = None
        for _ in range(STALE_ANSWERS_MAX):
            try:
                found = await _committed_offset(router, key)
            except KctlError:
                return
            if found is None or found == last or found in unsure:
                return
            await sleep(router.runtime.scheduler, PAUSE_MS)
        self.cluster.fail(f"group: offset {last} was committed, but {found} was read")


def _is_batch(sent: CommittedBatch, found: CommittedBatch) -> bool:
    """Return whether a log has what was sent; the leader assigns offset and epoch."""
    return (
        found.producer_id == sent.producer_id
        and found.base_sequence == sent.base_sequence
        and found.crc == sent.crc
    )


def _is_lost(ledger: Ledger, batch: CommittedBatch) -> bool:
    """Return whether the batch was committed before an unclean election, and may be gone."""
    return batch in ledger.lost or (
        ledger.was_elected_uncleanly and batch.base_offset < ledger.start_offset
    )


# --- requests ------------------------------------------------------------------------------------


async def _commit_offset(router: Router, key: Key, offset: int) -> int:
    answer = await router.send_to_coordinator(GROUP, commit_request(GROUP, key, offset))
    return int(answer.topics[0].partitions[0].error_code)


async def _committed_offset(router: Router, key: Key) -> int | None:
    answer = await router.send_to_coordinator(
        GROUP,
        OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name=key[0], partition_indexes=[key[1]])],
        ),
    )
    if answer.error_code or answer.topics[0].partitions[0].error_code:
        return None
    return int(answer.topics[0].partitions[0].committed_offset)
