"""How long a group on ZooKeeper takes to settle: `python -m benchmarks.zookeeper_groups 50 500`.

The members are kctl's, in one process and each with its own session, on the store of one `kctl
serve`. Measured are the start of all members but one, and then the one that joins, until every
partition is delivered by its new owner; and the rounds of all members.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kctl.kafka.claims import Claims
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.group_membership import GroupMembership, GroupSettings, ZooKeeperOffsets
from kctl.runtime.runtime import Runtime
from kctl.store import znodes
from kctl.store.consumer_registry import ConsumerRegistry
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker

LIMIT_S = 120


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
        print(f"failed: {error}")  # noqa: T201 - what a benchmark must not hide


def settle(members: "list[Member]", partitions: int) -> float:
    """Wait until each partition is delivered once and shares are equal; the seconds."""
    began = time.monotonic()
    share = partitions // len(members)
    while True:
        counts = [len(list(it.claims)) for it in members]
        if sum(counts) == partitions and min(counts) >= share:
            return time.monotonic() - began
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"not settled: {counts}")
        time.sleep(0.005)


def main(count: int, partitions: int) -> None:
    """Start all but one, then one more."""
    from kctl.store.zookeeper import ZooKeeperStore

    port = apache_kafka.free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        KctlBroker(Path(directory) / "b", "--zookeeper-port", str(port)),
    ):
        loop = ClientLoop("benchmark")

        async def open_store() -> Any:
            return await ZooKeeperStore.open(
                loop.runtime, f"127.0.0.1:{port}", session_timeout_ms=30_000
            )

        stores = [loop.run(open_store) for _ in range(count)]
        data = znodes.to_json(
            {"version": 2, "partitions": {str(n): [0] for n in range(partitions)}}
        )
        loop.run(stores[0].create, znodes.topic_path("t"), data)
        members = [Member(store, loop.runtime) for store in stores]
        for title, joining in (("all but one start", members[:-1]), ("one joins", members[-1:])):
            alive = members[: members.index(joining[-1]) + 1]
            rounds = sum(it.membership.rounds for it in alive)
            cpu = time.process_time()
            for it in joining:
                loop.run(it.membership.start)
            seconds = settle(alive, partitions)
            rounds = sum(it.membership.rounds for it in alive) - rounds
            cpu = time.process_time() - cpu
            line = f"{title}: {seconds:.2f} s, {rounds} rounds, {cpu:.2f} s CPU of the members"
            print(line)  # noqa: T201 - its result
        for it in members:
            loop.run(it.membership.close)
            loop.run(it.store.close)
        loop.close()


if __name__ == "__main__":
    main(*(int(it) for it in sys.argv[1:] or (50, 500)))
