"""TransactionalWorkload: exactly-once clients in a simulated cluster, judged by the queue checker.

Producers write transactions to topic `input` and commit or abort them. Copiers copy what is
committed there to `output`, with their group's offsets in the same transactions: as members of a
group (KIP-447), or in turns under one transactional id. Members of a plain group read `output` and
commit. Readers of both isolation levels follow both topics from their beginning, and at the end one
reads `input` again. An operator moves partitions, including those of the coordinators.

Instances die at any point and leave requests in flight; they are replaced while they still run, and
become zombies; they pause past their transaction's or session's timeout. What a producer knows of a
write is true at every moment: ABORTED until it requests the commit, UNKNOWN from then on, OK when
the coordinator has acknowledged it.

At the end: no anomaly in either topic's history; the committed part of `output` is that of `input`,
once and in order; nothing is open, and every coordinator's state equals what its log says.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import INTERNAL_TOPICS
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kctl.runtime.future import Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.simulation.client_instance import Instance
from kctl.simulation.cluster import SimCluster
from kctl.simulation.group_client import GroupClient, GroupRecord
from kctl.simulation.invariants import Invariants, partition_of
from kctl.simulation.queue_checker import History, Outcome, Reader, Seen, Write, check
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.transaction_invariants import TransactionInvariants
from kctl.simulation.transactional_client import (
    FencedError,
    MustAbortError,
    TransactionalClient,
)

INPUT, OUTPUT = "input", "output"
COPIERS, MEMBERS = "copiers", "members"
PAUSE_MS = 40
WRITES_MAX = 6
# How long an instance lives before it crashes or is replaced.
LIFE_MS_MIN, LIFE_MS_MAX = 400, 5_000
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "500",
}


@dataclass(slots=True)
class TransactionPlan:
    """What a seed drew of it; chances in thousandths."""

    partitions: int = 2
    producers: int = 2
    copiers: int = 2
    members: int = 2
    # Copiers are members of a group, or replace each other under one transactional id.
    are_copiers_members: bool = True
    has_static_members: bool = False
    timeout_ms: int = 3_000
    # Chances that an instance dies, or is replaced while it runs.
    crash: int = 300
    zombie: int = 300
    # In a transaction: pause for longer than its timeout; abort it; take the next epoch.
    hang: int = 20
    abort: int = 300
    recover: int = 100
    # A producer's transactional id is never taken over, so its open transactions time out.
    orphan: int = 0

    @classmethod
    def drawn(cls, entropy: SimEntropy) -> "TransactionPlan":
        """Return the plan that one seed draws."""
        return cls(
            partitions=entropy.between(1, 3),
            producers=entropy.between(1, 3),
            copiers=entropy.between(1, 3),
            members=entropy.between(0, 3),
            are_copiers_members=entropy.chance(700),
            has_static_members=entropy.chance(300),
            timeout_ms=entropy.choice([1_000, 3_000, 6_000]),
            crash=entropy.choice([0, 300, 600]),
            zombie=entropy.choice([0, 100, 400]),
            hang=entropy.choice([0, 20, 100]),
            abort=entropy.choice([100, 300, 500]),
            recover=entropy.choice([0, 100, 300]),
            orphan=entropy.choice([0, 200, 500]),
        )


Work = Callable[[Instance, str], Coroutine[Any, Any, None]]


class TransactionalWorkload:
    """The transactional clients of one simulation; `plan` says which take part."""

    def __init__(self, cluster: SimCluster, invariants: Invariants, plan: TransactionPlan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.invariants = TransactionInvariants(cluster, invariants)
        self._partition_invariants = invariants
        self.is_over = False
        self.is_draining = False
        self.histories = {INPUT: History(), OUTPUT: History()}
        self.groups = {COPIERS: GroupRecord(), MEMBERS: GroupRecord()}
        # Transactional id -> its newest producer id and epoch.
        self.newest: dict[str, tuple[int, int]] = {}
        # Unfinished client -> its work.
        self.unfinished: dict[str, str] = {}
        self.hosts: list[str] = []
        self.counters = dict.fromkeys(
            ("committed", "aborted", "copied", "fenced", "crashes", "zombies", "read"), 0
        )
        self._runtimes: dict[str, Runtime] = {}
        self._positions: list[tuple[str, str, dict[int, int]]] = []

    def start(self) -> None:
        """Start all clients."""
        plan = self.plan
        self._spawn("txn-operator", self._operate)
        for number in range(plan.producers):
            self._supervise(f"txn-producer-{number}", self._produce)
        copy = self._copy_as_member if plan.are_copiers_members else self._copy_alone
        for number in range(plan.copiers if plan.are_copiers_members else 1):
            self._supervise(f"copier-{number}", copy)
        for number in range(plan.members):
            self._supervise(f"member-{number}", self._consume)
        for topic in (INPUT, OUTPUT):
            for is_committed in (True, False):
                kind = "committed" if is_committed else "all"
                self._read(f"{topic}-{kind}", topic, is_committed=is_committed)

    def runtime(self, host: str) -> Runtime:
        """Return the runtime of machine `host`."""
        if host not in self._runtimes:
            self._runtimes[host] = self.cluster.client_runtime(host)
            self.hosts.append(host)
        return self._runtimes[host]

    def totals(self) -> dict[str, int]:
        """Return counts of what was done."""
        generations = sum(record.generations for record in self.groups.values())
        done = {f"transactions_{name}": count for name, count in self.counters.items()}
        return {**done, "generations": generations}

    def drain(self) -> None:
        """Begin nothing new; copy what is there, and read `input` again."""
        self.is_draining = True
        self._read("late", INPUT, is_committed=True)

    # --- processes ---------------------------------------------------------------------------

    def _spawn(self, name: str, work: Work) -> tuple[Instance, Task[None]]:
        host = name.partition("/")[0]
        instance = Instance(self.cluster, self.runtime(host), name)
        return instance, instance.runtime.scheduler.spawn(work(instance, host), name)

    def _supervise(self, host: str, work: Work) -> None:
        scheduler = self.runtime(host).scheduler
        scheduler.spawn(self._supervisor(host, work), f"supervisor of {host}")

    async def _supervisor(self, host: str, work: Work) -> None:
        """Run one instance after another, and sometimes two at once."""
        scheduler = self.runtime(host).scheduler
        entropy = self.cluster.entropy.split(f"{host}-life")
        number = 0
        is_needed = True
        while is_needed and not self.is_over:
            number += 1
            instance, task = self._spawn(f"{host}/{number}", work)
            left_ms = entropy.between(LIFE_MS_MIN, LIFE_MS_MAX)
            while not task.done and not self.is_over:
                await sleep(scheduler, PAUSE_MS)
                left_ms -= PAUSE_MS
                if left_ms > 0 or self.is_draining:
                    continue
                left_ms = entropy.between(LIFE_MS_MIN, LIFE_MS_MAX)
                if entropy.chance(self.plan.crash):
                    self.counters["crashes"] += 1
                    self._kill(instance, task)
                    break
                if entropy.chance(self.plan.zombie):
                    self.counters["zombies"] += 1
                    self.cluster.record_event(instance.name, "replaced", "")
                    break
            # Copiers must come back until all is copied.
            is_needed = not self.is_draining or (work != self._produce and not task.done)
            is_needed = is_needed or (host.startswith("copier") and not self._is_copied())

    def _kill(self, instance: Instance, task: Task[None]) -> None:
        self.cluster.record_event(instance.name, "client_killed", "")
        task.cancel()
        instance.close()
        self.unfinished.pop(instance.name, None)

    # --- producers ---------------------------------------------------------------------------

    async def _produce(self, instance: Instance, host: str) -> None:
        name = instance.name if instance.entropy.chance(self.plan.orphan) else host
        producer = instance.producer(name, self.newest, self.plan.timeout_ms)
        turn = 0
        try:
            await producer.begin()
            while not self.is_draining:
                turn += 1
                self.unfinished[instance.name] = f"transaction {turn}"
                await self._transact(instance, producer, f"{instance.name} transaction {turn}")
                self.unfinished.pop(instance.name, None)
                await instance.sleep(instance.entropy.between(1, PAUSE_MS))
        except FencedError:
            self._end_fenced(instance)

    def _end_fenced(self, instance: Instance) -> None:
        self.counters["fenced"] += 1
        self.cluster.record_event(instance.name, "fenced", "")
        self.unfinished.pop(instance.name, None)
        instance.close()

    async def _transact(
        self, instance: Instance, producer: TransactionalClient, transaction: str
    ) -> None:
        entropy, plan = instance.entropy, self.plan
        writes: list[Write] = []
        try:
            for _ in range(entropy.between(1, 3)):
                partition = TopicPartition(INPUT, entropy.random_below(plan.partitions))
                await producer.add_partitions([partition])
                some = [
                    instance.write(self.histories[INPUT], "", partition.partition, transaction)
                    for _ in range(entropy.between(1, WRITES_MAX))
                ]
                writes += some
                await producer.produce(partition, [write.value for write in some])
                if entropy.chance(plan.hang):
                    await instance.sleep(entropy.random_below(2 * plan.timeout_ms))
            if not entropy.chance(plan.abort):
                await self._commit(producer, writes)
                return
        except MustAbortError:
            await self._abort(producer, is_error=True)
            return
        await self._abort(producer, is_error=entropy.chance(plan.recover))

    async def _commit(self, producer: TransactionalClient, writes: list[Write]) -> None:
        for write in writes:
            write.outcome = Outcome.UNKNOWN
        await producer.end(is_commit=True)
        for write in writes:
            write.outcome = Outcome.OK
        self.counters["committed"] += 1

    async def _abort(self, producer: TransactionalClient, *, is_error: bool) -> None:
        await producer.end(is_commit=False)
        self.counters["aborted"] += 1
        if is_error:
            await producer.recover()

    # --- copiers -----------------------------------------------------------------------------

    async def _copy_as_member(self, instance: Instance, host: str) -> None:
        """Copy in turns: keep the place in the group, copy a little."""
        producer = instance.producer(f"id-of-{host}", self.newest, self.plan.timeout_ms)
        member = self._member(instance, COPIERS, host, is_static=self.plan.has_static_members)
        router = instance.router()
        owned: list[TopicPartition] = []
        positions: dict[TopicPartition, int] | None = None
        try:
            await producer.begin()
            while not self._is_copied():
                if member.must_join:
                    positions = None
                    owned = await member.join()
                    if member.is_fenced:
                        raise FencedError
                if positions is None:
                    positions = await member.committed(owned) if owned else {}
                elif not await self._copy(instance, producer, member, router, positions):
                    positions = None
                await member.heartbeat()
                await instance.sleep(instance.entropy.between(1, PAUSE_MS))
            await member.leave()
        except FencedError:
            self._end_fenced(instance)

    async def _copy_alone(self, instance: Instance, host: str) -> None:
        """Copy as before KIP-447: the owner of the transactional id owns the partitions."""
        producer = instance.producer(f"id-of-{host}", self.newest, self.plan.timeout_ms)
        offsets = self._member(instance, COPIERS, host, is_static=False)
        router = instance.router()
        everything = [TopicPartition(INPUT, number) for number in range(self.plan.partitions)]
        positions: dict[TopicPartition, int] | None = None
        try:
            await producer.begin()
            while not self._is_copied():
                if positions is None:
                    positions = await offsets.committed(everything)
                elif not await self._copy(instance, producer, None, router, positions):
                    positions = None
                await instance.sleep(instance.entropy.between(1, PAUSE_MS))
        except FencedError:
            self._end_fenced(instance)

    async def _copy(
        self,
        instance: Instance,
        producer: TransactionalClient,
        member: GroupClient | None,
        router: Router,
        positions: dict[TopicPartition, int],
    ) -> bool:
        """Copy in one transaction; return False if the caller must restart at the committed
        offsets.
        """
        if not positions:
            return True
        source = instance.entropy.choice(sorted(positions))
        found = await instance.fetch(router, source, positions[source], is_committed=True)
        if found is None or found.end_offset == positions[source]:
            return True
        end = found.end_offset
        try:
            writes = await self._write_copies(instance, producer, source, found.seen)
            await self._commit_offsets(producer, member, {source: end})
            if instance.entropy.chance(self.plan.abort // 2):
                raise MustAbortError
            await self._commit(producer, writes)
        except MustAbortError:
            await self._abort(producer, is_error=True)
            return False
        self.groups[COPIERS].note_committed({source: end})
        self.counters["copied"] += len(writes)
        positions[source] = end
        if instance.entropy.chance(self.plan.hang):
            await instance.sleep(instance.entropy.random_below(2 * self.plan.timeout_ms))
        return True

    async def _write_copies(
        self,
        instance: Instance,
        producer: TransactionalClient,
        source: TopicPartition,
        seen: list[Seen],
    ) -> list[Write]:
        target = TopicPartition(OUTPUT, source.partition)
        transaction = f"{instance.name} after {instance.number}"
        writes = [
            instance.write(self.histories[OUTPUT], it.value, target.partition, transaction)
            for it in seen
        ]
        if writes:
            await producer.add_partitions([target])
            await producer.produce(target, [write.value for write in writes])
        if instance.entropy.chance(self.plan.hang):
            await instance.sleep(instance.entropy.random_below(2 * self.plan.timeout_ms))
        return writes

    async def _commit_offsets(
        self,
        producer: TransactionalClient,
        member: GroupClient | None,
        offsets: dict[TopicPartition, int],
    ) -> None:
        record = self.groups[COPIERS]
        await producer.add_offsets(COPIERS)
        record.note_attempt(offsets)
        newest = record.newest_generation
        if member is None:
            await producer.commit_offsets(COPIERS, None, offsets)
        else:
            await producer.commit_offsets(COPIERS, member.place, offsets)
            member.check_generation(newest)

    def _is_copied(self) -> bool:
        """Return whether as many committed copies were read as there are records to copy."""
        if self.is_over:
            return True
        if not self.is_draining or any("producer" in name for name in self.unfinished):
            return False
        return not any(self._unread()) and self._read_count(INPUT) == self._read_count(OUTPUT)

    def _read_count(self, topic: str) -> int:
        return len(self.histories[topic].readers[0].seen)

    def _member(self, instance: Instance, group: str, host: str, *, is_static: bool) -> GroupClient:
        topic = INPUT if group == COPIERS else OUTPUT
        static_id = f"{host}-static" if is_static else None
        return instance.member(group, self.groups[group], topic, self.plan.partitions, static_id)

    # --- members of a group ------------------------------------------------------------------

    async def _consume(self, instance: Instance, host: str) -> None:
        """Read `output` and commit outside transactions, now and then too late."""
        is_static = self.plan.has_static_members and instance.entropy.chance(500)
        member = self._member(instance, MEMBERS, host, is_static=is_static)
        router = instance.router()
        owned: list[TopicPartition] = []
        positions: dict[TopicPartition, int] | None = None
        while not self.is_draining and not member.is_fenced:
            if member.must_join:
                positions = None
                owned = await member.join()
            if positions is None:
                positions = await member.committed(owned) if owned else {}
            for partition, position in sorted((positions or {}).items()):
                found = await instance.fetch(router, partition, position, is_committed=True)
                if found is not None and positions is not None and found.end_offset > position:
                    positions[partition] = found.end_offset
                    if instance.entropy.chance(self.plan.hang):
                        await instance.sleep(instance.entropy.random_below(4_000))
                    await member.commit({partition: found.end_offset})
            await member.heartbeat()
            await instance.sleep(instance.entropy.between(1, 3 * PAUSE_MS))
        await member.leave()
        instance.close()

    # --- readers -----------------------------------------------------------------------------

    def _read(self, name: str, topic: str, *, is_committed: bool) -> None:
        reader = Reader(name, is_committed_only=is_committed)
        self.histories[topic].readers.append(reader)
        positions = dict.fromkeys(range(self.plan.partitions), 0)
        self._positions.append((name, topic, positions))

        async def read(instance: Instance, _host: str) -> None:
            router = instance.router()
            while not self.is_over:
                await instance.sleep(instance.entropy.between(20, 3 * PAUSE_MS))
                for number in positions:
                    partition = TopicPartition(topic, number)
                    found = await instance.fetch(
                        router, partition, positions[number], is_committed=is_committed
                    )
                    if found is not None:
                        reader.seen += found.seen
                        self.counters["read"] += len(found.seen)
                        positions[number] = found.end_offset

        self._spawn(f"reader-{name}", read)

    # --- an operator -------------------------------------------------------------------------

    async def _operate(self, instance: Instance, _host: str) -> None:
        router, entropy = instance.router(), instance.entropy
        for topic in (INPUT, OUTPUT):
            await self._create(instance, router, topic)
        while not self.is_draining:
            await instance.sleep(entropy.between(500, 4_000))
            topic = entropy.choice((INPUT, OUTPUT, *INTERNAL_TOPICS))
            try:
                if entropy.chance(400):
                    await self._reassign(router, entropy, topic)
                else:
                    await self._elect(router, topic)
            except KctlError:
                continue

    async def _create(self, instance: Instance, router: Router, topic: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic, num_partitions=self.plan.partitions, replication_factor=3
                )
            ],
            timeout_ms=1_000,
        )
        while not self.is_over and not self._partition_invariants.knows(topic):
            try:
                await router.send_to_controller(request)
            except KctlError:
                await instance.sleep(PAUSE_MS)

    async def _reassign(self, router: Router, entropy: SimEntropy, topic: str) -> None:
        target = entropy.sample(sorted(self.cluster.brokers), 3)
        self.cluster.record_event("txn-operator", "reassign", f"{topic}-0 {target}")
        moved = ReassignablePartition(partition_index=0, replicas=target)
        await router.send_to_controller(
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=1_000
            )
        )

    async def _elect(self, router: Router, topic: str) -> None:
        self.cluster.record_event("txn-operator", "elect", f"{topic}-0")
        await router.send_to_controller(
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic=topic, partition_id=[0])],
                timeout_ms=1_000,
            )
        )

    # --- the end -----------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Yield why the clients are not at rest yet."""
        for name, what in self.unfinished.items():
            yield f"unfinished: {name} {what}"
        yield from self._unread()
        if self._read_count(INPUT) > self._read_count(OUTPUT):
            yield f"{self._read_count(OUTPUT)} of {self._read_count(INPUT)} are copied"
        yield from self.invariants.problems()

    def _unread(self) -> Iterator[str]:
        for name, topic, positions in self._positions:
            for number, position in positions.items():
                key = (topic, number)
                leader_id = self._partition_invariants.leaders.get(key, -1)
                broker = self.cluster.brokers.get(leader_id)
                partition = None if broker is None else partition_of(broker, key)
                if partition is None or partition.log is None:
                    yield f"{topic}-{number} has no leader"
                elif position < partition.log.log_end_offset:
                    end = partition.log.log_end_offset
                    yield f"{name} has read {topic}-{number} up to {position} of {end}"

    def check(self) -> None:
        """Report anomalies as violations, when all is at rest."""
        for topic, history in self.histories.items():
            for number in range(self.plan.partitions):
                everything, committed = self.invariants.read(TopicPartition(topic, number))
                history.last_of_all.seen += everything
                history.last_committed.seen += committed
            for anomaly in check(history):
                self.cluster.fail(f"{topic}: {anomaly}")
        for number in range(self.plan.partitions):
            self._check_copies(number)
        self.invariants.check_coordinators()

    def _check_copies(self, number: int) -> None:
        ours, theirs = (
            [it.value for it in self.histories[topic].last_committed.seen if it.partition == number]
            for topic in (INPUT, OUTPUT)
        )
        copies = [value.rpartition("|")[0] for value in theirs]
        if copies != ours:
            place = next(
                (n for n, pair in enumerate(zip(ours, copies, strict=False)) if pair[0] != pair[1]),
                min(len(ours), len(copies)),
            )
            self.cluster.fail(
                f"{OUTPUT}-{number}: {len(copies)} copies of {len(ours)}; from number {place} on "
                f"{theirs[place : place + 2]} for {ours[place : place + 2]}"
            )
