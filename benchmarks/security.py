"""What security costs: TLS, SASL and ACLs of kctl beside none, and beside Apache Kafka 2.7.2.

    python -m benchmarks.security [--only PART,...] [--apache] [--baseline DIR] [--rounds N]
                                  [--seconds S] [--connections N] [--handshakes N]
                                  [--quick | --smoke]

Parts: `plain` (this checkout beside the one at --baseline, which has its environment in .venv;
without security on either side), `sasl` (connections that have logged in beside plaintext), `acls`
(1,000 ACLs beside none), `tls` (librdkafka produces, a plain client fetches; kctl beside Apache
Kafka and beside plaintext), `storm` (an innocent producer during 1,000 handshakes at once),
`half-open` (one beside 2,000 handshakes that stop half-way and 1,000 silent connections), `memory`
(of idle TLS connections).
--apache adds Apache Kafka to the last five.

"1 record × 16" is Produce of one record on 16 connections, "16 KiB" Produce of batches on two,
"fetch × 4" Fetch of hot data on four, all by benchmarks/load.c. The storm comes from a process of
low priority, as the two cores of a small machine are for the broker and the producer.

All brokers of a part are up at the same time. The first round is a warm-up and does not count; the
next ones alternate the order. A figure is the median of the rounds, a ratio the median of the
rounds' ratios. --quick has two short rounds and takes under three minutes; --smoke shows in seconds
that a part works, and its figures mean nothing. It needs a C compiler and the extra `test`; for
Apache Kafka also Java, and Maven at the first run. All that it starts is stopped at its end.
"""

import argparse
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import tls_clients
from benchmarks.broker import Found, Row, evaluate, keep_bytecode, line, say, surroundings, table
from benchmarks.innocent_producer import TOPIC, InnocentProducer, percentile
from benchmarks.measures import (
    Bench,
    Figures,
    Measure,
    build_load,
    fetch,
    raw_produce,
    small_produce,
    start,
)
from benchmarks.secured_servers import (
    ALLOW_WITHOUT_ACLS,
    AUTHORIZER,
    PLAIN,
    SCRAM,
    Listener,
    Secured,
    make_acls,
    secured,
)
from benchmarks.servers import KAFKA_VERSION, ApacheKafka, Kctl, Server, zookeeper
from kctl.records.compression import NONE
from tests.support.apache_kafka import libs
from tests.support.secured_cells import Secrets

ACLS = 1_000
# Starts are short and vary: so many for each round of a load.
STARTS_PER_ROUND = 3
# The p99 of fewer samples is little more than the longest of them.
SAMPLES_MIN = 1_000
QUIET_S = 1.0
# Opened and closed before memory is measured, and how long the broker then rests.
WARM_UP_CONNECTIONS, REST_S = 100, 1.0
# Files that a process has open besides its connections.
FILES_RESERVED = 200
SAME, SLOWER_WITH_ACLS, AS_FAST, TLS_TO_PLAIN = 0.98, 0.9, 1.0, 0.35
STORM_P99_MS, STORM_WORST_MS, IDLE_KB = 5.0, 50.0, 30.0
# Of each 1,000 idle connections, twice as many stop in the middle of their handshakes. The broker
# closes them after ten seconds, in a turn that comes within the next two.
HALF_OPEN_TO_SILENT = 2
HALF_OPEN_P99, HALF_OPEN_GONE_S, HALF_OPEN_MB = 2.0, 12.0, 40.0


@dataclass
class Lab:
    """What all parts share, and what they have found."""

    bench: Bench
    secrets: Secrets
    # The address of ZooKeeper; empty: Apache Kafka is not measured.
    zookeeper: str
    baseline: Path | None
    rounds: int
    connections: int
    handshakes: int
    samples_min: int = SAMPLES_MIN
    found: list[Found] = field(default_factory=list)

    def kctl(self, stack: ExitStack, more: Mapping[str, str] | None = None) -> Secured:
        """A running kctl with all listeners, until the stack ends."""
        directory = self._directory("kctl")
        new = secured(lambda port, it: Kctl(directory, port=port, settings=it), self.secrets, more)
        return self._started(stack, new)

    def apache(self, stack: ExitStack, more: Mapping[str, str] | None = None) -> Secured:
        """The same of Apache Kafka."""
        directory, address = self._directory("apache"), self.zookeeper
        new = secured(
            lambda port, it: ApacheKafka(directory, address, port=port, settings=it),
            self.secrets,
            more,
        )
        return self._started(stack, new)

    def both(self, stack: ExitStack) -> list[Secured]:
        """kctl, and Apache Kafka if it is measured."""
        return [self.kctl(stack), *([self.apache(stack)] if self.zookeeper else [])]

    def _directory(self, name: str) -> Path:
        return self.bench.directory / f"{name}-{self.bench.new_number()}"

    def _started(self, stack: ExitStack, new: Secured) -> Secured:
        stack.callback(new.server.stop)
        new.start()
        return new

    def compare(
        self, measure: Measure, servers: Sequence[Server], rounds: int = 0
    ) -> list[list[Figures]]:
        """The figures of each server, one for each round; the first one is left out."""
        results: list[list[Figures]] = [[] for _ in servers]
        for turn in range((rounds or self.rounds) + 1):
            for which in range(len(servers))[:: 1 if turn % 2 else -1]:
                figures = measure(self.bench, servers[which])
                if turn:
                    results[which].append(figures)
        return results

    def report(self, rows: Sequence[Row], ours: list[Figures], theirs: list[Figures]) -> None:
        """Keep and print a line for each row; `theirs` may be empty."""
        for row in rows:
            if theirs:
                it = evaluate(row, ours, theirs)
            else:
                own = statistics.median(figures[row.figure] for figures in ours) * row.scale
                it = Found(replace(row, goal=None), own, math.nan, math.nan)
            self.found.append(it)
            say(line(it))


