"""kctl and Apache Kafka 2.7.2 side by side: the same clients, one run, in alternating order.

python benchmarks/broker.py [--only GROUP]... [--rounds N] [--seconds S]
                             [--quick] [--write] [--compiled DIR]

Both brokers are up all the time, warmed with more than 250,000 records; each round measures a
group on both, one after the other, and the next round in the other order. A figure is the median
of its rounds, a ratio the median of the rounds' ratios. `--write` puts the table into
docs/performance.md. `--compiled` measures the compiled build of kctl: DIR holds a copy of the
sources that `python -m tools.compare_builds --compiled DIR` compiled. The benchmark needs a C
compiler and Java; Maven fetches the jars of Apache Kafka at the first run. All that it starts is
stopped at its end.
"""

import argparse
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Run as a file, Python looks for modules beside it and not in the checkout.
sys.path[0] = str(ROOT)

from benchmarks.measures import (  # noqa: E402
    MEASURES,
    Bench,
    Figures,
    build_load,
    commands,
    warm_up,
)
from benchmarks.servers import KAFKA_VERSION, ApacheKafka, Kctl, Server, zookeeper  # noqa: E402
from tests.support.apache_kafka import libs  # noqa: E402
from tools.compare_builds import BuildError, check_builds  # noqa: E402

DOCUMENT = ROOT / "docs" / "performance.md"
TABLE_BEGIN = "<!-- table of benchmarks/broker.py -->"
TABLE_END = "<!-- end of the table -->"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    group: str
    figure: str
    title: str
    unit: str
    # The ratio of kctl to Apache Kafka that is wanted; below it if `is_less_better`.
    goal: float | None = None
    is_less_better: bool = False
    # What kctl's own figure may be at most.
    limit: float | None = None
    scale: float = 1.0


def _raw(group: str, title: str, goal: float) -> list[Row]:
    return [
        Row(group, "megabytes_per_second", f"Raw produce, batches of {title}", "MB/s", goal),
        Row(group, "cpu_ms_per_mb", "  broker CPU", "ms/MB", is_less_better=True),
    ]


def _fetch(group: str, title: str, goal: float) -> list[Row]:
    return [
        Row(group, "megabytes_per_second", f"Fetch of hot data, {title}", "MB/s", goal),
        Row(group, "cpu_ms_per_mb", "  broker CPU", "ms/MB", 1.0, is_less_better=True),
    ]


def _small(group: str, title: str, goal: float, p99_goal: float | None) -> list[Row]:
    return [
        Row(group, "requests_per_second", f"Produce of one record, {title}", "requests/s", goal),
        Row(group, "p50_us", "  p50", "µs", is_less_better=True),
        Row(group, "p99_us", "  p99", "µs", p99_goal, is_less_better=True),
        Row(group, "cpu_us_per_request", "  broker CPU", "µs/request", is_less_better=True),
    ]


def _commits(group: str, title: str) -> list[Row]:
    return [
        Row(group, "requests_per_second", f"Offset commits, {title}", "requests/s", 1.5),
        Row(group, "cpu_us_per_request", "  broker CPU", "µs/request", is_less_better=True),
    ]


