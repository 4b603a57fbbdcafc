"""The CPU time that --metrics-port costs per request, from many short rounds in turn.

Three brokers stay up together: two plain ones, A and B, and one with metrics. In each round each
of them serves the same load for a moment, in rotating order, and the CPU time of its process,
which the kernel counts in nanoseconds, is divided by the requests of the load. What is reported
is the median of the ratios of the rounds (metered to the mean of A and B), with a confidence
interval from their order, which needs no distribution. B to A shows what the same measurement
finds where there is nothing to find. Processes differ by their layout in memory, so that several
sets of brokers are started one after the other.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from benchmarks.measures import Bench
from benchmarks.servers import Kctl, Server, free_port

CONNECTIONS = 16
# A batch, and what is asked for at once.
FETCH_BYTES = 4096
FILL_S = 0.3
# The kernel's clock of a process's CPU time: the low bits of its id say which kind.
_CPU_CLOCK = 2
_Z_95 = 1.96
# What is asked, by name: mode and options of the load generator.
LOADS = {
    "produce": ("produce", {}),
    "commit": ("commit", {}),
    "metadata": ("metadata", {}),
    "fetch": ("fetch", {"fetch_bytes": FETCH_BYTES}),
}


class MeasuredKctl(Kctl):
    """`kctl serve --metrics-port`."""

    title = "kctl with metrics"
    metrics_port = 0

    def command(self) -> list[str]:
        self.metrics_port = free_port()
        return [*super().command(), "--metrics-port", str(self.metrics_port)]


class Interval(NamedTuple):
    """A median, and where it is with a confidence of 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:+.2f} % ({self.low:+.2f} to {self.high:+.2f})"


def interval(values: Sequence[float]) -> Interval:
    """Return the median and its interval, by the ranks between which it is."""
    ordered = sorted(values)
    half = _Z_95 * sqrt(len(ordered)) / 2
    low = max(round(len(ordered) / 2 - half) - 1, 0)
    high = min(round(len(ordered) / 2 + half), len(ordered) - 1)
    return Interval(statistics.median(ordered), ordered[low], ordered[high])


class Cost(NamedTuple):
    """What was found for one load: microseconds per request, and extra time in percent."""

    plain_us: float
    metered: Interval
    null: Interval


def cpu_us_per_request(bench: Bench, server: Server, load: str, seconds: float) -> float:
    """Serve one load for a moment."""
    mode, options = LOADS[load]
    clock = (~server.pid << 3) | _CPU_CLOCK
    before = time.clock_gettime_ns(clock)
    found = bench.run_load(
        server, mode, f"cost-{mode}",
        connections=CONNECTIONS, warmup=0, seconds=seconds, **options,
    )  # fmt: skip
    spent = time.clock_gettime_ns(clock) - before
    return spent / 1e3 / (found["requests_per_second"] * found["seconds"])


def costs(bench: Bench, *, sets: int, rounds: int, seconds: float, load: str) -> Cost:
    """Measure one load on `sets` of three brokers, in `rounds` each."""
    plain: list[float] = []
    metered: list[float] = []
    null: list[float] = []
    for number in range(sets):
        with _brokers(bench, bench.directory / f"cost-{load}-{number}", load) as servers:
            for server in servers:
                cpu_us_per_request(bench, server, load, seconds)
            for turn in range(rounds):
                order = [(turn + each) % len(servers) for each in range(len(servers))]
                found = {
                    each: cpu_us_per_request(bench, servers[each], load, seconds) for each in order
                }
                base = (found[0] + found[1]) / 2
                plain.append(base)
                null.append(100 * (found[1] / found[0] - 1))
                metered.append(100 * (found[2] / base - 1))
    return Cost(statistics.median(plain), interval(metered), interval(null))


@contextmanager
def _brokers(bench: Bench, directory: Path, load: str) -> Iterator[list[Server]]:
    servers: list[Server] = [
        Kctl(directory / "a"),
        Kctl(directory / "b"),
        MeasuredKctl(directory / "metered"),
    ]
    with ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.stop)
            mode = LOADS[load][0]
            server.create_topic(f"cost-{mode}", 1)
            if mode == "commit":
                server.wait_for_coordinators([f"load-{each}" for each in range(CONNECTIONS)])
            if mode == "fetch":
                bench.run_load(
                    server, "produce", f"cost-{mode}",
                    batch_bytes=FETCH_BYTES, warmup=0, seconds=FILL_S,
                )  # fmt: skip
        yield servers