# --- rows


def small_rows(title: str, goal: float | None) -> list[Row]:
    return [
        Row("", "requests_per_second", f"{title}: 1 record × 16", "requests/s", goal),
        Row("", "cpu_us_per_request", "  broker CPU", "µs/request", is_less_better=True),
    ]


def bulk_rows(title: str, goal: float | None) -> list[Row]:
    return [
        Row("", "megabytes_per_second", title, "MB/s", goal),
        Row("", "cpu_ms_per_mb", "  broker CPU", "ms/MB", is_less_better=True),
    ]


def start_rows() -> list[Row]:
    goal = 2 - SAME
    return [
        Row("", "started_s", "exec to the first Metadata answer", "s", goal, is_less_better=True),
        Row("", "resident_mb", "  resident memory, idle", "MB", goal, is_less_better=True),
    ]


STORM_ROWS = [
    Row("", "p99_ms", "handshakes at once: producer's p99", "ms", is_less_better=True,
        limit=STORM_P99_MS),
    Row("", "worst_ms", "  its longest wait", "ms", is_less_better=True, limit=STORM_WORST_MS),
    Row("", "p50_ms", "  its median", "ms", is_less_better=True),
    Row("", "quiet_p99_ms", "  its p99 without handshakes", "ms", is_less_better=True),
    Row("", "per_second", "  connections opened and answered", "1/s", AS_FAST),
    Row("", "failures", "  connections that failed", "", is_less_better=True, limit=0),
]  # fmt: skip
HALF_OPEN_ROWS = [
    Row("", "p99_growth", "half-open handshakes: producer's p99, to none", "times",
        is_less_better=True, limit=HALF_OPEN_P99),
    Row("", "p99_ms", "  its p99", "ms", is_less_better=True),
    Row("", "gone_s", "  the last one is closed after", "s", is_less_better=True,
        limit=HALF_OPEN_GONE_S),
    Row("", "growth_mb", "  memory of all", "MB", is_less_better=True, limit=HALF_OPEN_MB),
]  # fmt: skip
MEMORY_ROWS = [
    Row("", "kb_per_connection", "idle TLS connections: memory of each", "kB", is_less_better=True,
        limit=IDLE_KB),
    Row("", "failures", "  connections that failed", "", is_less_better=True, limit=0),
]  # fmt: skip


# --- parts


def plain(lab: Lab) -> None:
    """This checkout beside the baseline, neither secured."""
    if lab.baseline is None:
        say("plain: left out, as there is no --baseline")
        return
    with ExitStack() as stack:
        servers = [Kctl(lab.bench.directory / "here"),
                   Kctl(lab.bench.directory / "baseline", lab.baseline)]  # fmt: skip
        for server in servers:
            stack.callback(server.stop)
            server.start()
        groups = [
            (small_produce(16), small_rows("security off / baseline", SAME)),
            (raw_produce(16_384, NONE), bulk_rows("security off / baseline: 16 KiB", SAME)),
            (fetch(4), bulk_rows("security off / baseline: fetch × 4", SAME)),
        ]
        for measure, rows in groups:
            lab.report(rows, *lab.compare(measure, servers))
    lab.report(start_rows(), *lab.compare(start, servers, STARTS_PER_ROUND * lab.rounds))