ROWS = [
    *_raw("raw-16k", "16 KiB", 2.0),
    *_raw("raw-16k-lz4", "16 KiB, lz4", 2.0),
    *_raw("raw-256k", "256 KiB", 1.2),
    *_raw("raw-256k-lz4", "256 KiB, lz4", 2.0),
    Row("java", "produced", "ProducerPerformance, 100-byte records", "MB/s", 1.2),
    Row("java", "consumed", "ConsumerPerformance, the same", "MB/s", 1.3),
    *_fetch("fetch-1", "1 connection", 1.1),
    *_fetch("fetch-4", "4 connections", 1.3),
    *_small("small-1", "1 connection", 2.0, None),
    *_small("small-16", "16 connections", 1.3, 0.7),
    *_small("small-100", "100 connections", 1.1, None),
    *_commits("commits-1", "1 connection"),
    *_commits("commits-16", "16 connections"),
    Row("beside-producers", "p50_us", "The same beside 2 bulk producers, p50", "µs", 1.0,
        is_less_better=True),
    Row("beside-producers", "p99_us", "  p99", "µs", 1.0, is_less_better=True),
    Row("beside-readers", "p50_us", "The same beside 4 bulk readers, p50", "µs",
        is_less_better=True),
    Row("beside-readers", "p99_us", "  p99", "µs", 1.0, is_less_better=True),
    Row("latency", "p50_us", "End to end, p50", "µs", 1.0, is_less_better=True),
    Row("latency", "p99_us", "  p99", "µs", 1.0, is_less_better=True),
    Row("parked", "p50_us", "1,000 parked fetches, first answer", "ms", 1.0,
        is_less_better=True, scale=1e-3),
    Row("parked", "p99_us", "  last answer", "ms", 0.5, is_less_better=True, scale=1e-3),
    Row("idle", "cpu_percent", "1,000 idle consumers", "% of a core", is_less_better=True,
        limit=5.0),
    Row("start", "started_s", "From exec to the first Metadata answer", "s", 0.125,
        is_less_better=True, limit=0.25),
    Row("start", "resident_mb", "Resident memory, idle", "MB", 0.125, is_less_better=True),
    Row("memory", "resident_mb", "Resident memory, after the load", "MB", 0.125,
        is_less_better=True),
    Row("commands", "list", "`kctl topic list`, kafka-topics --list", "s", is_less_better=True,
        limit=0.25),
    Row("commands", "help", "`kctl --help`, kafka-topics --help", "s", is_less_better=True,
        limit=0.25),
    Row("partitions", "seconds", "A topic of 1,000 partitions", "s", is_less_better=True,
        limit=0.08),
    Row("topics", "seconds", "1,000 topics", "s", is_less_better=True, limit=0.4),
]  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A row's figures."""

    row: Row
    kctl: float
    kafka: float
    ratio: float

    @property
    def is_reached(self) -> bool | None:
        """Whether the goals are; None: there are none."""
        row = self.row
        if row.goal is None and row.limit is None:
            return None
        if row.limit is not None and self.kctl > row.limit:
            return False
        if row.goal is None:
            return True
        return self.ratio <= row.goal if row.is_less_better else self.ratio >= row.goal


def evaluate(row: Row, kctl: Sequence[Figures], kafka: Sequence[Figures]) -> Found:
    """Medians over the rounds; rounds are pairs."""
    ours = [figures[row.figure] * row.scale for figures in kctl]
    theirs = [figures[row.figure] * row.scale for figures in kafka]
    ratios = [our / their for our, their in zip(ours, theirs, strict=True) if their]
    ratio = statistics.median(ratios) if ratios else float("nan")
    return Found(row, statistics.median(ours), statistics.median(theirs), ratio)


def number(value: float) -> str:
    """Three digits that count; nothing for NaN."""
    if math.isnan(value):
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(found: Sequence[Found], beside: str = "Apache Kafka") -> str:
    """Markdown."""
    lines = [f"| | | kctl | {beside} | ratio | goal | |", "|---|---|--:|--:|--:|--:|---|"]
    for it in found:
        row = it.row
        mark = {None: "", True: "yes", False: "**no**"}[it.is_reached]
        lines.append(
            f"| {row.title.replace('  ', '&nbsp;&nbsp;')} | {row.unit} | {number(it.kctl)} "
            f"| {number(it.kafka)} | {number(it.ratio)} | {goals(row)} | {mark} |"
        )
    return "\n".join(lines)


def goals(row: Row) -> str:
    """What is wanted, in words."""
    sign = "≤" if row.is_less_better else "≥"
    found = [] if row.goal is None else [f"{sign} {row.goal:g}"]
    found += [] if row.limit is None else [f"≤ {row.limit:g} {row.unit}"]
    return ", ".join(found)


