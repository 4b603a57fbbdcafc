"""How long a new controller takes over with many partitions in the store, and what each costs.

    python -m benchmarks.controller_failover --partitions 100000

Real controllers over one embedded store, and three brokers that answer at once: what is measured is
the controller, and the encoding of what it sends. Its predecessor, which led a third of the
partitions, is gone, so that those are led by others and shrink their ISR.
"""

import argparse
import resource
import time
from typing import Any

from kctl.protocol.codec import encode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest
from kctl.protocol.schema import Message
from kctl.runtime.real.heap_freezer import HeapFreezer
from kctl.runtime.turns import next_turn
from tests.support.controller_cluster import QUIET_TURNS, ControllerCluster, StubBroker

BROKERS = (0, 1, 2)
PARTITIONS_PER_TOPIC = 1000
# Of the requests that a controller of 2.7 sends.
VERSIONS = {LeaderAndIsrRequest: 4, UpdateMetadataRequest: 6}


class EncodingBroker(StubBroker):
    """It has its requests encoded, as they would be for the network."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.received_bytes = 0

    def deliver(self, request: Message) -> Message:
        version = VERSIONS.get(type(request), 3)
        self.received_bytes += sum(map(len, encode(request, version)))
        answer = super().deliver(request)
        self.requests.clear()
        return answer


class Cluster(ControllerCluster):
    """It looks once per turn of the loop whether all is done: the tests' looks, as many as fit in a
    turn, are half of the CPU time."""

    def settle(self) -> None:
        scheduler = self.runtime.scheduler
        quiet = 0
        while quiet < QUIET_TURNS:
            self.run(next_turn(scheduler))
            idle = all(broker.controller.is_idle for broker in self.brokers.values())
            quiet = quiet + 1 if idle else 0


def fill(cluster: ControllerCluster, partitions: int) -> None:
    """Topics whose leaders are spread over the brokers."""
    turns = [BROKERS[first:] + BROKERS[:first] for first in range(len(BROKERS))]
    for start in range(0, partitions, PARTITIONS_PER_TOPIC):
        count = min(PARTITIONS_PER_TOPIC, partitions - start)
        replicas = [turns[number % len(turns)] for number in range(count)]
        cluster.create_topic(f"topic-{start // PARTITIONS_PER_TOPIC}", *replicas)


def main() -> None:
    """Fill, kill, and tell how long the next one takes."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    partitions = parser.parse_args().partitions
    cluster = Cluster(EncodingBroker)
    # As in a broker: without it, searches for cycles are a quarter of the CPU time.
    freezer = HeapFreezer(cluster.runtime.scheduler)
    freezer.start()
    try:
        cluster.start(*BROKERS)
        begin = time.perf_counter()
        fill(cluster, partitions)
        took_s = time.perf_counter() - begin
        print(f"{partitions} partitions created in {took_s:.1f} s")  # noqa: T201
        begin, cpu_s = time.perf_counter(), time.process_time()
        cluster.active.kill()
        cluster.settle()
        seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_s
        sent = sum(broker.received_bytes for broker in cluster.brokers.values())
    finally:
        freezer.stop()
        cluster.close()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(  # noqa: T201
        f"the next controller took {seconds:.2f} s ({cpu_s:.2f} s of CPU, "
        f"{cpu_s / partitions * 1e6:.0f} µs of CPU a partition), sent {sent / 1e6:.1f} MB in all; "
        f"{memory_mb:.0f} MB resident, three controllers and the store"
    )


if __name__ == "__main__":
    main()