def sasl(lab: Lab) -> None:
    """Connections that have logged in beside plaintext, on one broker."""
    with ExitStack() as stack:
        broker = lab.kctl(stack)
        listeners = [broker.listener("PLAINTEXT")]
        listeners += [broker.listener("SASL_PLAINTEXT", name) for name in (PLAIN, SCRAM)]
        groups = [
            (small_produce(16), lambda name: small_rows(f"{name} / none", SAME)),
            (raw_produce(16_384, NONE), lambda name: bulk_rows(f"{name} / none: 16 KiB", SAME)),
            (fetch(4), lambda name: bulk_rows(f"{name} / none: fetch × 4", SAME)),
        ]
        for measure, rows in groups:
            plaintext, *logged_in = lab.compare(measure, listeners)
            for name, figures in zip((PLAIN, SCRAM), logged_in, strict=True):
                lab.report(rows(name), figures, plaintext)


def acls(lab: Lab) -> None:
    """A user with the one ACL of 1,000 that allows it beside no ACLs and beside no authorizer."""
    with ExitStack() as stack:
        kinds = [("kctl", lab.kctl), *([("Apache", lab.apache)] if lab.zookeeper else [])]
        measured: dict[str, list[Listener]] = {}
        for name, new in kinds:
            brokers = [new(stack, AUTHORIZER), new(stack, ALLOW_WITHOUT_ACLS), new(stack)]
            make_acls(brokers[0].server, ACLS)
            measured[name] = [it.listener("SASL_PLAINTEXT", PLAIN) for it in brokers]
        for name, listeners in measured.items():
            goal = SLOWER_WITH_ACLS if name == "kctl" else None
            with_acls, without, unauthorized = lab.compare(small_produce(16), listeners)
            lab.report(small_rows(f"{name}, ACLs / none", goal), with_acls, without)
            title = f"{name}, ACLs / no authorizer"
            lab.report(small_rows(title, goal), with_acls, unauthorized)
        with_acls, without = lab.compare(fetch(4), measured["kctl"][:2])
        title = "kctl, ACLs / none: fetch × 4"
        lab.report(bulk_rows(title, SLOWER_WITH_ACLS), with_acls, without)


def tls(lab: Lab) -> None:
    """TLS of kctl beside that of Apache Kafka, and beside plaintext."""
    with ExitStack() as stack:
        brokers = lab.both(stack)
        listeners = [broker.listener("SSL") for broker in brokers]
        listeners.append(brokers[0].listener("PLAINTEXT"))
        groups: list[tuple[str, Measure, float | None]] = [
            ("produce, 16 KiB", tls_clients.produce(16_384), None),
            ("produce, 256 KiB", tls_clients.produce(262_144), TLS_TO_PLAIN),
            ("fetch, 1 MiB", tls_clients.fetch, TLS_TO_PLAIN),
        ]
        for title, measure, plain_goal in groups:
            secure, *apache, plaintext = lab.compare(measure, listeners)
            if apache:
                lab.report(bulk_rows(f"TLS / Apache's: {title}", AS_FAST), secure, apache[0])
            lab.report(bulk_rows(f"TLS / plaintext: {title}", plain_goal), secure, plaintext)


def storm(lab: Lab) -> None:
    """How long a producer on the PLAINTEXT listener waits while others open TLS connections."""

    def measure(bench: Bench, server: Server) -> Figures:
        assert isinstance(server, Listener)
        producer = InnocentProducer(server.port)
        time.sleep(min(QUIET_S, bench.seconds))
        quiet, _ = producer.stop()
        producer = InnocentProducer(server.port)
        seconds, failures, opened = 0.0, 0, 0
        while not opened or producer.samples < lab.samples_min:
            took, failed = tls_clients.storm(server.secured_port, server.ca_file, lab.handshakes)
            seconds, failures, opened = seconds + took, failures + failed, opened + lab.handshakes
        waits, failure = producer.stop()
        if failure:
            raise RuntimeError(failure)
        return {
            "p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99), "worst_ms": waits[-1],
            "quiet_p99_ms": percentile(quiet, 99), "per_second": (opened - failures) / seconds,
            "failures": failures,
        }  # fmt: skip

    with ExitStack() as stack:
        listeners = [broker.listener("SSL") for broker in lab.both(stack)]
        for listener in listeners:
            listener.create_topic(TOPIC)
        ours, *apache = lab.compare(measure, listeners)
        lab.report(STORM_ROWS, ours, apache[0] if apache else [])


