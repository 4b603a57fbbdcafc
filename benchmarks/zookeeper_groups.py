"""How long a group on ZooKeeper takes to settle.

`python -m benchmarks.zookeeper_groups 50 500 4`: 50 members that read 500 partitions, in 4
processes. The members are kctl's, each with its own session, on the store of one `kctl serve`.
Measured are the start of all members but one, and then the one that joins, until every partition is
delivered by its new owner; and the rounds of all members.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kctl.kafka.claims import Claims
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.group_membership import GroupMembership, GroupSettings, ZooKeeperOffsets
from kctl.runtime.runtime import Runtime
from kctl.store import znodes
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.zookeeper import ZooKeeperStore
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker

LIMIT_S = 300
POLL_S = 0.005
SESSION_MS = 30_000


class Member:
    """One consumer, whose messages nothing reads."""

    def __init__(self, store: Any, runtime: Runtime) -> None:
        self.store, self.claims = store, Claims()
        registry = ConsumerRegistry(store)
        self.membership = GroupMembership(
            runtime, registry, GroupSettings("g", "bench"), {"t": 1}, self,
            ZooKeeperOffsets(registry, "g"),
        )  # fmt: skip

    def start(self, threads: Any, offsets: Any) -> None:
        """Begin."""
        for partition, thread in threads.items():
            self.claims.open(partition, thread, self.membership.lease, offsets.get(partition))

    def stop(self, partitions: Any) -> Any:
        """End."""
        return self.claims.close(partitions)

    def committed(self, offsets: Any) -> None:
        """Note a commit."""
        self.claims.committed(offsets)

    def failed(self, error: Exception) -> None:
        """Show it."""
        print(f"failed: {error}", file=sys.stderr)  # noqa: T201 - what a benchmark must not hide


class Report(NamedTuple):
    """What the members of a process have, and have done so far."""

    shares: list[int]
    rounds: int
    cpu_s: float


class Members:
    """The members of this process."""

    def __init__(self, address: str, count: int) -> None:
        self.loop = ClientLoop("benchmark")

        async def open_store() -> Any:
            return await ZooKeeperStore.open(
                self.loop.runtime, address, session_timeout_ms=SESSION_MS
            )

        self.members = [Member(self.loop.run(open_store), self.loop.runtime) for _ in range(count)]
        self.started = 0

    def start(self, count: int) -> None:
        """Let the next `count` members join."""
        for it in self.members[self.started : self.started + count]:
            self.loop.run(it.membership.start)
        self.started += count

    def report(self) -> Report:
        """Return the number of partitions of each that has started."""
        alive = self.members[: self.started]
        shares = [len(list(it.claims)) for it in alive]
        return Report(shares, sum(it.membership.rounds for it in alive), time.process_time())

    def close(self) -> None:
        """Leave the group."""
        for it in self.members:
            self.loop.run(it.membership.close)
            self.loop.run(it.store.close)
        self.loop.close()


class MemberProcess:
    """Members in a process of their own: it answers each line with a line."""

    def __init__(self, address: str, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.zookeeper_groups", "members", address, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip

    def send(self, line: str) -> None:
        """Ask for something."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the oldest line without one."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def serve_members(address: str, count: int) -> None:
    """Be a MemberProcess: "start N", "report" and the end of the input."""
    members = Members(address, count)
    _say("ready")
    for line in sys.stdin:
        if line.startswith("start"):
            members.start(int(line.split()[1]))
            _say("started")
        else:
            _say(members.report())
    members.close()


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def settle(processes: Sequence[MemberProcess], partitions: int) -> tuple[float, list[Report]]:
    """Wait until each partition is delivered once and shares are equal; the seconds."""
    began = time.monotonic()
    while True:
        reports = reports_of(processes)
        shares = [it for report in reports for it in report.shares]
        if sum(shares) == partitions and min(shares) >= partitions // len(shares):
            return time.monotonic() - began, reports
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"not settled: {shares}")
        time.sleep(POLL_S)


def reports_of(processes: Sequence[MemberProcess]) -> list[Report]:
    """Ask all processes at once."""
    for it in processes:
        it.send("report")
    return [Report(*it.answer()) for it in processes]


def start(processes: Sequence[MemberProcess], counts: Sequence[int]) -> None:
    """Let members of all processes join at once."""
    for it, count in zip(processes, counts, strict=True):
        it.send(f"start {count}")
    for it in processes:
        it.answer()


def create_topic(address: str, partitions: int) -> None:
    """Create the znode of topic t."""
    loop = ClientLoop("topic")
    data = znodes.to_json({"version": 2, "partitions": {str(n): [0] for n in range(partitions)}})

    async def create() -> None:
        store = await ZooKeeperStore.open(loop.runtime, address, session_timeout_ms=SESSION_MS)
        await store.create(znodes.topic_path("t"), data)
        await store.close()

    loop.run(create)
    loop.close()


def main(count: int, partitions: int, process_count: int = 1) -> None:
    """Start all but one, then one more."""
    port = apache_kafka.free_port()
    address = f"127.0.0.1:{port}"
    with (
        tempfile.TemporaryDirectory() as directory,
        KctlBroker(Path(directory) / "b", "--zookeeper-port", str(port)),
    ):
        create_topic(address, partitions)
        counts = [
            count // process_count + (n < count % process_count) for n in range(process_count)
        ]
        processes = [MemberProcess(address, it) for it in counts]
        for it in processes:
            it.answer()
        last = [0] * (process_count - 1) + [1]
        rest = [all_ - one for all_, one in zip(counts, last, strict=True)]
        for title, joining in (("all but one start", rest), ("one joins", last)):
            before = reports_of(processes)
            start(processes, joining)
            seconds, after = settle(processes, partitions)
            rounds = sum(it.rounds for it in after) - sum(it.rounds for it in before)
            cpu_s = sum(it.cpu_s for it in after) - sum(it.cpu_s for it in before)
            line = f"{title}: {seconds:.2f} s, {rounds} rounds, {cpu_s:.2f} s CPU of the members"
            print(line, flush=True)  # noqa: T201 - its result
        for it in processes:
            assert it.process.stdin is not None
            it.process.stdin.close()
            it.process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["members"]:
        serve_members(sys.argv[2], int(sys.argv[3]))
    else:
        main(*(int(it) for it in sys.argv[1:] or (50, 500)))
