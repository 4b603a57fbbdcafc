"""Operator: creates, changes and deletes the topics of a simulated cluster.

Lasting topics keep all that was committed. The operator moves their partitions, requests elections
of preferred leaders and adds partitions. There may also be a fleeting topic, which is deleted and
created again under the same name, elected uncleanly, or trimmed at its start by retention,
depending on the habits that the seed drew.

At the end the operator tidies up: every topic exists, and nothing is throttled.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from kctl.admin.replication_throttle import FOLLOWER_RATE, LEADER_RATE, REPLICAS
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kctl.protocol.messages.create_topics import (
    CreatableTopic,
    CreateableTopicConfig,
    CreateTopicsRequest,
)
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kctl.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.runtime.future import sleep
from kctl.simulation.cluster import LOG_DIRECTORIES, Life, SimCluster
from kctl.simulation.invariants import Invariants
from kctl.simulation.ledger import Key
from kctl.simulation.runtime import SimEntropy

PAUSE_MS = 40
REQUEST_TIMEOUT_MS = 1_000
PARTITIONS_MAX = 4
FLEETING = "fleeting"
# What an operator may do, and what makes a topic fleeting.
HABITS = ("delete", "elect_uncleanly", "cut", "move_directory", "grow", "configure", "throttle")
HABITS_OF_FLEETING = ("delete", "elect_uncleanly", "cut")
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_UNCLEAN = 1
_RATES = (LEADER_RATE, FOLLOWER_RATE)

Deed = Callable[[Router, SimEntropy], Coroutine[Any, Any, None]]


class OperatedWorkload(Protocol):
    """The part of a Workload that its operator uses."""

    cluster: SimCluster
    invariants: Invariants
    is_over: bool
    is_draining: bool
    # Unfinished work: a name -> a sentence for the report.
    unfinished: dict[str, str]

    def all_partitions(self) -> list[Key]:
        """Return the partitions of all topics."""


class Operator:
    """Operates a Workload's topics; `habits` are the weights of its actions besides moves and
    elections.
    """

    def __init__(
        self, workload: OperatedWorkload, topics: int, rf: int, habits: dict[str, int]
    ) -> None:
        self.lasting = [f"topic-{number}" for number in range(topics)]
        self.fleeting = [FLEETING] if any(map(habits.get, HABITS_OF_FLEETING)) else []
        self._workload = workload
        self._cluster = workload.cluster
        self._invariants = workload.invariants
        self._rf = rf
        self._habits = habits
        if habits.get("elect_uncleanly"):
            self._invariants.unclean_topics.add(FLEETING)
        self._is_throttled = False
        deeds: dict[str, Deed] = {
            "reassign": self._reassign,
            "elect": self._elect,
            "delete": self._delete,
            "elect_uncleanly": self._elect_uncleanly,
            "move_directory": self._move_directory,
            "grow": self._grow,
            "configure": self._configure,
            "throttle": self._throttle,
        }
        # Action -> how often it was done.
        self.counters = dict.fromkeys(deeds, 0)
        weights = {"reassign": 6, "elect": 4, **habits}
        self._deeds = [
            (name, deed) for name, deed in deeds.items() for _ in range(weights.get(name, 0))
        ]

    def fleeting_partitions(self) -> list[Key]:
        """Return the partitions whose records may be given up."""
        return [key for topic in self.fleeting for key in self._invariants.partitions_of(topic)]

    async def operate(self, name: str, router: Router, entropy: SimEntropy) -> None:
        """Run all actions of the operator."""
        del name
        workload, scheduler = self._workload, router.runtime.scheduler
        for topic in [*self.fleeting, *self.lasting]:
            await self._create(router, topic, entropy)
            await sleep(scheduler, entropy.between(0, 2_000))
        while not workload.is_over and not workload.is_draining:
            await sleep(scheduler, entropy.between(100, 1_200))
            name, deed = entropy.choice(self._deeds)
            if not workload.all_partitions():
                continue
            self.counters[name] += 1
            try:
                await deed(router, entropy)
            except KctlError:
                continue
        await self._tidy_up(router, entropy)

    async def _tidy_up(self, router: Router, entropy: SimEntropy) -> None:
        workload = self._workload
        while not workload.is_over:
            if self._is_throttled:
                workload.unfinished["throttle"] = "throttles are not removed yet"
                with suppress(KctlError):
                    await self._set_throttle(router, None)
            else:
                workload.unfinished.pop("throttle", None)
            for topic in [*self.fleeting, *self.lasting]:
                # A delayed request to delete may have been carried out, too.
                if not self._invariants.incarnation(topic):
                    await self._create(router, topic, entropy)
            await sleep(router.runtime.scheduler, 5 * PAUSE_MS)

    def _record_deed(self, deed: str, text: str) -> None:
        self._cluster.record_event("operator", deed, text)

    def _some_partition(self, entropy: SimEntropy) -> Key:
        return entropy.choice(self._workload.all_partitions())

    # --- topics ------------------------------------------------------------------------------

    async def _create(self, router: Router, topic: str, entropy: SimEntropy) -> None:
        """Create a topic, retrying until it exists."""
        invariants, workload = self._invariants, self._workload
        count = entropy.between(1, 3)
        configs = self._first_configs(topic, entropy)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=count,
                    replication_factor=self._rf,
                    configs=[
                        CreateableTopicConfig(name=name, value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        workload.unfinished[f"create {topic}"] = f"topic {topic} is not created yet"
        # A broker also reports that a topic exists while its creation or deletion is in progress.
        while not workload.is_over and not invariants.incarnation(topic):
            self._remove_remains(topic)
            with suppress(KctlError):
                await router.send_to_controller(request)
            await sleep(router.runtime.scheduler, PAUSE_MS)
        workload.unfinished.pop(f"create {topic}", None)

    def _first_configs(self, topic: str, entropy: SimEntropy) -> dict[str, str]:
        configs: dict[str, str] = {}
        if topic in self.fleeting:
            if self._habits.get("cut"):
                configs |= {"segment.bytes": "1500", "retention.bytes": "3000"}
            if self._habits.get("elect_uncleanly") and entropy.chance(500):
                configs["unclean.leader.election.enable"] = "true"
        return configs

    async def _delete(self, router: Router, entropy: SimEntropy) -> None:
        """Delete the fleeting topic and create it again, while everything else continues."""
        if f"replace {FLEETING}" not in self._workload.unfinished:
            self._record_deed("delete", FLEETING)
            self._workload.unfinished[f"replace {FLEETING}"] = f"{FLEETING} is not replaced yet"
            router.runtime.scheduler.spawn(self._replace(router, entropy), "replace")

    async def _replace(self, router: Router, entropy: SimEntropy) -> None:
        invariants, workload = self._invariants, self._workload
        request = DeleteTopicsRequest(topic_names=[FLEETING], timeout_ms=REQUEST_TIMEOUT_MS)
        old = invariants.incarnation(FLEETING)
        while not workload.is_over and invariants.incarnation(FLEETING) == old:
            if invariants.is_alive(FLEETING):
                with suppress(KctlError):
                    await router.send_to_controller(request)
            await sleep(router.runtime.scheduler, PAUSE_MS)
        await self._create(router, FLEETING, entropy)
        workload.unfinished.pop(f"replace {FLEETING}", None)

    def _remove_remains(self, topic: str) -> None:
        """Remove, by hand, what a deleted topic left on brokers that were down.

        A reassignment had removed their replicas from the topic before (docs/compatibility.md).
        Running brokers are left alone.
        """
        for broker in self._cluster.brokers.values():
            remains = [
                f"{path}/{name}"
                for path in LOG_DIRECTORIES
                for name in (broker.disk.list(path) if broker.disk.is_directory(path) else ())
                if name.rpartition("-")[0] == topic
            ]
            was_down = broker.life is Life.DOWN
            if remains:
                broker.kill()
            for path in remains:
                self._record_deed("removes", f"{broker.host}{path}")
                broker.disk.remove_tree(path)
            if remains and not was_down:
                broker.start()

    async def _grow(self, router: Router, entropy: SimEntropy) -> None:
        topic, _ = self._some_partition(entropy)
        count = len(self._invariants.partitions_of(topic)) + 1
        if count <= PARTITIONS_MAX:
            self._record_deed("grow", f"{topic} to {count}")
            await router.send_to_controller(
                CreatePartitionsRequest(
                    topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
                    timeout_ms=REQUEST_TIMEOUT_MS,
                )
            )

    # --- replicas ----------------------------------------------------------------------------

    async def _reassign(self, router: Router, entropy: SimEntropy) -> None:
        topic, number = self._some_partition(entropy)
        target = entropy.sample(sorted(self._cluster.brokers), self._rf)
        cancel = entropy.chance(150)
        self._record_deed("reassign", f"{topic}-{number} {'cancel' if cancel else target}")
        await router.send_to_controller(
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            ReassignablePartition(
                                partition_index=number, replicas=None if cancel else target
                            )
                        ],
                    )
                ],
                timeout_ms=REQUEST_TIMEOUT_MS,
            )
        )

    async def _elect(self, router: Router, entropy: SimEntropy) -> None:
        await self._ask_for_leader(router, self._some_partition(entropy), 0)

    async def _elect_uncleanly(self, router: Router, entropy: SimEntropy) -> None:
        partitions = self.fleeting_partitions()
        waiting = [key for key in partitions if self._invariants.leaders.get(key, 0) < 0]
        if partitions:
            await self._ask_for_leader(router, entropy.choice(waiting or partitions), _UNCLEAN)

    async def _ask_for_leader(self, router: Router, key: Key, election_type: int) -> None:
        topic, number = key
        self._record_deed("elect_uncleanly" if election_type else "elect", f"{topic}-{number}")
        await router.send_to_controller(
            ElectLeadersRequest(
                election_type=election_type,
                topic_partitions=[TopicPartitions(topic=topic, partition_id=[number])],
                timeout_ms=REQUEST_TIMEOUT_MS,
            )
        )

    async def _move_directory(self, router: Router, entropy: SimEntropy) -> None:
        topic, number = self._some_partition(entropy)
        broker_id = entropy.choice(sorted(self._cluster.brokers))
        path = entropy.choice(LOG_DIRECTORIES)
        self._record_deed("move_directory", f"{topic}-{number} of {broker_id} to {path}")
        moved = AlterReplicaLogDirTopic(name=topic, partitions=[number])
        await router.send_to_broker(
            broker_id,
            AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])]),
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    # --- settings ----------------------------------------------------------------------------

    async def _configure(self, router: Router, entropy: SimEntropy) -> None:
        topic, _ = self._some_partition(entropy)
        choices = {
            "min.insync.replicas": ["1", "2"],
            "segment.bytes": ["1500", "20000"],
            "max.message.bytes": ["20000", "1000000"],
        }
        if topic in self.fleeting:
            if self._habits.get("cut"):
                choices["retention.bytes"] = ["1", "3000", "-1"]
            if self._habits.get("elect_uncleanly"):
                choices["unclean.leader.election.enable"] = ["true", "false"]
        name = entropy.choice(list(choices))
        value = entropy.choice(choices[name])
        self._record_deed("configure", f"{topic} {name}={value}")
        await router.send_to_any(_alter(_TOPIC, topic, {name: value}))

    async def _throttle(self, router: Router, entropy: SimEntropy) -> None:
        """Set a throttle, or remove it if there is one."""
        rate = None if self._is_throttled else entropy.choice(["1500", "6000"])
        await self._set_throttle(router, rate)

    async def _set_throttle(self, router: Router, rate: str | None) -> None:
        self._record_deed("throttle", str(rate))
        self._is_throttled = True
        for topic in self.lasting:
            replicas = None if rate is None else "*"
            answer = await router.send_to_any(
                _alter(_TOPIC, topic, dict.fromkeys(REPLICAS, replicas))
            )
            _check(answer)
        for broker_id in sorted(self._cluster.brokers):
            answer = await router.send_to_broker(
                broker_id, _alter(_BROKER, str(broker_id), dict.fromkeys(_RATES, rate))
            )
            _check(answer)
        self._is_throttled = rate is not None


def _alter(
    resource_type: int, name: str, values: dict[str, str | None]
) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def _check(answer: Any) -> None:
    """Raise ApiError if the response has an error."""
    code = answer.responses[0].error_code
    if code != ErrorCode.NONE:
        raise ApiError(code)