def line(it: Found) -> str:
    """The same for a terminal, as it becomes known."""
    row = it.row
    mark = {None: "", True: "met", False: "NOT MET"}[it.is_reached]
    return (
        f"{row.title:45} {row.unit:11} {number(it.kctl):>9} {number(it.kafka):>9} "
        f"{number(it.ratio):>7}  {goals(row):20} {mark}"
    ).rstrip()


def surroundings(build: str = "in pure Python") -> str:
    """The machine, the versions, the build of kctl, and how busy the machine was."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((it.partition(": ")[2] for it in cpus if it.startswith("model name")), "")
    java = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True)
    return (
        f"{os.cpu_count()} cores of {model or platform.machine()}, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{(java.stderr.splitlines() or ['no Java'])[0]}, Apache Kafka {KAFKA_VERSION}, "
        f"kctl {build}; "
        f"load average at the start {os.getloadavg()[0]:.1f}."
    )


def write(text: str) -> None:
    """Put the table between its marks in the document."""
    document = DOCUMENT.read_text()
    before, _, rest = document.partition(TABLE_BEGIN)
    _, _, after = rest.partition(TABLE_END)
    DOCUMENT.write_text(f"{before}{TABLE_BEGIN}\n{text}\n{TABLE_END}{after}")


def measure_all(
    bench: Bench, servers: tuple[Server, Server], groups: Sequence[str], rounds: int
) -> list[Found]:
    """All rounds of all groups; says each row once it is known."""
    found = []
    for group in groups:
        measure, rounds_max = MEASURES[group]
        results: tuple[list[Figures], list[Figures]] = ([], [])
        for turn in range(min(rounds, rounds_max or rounds)):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                results[which].append(measure(bench, servers[which]))
        for row in ROWS:
            if row.group == group:
                found.append(it := evaluate(row, *results))
                say(line(it))
    return sorted(found, key=lambda it: ROWS.index(it.row))


def keep_bytecode(directory: Path) -> None:
    """Have kctl's modules compiled once, as pip does when it installs them; a checkout may be in
    an environment that forbids it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory)


def say(words: str) -> None:
    """Print progress to stderr."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="GROUP")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each load")
    parser.add_argument("--quick", action="store_true", help="one short round, for a first look")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    parser.add_argument("--directory", help="where the brokers keep their data")
    parser.add_argument("--compiled", type=Path, metavar="DIR", help="a compiled tree")
    options = parser.parse_args()
    # timeout(1) must not leave two brokers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.compiled is not None:
        try:
            check_builds(options.compiled)
        except BuildError as failed:
            parser.error(str(failed))
    groups = [group for group in MEASURES if not options.only or group in options.only]
    if libs(KAFKA_VERSION, fetch=True) is None:
        parser.error(f"the jars of Apache Kafka {KAFKA_VERSION} are missing; install Maven")
    words = surroundings("compiled" if options.compiled else "in pure Python")
    say(words)
    say(f"{'':45} {'':11} {'kctl':>9} {'Kafka':>9} {'ratio':>7}  {'goal':20}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        keep_bytecode(directory / "bytecode")
        bench = Bench(
            directory,
            stack.enter_context(zookeeper(directory / "zookeeper")),
            build_load(directory),
        )
        bench.seconds = options.seconds
        if options.quick:
            bench.warm_up_s, bench.seconds, bench.records, bench.many = 0.5, 1, 300_000, 100
            words += " Quick: one round, 300,000 records, 100 topics and partitions, not 1,000."
        servers = (
            Kctl(directory / "kctl", tree=options.compiled),
            ApacheKafka(directory / "kafka", bench.zookeeper),
        )
        for server in servers:
            stack.callback(server.stop)
            server.start()
            commands(bench, server)  # compiles, and fills the disk's cache
            if set(groups) - {"start", "commands"}:
                warm_up(bench, server)
        found = measure_all(bench, servers, groups, 1 if options.quick else options.rounds)
        text = f"{words}\n\n{table(found)}"
        say(f"\n{text}")
        if options.write:
            write(text)


if __name__ == "__main__":
    main()
