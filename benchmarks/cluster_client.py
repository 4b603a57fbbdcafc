"""What the benchmark of a cluster asks of it: blocking requests in kctl's own codec, the same to
both kinds of brokers."""

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from benchmarks.servers import Client
from kctl.protocol.constants import ACKS_ALL
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kctl.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.protocol.schema import Message
from kctl.records.builder import RecordBatchBuilder

TIMEOUT_MS = 120_000
POLL_S = 0.02
TOPICS_PER_REQUEST = 100
PREFERRED = 0


class ClusterClient:
    """Asks any broker, or the one that is controller."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports

    def metadata(self, *topics: str) -> Any:
        """Of any broker that lives and knows a controller."""
        deadline = time.monotonic() + TIMEOUT_MS / 1e3
        wanted = [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        while time.monotonic() < deadline:
            for port in self._ports.values():
                with contextlib.suppress(OSError):
                    answer = ask(port, request, 8)
                    if answer.controller_id >= 0:
                        return answer
            time.sleep(POLL_S)
        raise TimeoutError("no broker knows a controller")

    def controller(self) -> int:
        """Who it is."""
        found: int = self.metadata().controller_id
        return found

    def _command(self, request: Message, version: int) -> Any:
        return ask(self._ports[self.controller()], request, version)

    def create(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """A topic with these replicas, and wait until all of it is led."""
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(each))
            for number, each in enumerate(replicas)
        ]
        new = CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        self._create([new])
        self._wait(topic, range(len(replicas)), lambda it: it.leader_id >= 0)

    def create_many(self, names: Sequence[str]) -> None:
        """Topics of one partition and three replicas; wait until all are led."""
        for start in range(0, len(names), TOPICS_PER_REQUEST):
            self._create([
                CreatableTopic(name=name, num_partitions=1, replication_factor=len(self._ports))
                for name in names[start : start + TOPICS_PER_REQUEST]
            ])  # fmt: skip
        while True:
            found = self.metadata(*names).topics
            if all(it.partitions and it.partitions[0].leader_id >= 0 for it in found):
                return
            time.sleep(POLL_S)

    def _create(self, topics: list[CreatableTopic]) -> None:
        answer = self._command(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 4)
        for topic in answer.topics:
            if topic.error_code:
                raise RuntimeError(f"{topic.name}: {ErrorCode(topic.error_code).name}")

    def wait_for_isr(self, topic: str, count: int) -> None:
        """Wait until every broker reports `count` replicas of every partition as in sync."""
        for port in self._ports.values():
            client = ClusterClient({0: port})
            client._wait(topic, None, lambda it: len(it.isr_nodes) == count)

    def wait_for_leader(self, topic: str, partitions: Iterable[int], broker: int) -> None:
        """Until `broker` leads them."""
        self._wait(topic, partitions, lambda it: it.leader_id == broker)

    def _wait(self, topic: str, partitions: Iterable[int] | None, condition: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_MS / 1e3
        wanted = None if partitions is None else set(partitions)
        while time.monotonic() < deadline:
            found = self.metadata(topic).topics[0].partitions
            chosen = [it for it in found if wanted is None or it.partition_index in wanted]
            if chosen and len(chosen) >= len(wanted or ()) and all(map(condition, chosen)):
                return
            time.sleep(POLL_S)
        raise TimeoutError(f"{topic} did not come to be as it should")

    def elect_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """Have the first replicas lead."""
        wanted = [TopicPartitions(topic=topic, partition_id=list(partitions))]
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=wanted, timeout_ms=TIMEOUT_MS
        )
        answer = self._command(request, 1)
        if answer.error_code:
            raise RuntimeError(f"election: {ErrorCode(answer.error_code).name}")

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Begin to move partitions."""
        partitions = [
            ReassignablePartition(partition_index=number, replicas=list(each))
            for number, each in replicas.items()
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=partitions)], timeout_ms=TIMEOUT_MS
        )
        answer = self._command(request, 0)
        if answer.error_code:
            raise RuntimeError(f"reassignment: {ErrorCode(answer.error_code).name}")

    def wait_for_moves(self) -> None:
        """Until none is under way."""
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
        while self._command(request, 0).topics:
            time.sleep(POLL_S)

    def fill(self, topic: str, partitions: int) -> None:
        """A record for each."""
        leaders = {
            it.partition_index: it.leader_id for it in self.metadata(topic).topics[0].partitions
        }
        for number in range(partitions):
            code = produce(self._ports[leaders[number]], topic, number)
            if code:
                raise RuntimeError(f"{topic}-{number}: {ErrorCode(code).name}")


class Prober:
    """A producer of one record after the other, with acks=all, to a topic of one partition."""

    def __init__(self, ports: Mapping[int, int], topic: str) -> None:
        self._ports = ports
        self._topic = topic
        self._acknowledged = [time.perf_counter()]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Prober":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        client = ClusterClient(self._ports)
        while not self._is_over.is_set():
            with contextlib.suppress(OSError, ConnectionError):
                leader = client.metadata(self._topic).topics[0].partitions[0].leader_id
                if leader not in self._ports:
                    continue
                with contextlib.closing(Client(self._ports[leader])) as connection:
                    while not self._is_over.is_set() and not _send(connection, self._topic, 0):
                        self._acknowledged.append(time.perf_counter())
            time.sleep(POLL_S)

    def gap_ms(self, timeout_ms: int) -> float:
        """The longest time without an acknowledgement; waits until there are some behind it."""
        begin, count = time.perf_counter(), len(self._acknowledged)
        while time.perf_counter() - begin < timeout_ms / 1e3:
            time.sleep(0.5)
            times = self._acknowledged[:]
            gap = max(after - before for before, after in pairwise(times))
            if len(times) > count + 100 and gap > 10 * POLL_S:
                return gap * 1e3
        raise TimeoutError("nothing is acknowledged any more, or nothing was ever not")


def ask(port: int, request: Message, version: int) -> Any:
    """On a connection of its own."""
    with contextlib.closing(Client(port)) as client:
        return client.ask(request, version)


def produce(port: int, topic: str, partition: int) -> int:
    """One record; the error code."""
    with contextlib.closing(Client(port)) as client:
        return _send(client, topic, partition)


def _send(client: Client, topic: str, partition: int) -> int:
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_600_000_000_000, key=None, value=bytes(100))
    data = PartitionProduceData(partition_index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=ACKS_ALL, timeout_ms=5_000,
        topics=[TopicProduceData(name=topic, partitions=[data])],
    )  # fmt: skip
    code: int = client.ask(request, 8).responses[0].partitions[0].error_code
    return code