def half_open(lab: Lab) -> None:
    """How long a producer on the PLAINTEXT listener waits beside connections without a handshake,
    and when the broker has closed these."""

    def measure(bench: Bench, server: Server) -> Figures:
        assert isinstance(server, Listener)
        producer = InnocentProducer(server.port)
        time.sleep(min(QUIET_S, bench.seconds))
        quiet, _ = producer.stop()
        before = server.resident_mb()
        producer = InnocentProducer(server.port)
        handshakes = HALF_OPEN_TO_SILENT * lab.connections
        crowd = tls_clients.HalfOpen(
            server.secured_port, server.ca_file, handshakes, lab.connections
        )
        growth_mb = server.resident_mb() - before
        gone_s = crowd.gone_after_s()
        waits, failure = producer.stop()
        if failure:
            raise RuntimeError(failure)
        p99_ms = percentile(waits, 99)
        return {
            "p99_ms": p99_ms, "p99_growth": p99_ms / percentile(quiet, 99), "gone_s": gone_s,
            "growth_mb": growth_mb,
        }  # fmt: skip

    with ExitStack() as stack:
        listeners = [broker.listener("SSL") for broker in lab.both(stack)]
        for listener in listeners:
            listener.create_topic(TOPIC)
        ours, *apache = lab.compare(measure, listeners)
        lab.report(HALF_OPEN_ROWS, ours, apache[0] if apache else [])


def memory(lab: Lab) -> None:
    """The growth of resident memory by idle TLS connections, of new brokers."""
    with ExitStack() as stack:
        results = [[idle_memory(broker.listener("SSL"), lab)] for broker in lab.both(stack)]
        lab.report(MEMORY_ROWS, results[0], results[1] if lab.zookeeper else [])


def idle_memory(listener: Listener, lab: Lab) -> Figures:
    where = (listener.secured_port, listener.ca_file)
    with tls_clients.idle_connections(*where, min(WARM_UP_CONNECTIONS, lab.connections)):
        pass
    time.sleep(REST_S)
    before = listener.resident_mb()
    with tls_clients.idle_connections(*where, lab.connections) as failures:
        time.sleep(REST_S)
        growth_mb = listener.resident_mb() - before
    opened = max(1, lab.connections - failures)
    return {"kb_per_connection": 1e3 * growth_mb / opened, "failures": failures}


PARTS: dict[str, Callable[[Lab], None]] = {
    "plain": plain,
    "sasl": sasl,
    "acls": acls,
    "tls": tls,
    "storm": storm,
    "half-open": half_open,
    "memory": memory,
}


# --- the command


def parse() -> argparse.Namespace:
    """The options; exits with a message where they make no sense."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PART,...", help=", ".join(PARTS))
    parser.add_argument("--apache", action="store_true", help="Apache Kafka 2.7.2 as well")
    parser.add_argument("--baseline", type=Path, metavar="DIR", help="another checkout of kctl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each load")
    parser.add_argument("--connections", type=int, default=1_000, help="that are idle")
    parser.add_argument("--handshakes", type=int, default=1_000, help="at once")
    parser.add_argument("--quick", action="store_true", help="two short rounds, for a first look")
    parser.add_argument("--smoke", action="store_true", help="only show that everything works")
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name] or list(PARTS)
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if options.baseline is not None:
        options.baseline = options.baseline.resolve()
        if not (options.baseline / ".venv" / "bin" / "python").exists():
            parser.error(f"{options.baseline} has no environment in .venv")
    if options.apache and libs(KAFKA_VERSION, fetch=True) is None:
        parser.error(f"the jars of Apache Kafka {KAFKA_VERSION} are missing; install Maven")
    if options.quick:
        options.rounds, options.seconds = 2, 0.4
    if options.smoke:
        options.rounds, options.seconds = 1, 0.1
        options.connections, options.handshakes = 20, 20
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    opened = {
        "storm": options.handshakes,
        "half-open": (1 + HALF_OPEN_TO_SILENT) * options.connections,
        "memory": options.connections,
    }
    if max(opened.get(name, 0) for name in options.only) + FILES_RESERVED > files_max:
        parser.error(f"a process may have {files_max} files open here")
    return options


def main() -> None:
    """Measure and print."""
    options = parse()
    # Inherited by the brokers.
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    words = surroundings()
    say(words)
    say(f"{'':45} {'':11} {'kctl':>9} {'beside':>9} {'ratio':>7}  {'goal':20}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep_bytecode(directory / "bytecode")
        address = ""
        if options.apache and set(options.only) - {"plain", "sasl"}:
            address = stack.enter_context(zookeeper(directory / "zookeeper"))
        bench = Bench(directory, address, build_load(directory))
        bench.seconds = options.seconds
        if options.quick:
            bench.warm_up_s, bench.touched_mb, bench.hot_mb = 0.2, 300, 100
        lab = Lab(
            bench, Secrets(directory / "secrets"), address, options.baseline, options.rounds,
            options.connections, options.handshakes,
        )  # fmt: skip
        if options.smoke:
            bench.warm_up_s, bench.touched_mb, bench.hot_mb, lab.samples_min = 0.05, 1, 5, 20
        for name in options.only:
            PARTS[name](lab)
        say(f"\n{words}\n\n{table(lab.found, 'beside')}")


if __name__ == "__main__":
    main()
