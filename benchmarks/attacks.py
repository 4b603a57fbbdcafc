"""Attacks on a broker: how long an innocent producer waits during each, and what each one costs.

python -m benchmarks.attacks [--only TEXT] [--apache] [--quick]

Each attack has a broker of its own. A separate process produces single records to one partition,
one after the other, while the attack runs; the attack is repeated until there are 1,000 samples.
A row has the median, the p99 and the longest wait, the broker's CPU time, and its peak of resident
memory during the attack. Rows beyond a goal are marked: p99 of 100 ms, memory of 256 MiB.
`--apache` attacks Apache Kafka 2.7.2 as well; `--quick` makes the attacks a tenth as large.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attack_cases import ATTACKS, Attack, Target
from benchmarks.innocent_producer import TOPIC, InnocentProducer, percentile
from benchmarks.servers import ApacheKafka, Kctl, Server, zookeeper
from tests.support.pinger import Memory

P99_MS_MAX, RESIDENT_MIB_MAX = 100.0, 256.0
# A p99 of fewer samples is little more than their longest.
SAMPLES_MIN, QUICK_SAMPLES_MIN = 1_000, 200
# An attack that takes no time is not repeated forever.
REPETITIONS_MAX = 200
MIB = 1024 * 1024


@dataclass(frozen=True)
class Row:
    """What one attack did."""

    waits_ms: list[float]
    cpu_s: float
    peak_mib: float
    # Why the attack did not take its course; empty if it did.
    failure: str

    @property
    def p99_ms(self) -> float:
        return percentile(self.waits_ms, 99)

    @property
    def misses_goal(self) -> bool:
        return self.p99_ms > P99_MS_MAX or self.peak_mib > RESIDENT_MIB_MAX or bool(self.failure)

    def __str__(self) -> str:
        median, worst = self.waits_ms[len(self.waits_ms) // 2], self.waits_ms[-1]
        return (
            f"{len(self.waits_ms):8} {median:7.2f} {self.p99_ms:7.1f} {worst:8.1f}"
            f" {self.cpu_s:6.1f} {self.peak_mib:8.0f}"
        )


def main(arguments: Sequence[str]) -> int:
    """Print a table for each broker; 1 if kctl misses a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--apache", action="store_true", help="attack Apache Kafka 2.7.2 as well")
    parser.add_argument("--quick", action="store_true", help="a tenth of each attack")
    options = parser.parse_args(arguments)
    attacks = [attack for attack in ATTACKS if options.only in attack.name]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows = _table(lambda name: Kctl(directory / name), attacks, options.quick)
        if options.apache:
            address = stack.enter_context(zookeeper(directory / "zookeeper"))
            _table(
                lambda name: ApacheKafka(directory / f"apache-{name}", address),
                attacks,
                options.quick,
            )
    return 1 if any(row.misses_goal for row in rows) else 0


def _table(
    new_server: Callable[[str], Server], attacks: Sequence[Attack], is_quick: bool
) -> list[Row]:
    rows = []
    for number, attack in enumerate(attacks):
        server = new_server(str(number))
        if not rows:
            head = f"{'samples':>8} {'p50 ms':>7} {'p99 ms':>7} {'worst ms':>8} {'CPU s':>6}"
            print(f"\n{server.title}\n{'attack':60}{head} peak MiB", flush=True)  # noqa: T201
        server.start()
        try:
            row = _row(server, attack, is_quick)
        finally:
            server.stop()
        mark = "  goal missed" * row.misses_goal + f"  ({row.failure})" * bool(row.failure)
        print(f"{attack.name:60}{row}{mark}", flush=True)  # noqa: T201
        rows.append(row)
    return rows


def _row(server: Server, attack: Attack, is_quick: bool) -> Row:
    server.create_topic(TOPIC)
    target = Target(server, 0.1 if is_quick else 1.0)
    attack.prepare(target)
    producer = InnocentProducer(server.port)
    memory, cpu_s = Memory(server.pid), server.cpu_s()
    failure = _repeat(attack, target, producer, QUICK_SAMPLES_MIN if is_quick else SAMPLES_MIN)
    cpu_s = server.cpu_s() - cpu_s
    peak_mib = memory.peak() / MIB
    waits, lost = producer.stop()
    return Row(waits, cpu_s, peak_mib, failure or lost)


def _repeat(attack: Attack, target: Target, producer: InnocentProducer, enough: int) -> str:
    """Run the attack until the producer has `enough` samples; return what went wrong."""
    try:
        for _ in range(REPETITIONS_MAX):
            attack.run(target)
            if producer.samples >= enough:
                break
    except (OSError, RuntimeError) as error:
        # The samples still count.
        time.sleep(1)
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
