"""Records the tables of commands: `python -m tests.cli.table_snapshots` writes tests/cli/tables/.

The commands run in this process on a cluster of three brokers, on names as long as Kafka allows.
Each has a file with its rows (JSON) and one with its lines on terminals of two widths. Most values
that differ between two runs (ports, times, ids) are replaced, to keep a new recording similar.
"""

import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from kctl.cli import app, output
from kctl.cli.output import Output, Table
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.real.disk import RealDisk
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

RECORDED = Path(__file__).parent / "tables"
WIDTHS = (80, 200)
TOPIC = "orders.eu-central-1.payments." + "a-name-as-long-as-kafka-allows-" * 6
GROUP = "billing-service.eu-central-1.blue-green-deployment-of-the-payments-team-and-its-successors"
PROFILE = "production-eu-central-1-payments"
T0_MS = 1_600_000_000_000

# Command lines whose tables are recorded; {dir}, {log}, {plan}, {csv} and {yaml} are paths.
CASES = (
    # Before a reassignment begins, beside which partitions cannot be added.
    "apply {yaml} -n",
    "broker describe",
    "verify-log --replicas {topic}",
    "reassign plan move {topic} 1 3",
    "topic list",
    "topic list --size",
    "topic describe {topic}",
    "topic describe {topic} --size --offsets",
    "topic create {topic}-new -r 1 -n",
    "topic alter {topic} -c retention.ms=5 -n",
    "topic delete {topic} -n",
    "topic purge {topic} -n",
    "config describe topic {topic} --all",
    "config describe broker 1",
    "config alter topic {topic} -c follower.replication.throttled.replicas={replicas} -n",
    "group list",
    "group describe {group}",
    "group describe {group} --by-topic",
    "group describe {group} --members",
    "group lag",
    "group lag {group} --by-partition",
    "group delete {group} -n",
    "group reset-offsets {idle_group} -t {topic} --to-earliest -n",
    "group import-offsets {csv} -g {idle_group} -n",
    "group clone-offsets {group} {group}-2 -n",
    "group delete-offsets {group} -t {topic} -n",
    "txn list",
    "txn describe {group}",
    "txn hanging",
    "txn abort {group} -n",
    "user list",
    "user create {group} --password-file {csv} -n",
    "reassign execute {plan} -n",
    "reassign execute {plan} --throttle 1KB -y",
    "reassign list",
    "reassign watch --once",
    "reassign verify {plan}",
    "quota set --user {group} --client-id {group} --consume 5GB",
    "quota list",
    "quota remove --user {group} --client-id {group} -n",
    "throttle show",
    "throttle set 2KB",
    "throttle sweep --all -n",
    "reassign cancel --all -n",
    "cluster describe",
    "cluster health",
    "broker list -D {data}",
    "verify-log {log} --explain",
    "repair-log {log}",
    "repair-log --extract {dir}/salvage {log}",
    "api --list",
    "profile list",
    "profile show {profile}",
)  # fmt: skip

# Commands that print no table, and why.
WITHOUT_A_TABLE = {
    "man": "prints a line",
    "help": "prints the help of another command",
    "version": "prints a line",
    "profile add": "prints a line",
    "profile use": "prints a line",
    "profile login": "prints a line",
    "profile remove": "prints a line",
    "top": "prints rates; test_top.py has its screens",
    "quota top": "a view of top",
    "log-stats": "prints ages; test_log_stats.py has its table",
    "records delete": "the table of topic purge",
    "topic offsets-07": "needs a broker of Kafka 0.7",
    "broker demote": "the table of reassign execute",
    "serve": "a table of nothing, log lines",
    "demo": "prints the output of other commands",
    "produce": "prints a line",
    "consume": "prints records",
    "completion": "prints a script",
    "dump-log": "prints lines; test_tables.py has --stats",
    "elect preferred": "needs a broker that was down; its columns are those of elect unclean",
    "elect unclean": "needs a partition without a leader",
    "group export-offsets": "prints CSV",
    "mirror run": "needs two clusters",
    "mirror plan": "needs two clusters",
    "mirror status": "needs two clusters",
    "mirror switch": "needs two clusters",
    "mirror translate": "needs two clusters",
    "mirror watch": "needs two clusters; the table of mirror status",
    "mirror verify": "needs two clusters, or two directories and pyarrow",
    "link create": "needs two clusters",
    "link list": "needs two clusters",
    "link describe": "needs two clusters",
    "link failover": "needs two clusters",
    "link resume": "needs two clusters",
    "group migrate": "needs ZooKeeper; the table of group import-offsets with another column",
    "group rebalance-check": "needs ZooKeeper; one row of names, an owner and a status",
    "export": "one row of its figures; needs pyarrow",
    "import": "needs pyarrow",
    "reassign kafka": "prints what Apache Kafka's tool prints",
    "broker decommission": "the table of reassign plan; here __consumer_offsets needs all brokers",
    "broker stop": "changes the cluster; prints the same table as broker list",
    "broker kill": "changes the cluster; prints the same table as broker list",
    "broker restart": "changes the cluster; prints the same table as broker list",
    "user delete": "a row of a name and a status, as user create",
}

_VARYING = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?"), "2026-01-02T03:04:05.678Z"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "broker-1.kafka.internal.example.com:9092"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
     "01234567-89ab-cdef-0123-456789abcdef"),
    (re.compile(r"(?<![\w.-])[A-Za-z0-9_-]{22}(?![\w.-])"), "AAAAAAAAAAAAAAAAAAAAAA"),
    (re.compile(r"coordinator \d"), "coordinator 1"),
    (re.compile(r"  controller  "), "  "),
    (re.compile(r"leads \d+ of \d+, \d+ replicas, \d out"), "leads 35 of 34, 102 replicas, 0 out"),
)  # fmt: skip
# Columns whose values depend on time, and what they are recorded as.
_VARYING_COLUMNS = {
    "pid": 12345, "rate": "1.0 KB/s", "moved": "64.0 KiB", "left": "5m", "age": "5s",
    "uptime": "5s", "producer_id": 4001, "coordinator": 1, "leaders": 35, "port": 9092,
    "done": "0 B", "share": "0%", "sends": "0 B",
    "controller": False,
}  # fmt: skip


@contextmanager
def _running_cluster() -> Iterator[dict[str, str]]:
    """Run three brokers with long names; yield the words that command lines name."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kctl-tables-")))
        homes = {"XDG_STATE_HOME": str(root / "state"), "XDG_CONFIG_HOME": str(root / "config")}
        stack.enter_context(mock.patch.dict(os.environ, homes))
        stack.enter_context(KctlBroker(root, "--brokers", "3", "--racks", "a,b,c"))
        names = _prepared(root, (root / "ready").read_text().strip())
        stack.enter_context(_open_consumer_and_transaction(names["address"]))
        yield names


def _prepared(root: Path, address: str) -> dict[str, str]:
    (root / "csv").write_text(f"{TOPIC},0,1\n{TOPIC},1,1\n")
    log = _damaged_log(root / "a-mount-point-with-a-long-name" / f"{TOPIC}-0")
    names = {
        "address": address,
        "topic": TOPIC,
        "group": GROUP,
        "idle_group": f"{GROUP}-idle",
        "dir": str(root),
        "data": str(root / "data"),
        "csv": str(root / "csv"),
        "plan": str(root / "plan.json"),
        "log": str(log),
        "yaml": str(root / "cluster.yaml"),
        "profile": PROFILE,
        "replicas": ",".join(f"{number}:{number % 3 + 1}" for number in range(60)),
    }
    (root / "records").write_text(("x" * 999 + "\n") * 300)
    _write_desired_state(root / "cluster.yaml")
    _write_profile(root / "config" / "kctl" / "config.toml")
    lines = [
        f"topic create {TOPIC} --replica-assignment 1:2,2:1 -c retention.ms=604800000",
        *[f"produce {TOPIC} -p {number} -f {root}/records" for number in (0, 1)],
        f"user create {GROUP} --password-file {root}/csv",
        *[
            f"consume {TOPIC} -g {group} --from-beginning --exit"
            for group in (GROUP, f"{GROUP}-idle")
        ],
        f"reassign plan move {TOPIC} 2 3 --out {names['plan']}",
    ]
    for line in lines:
        status, _, errors = _run(line, names)
        assert status == 0, f"{line}: {errors}"
        if line.startswith("topic create"):
            # The controller has created it; the other brokers may not know yet.
            wait_for(lambda: _run(f"topic describe {TOPIC}", names)[0] == 0, lambda: TOPIC)
    return names


def _write_desired_state(path: Path) -> None:
    """Write a file for `kctl apply` that differs from the cluster in every way but ACLs."""
    configs = {"retention.ms": 1, "follower.replication.throttled.replicas": "1:1,2:2,3:3,4:4"}
    document = {
        "topics": {
            TOPIC: {"partitions": 4, "configs": configs},
            f"{TOPIC[:-4]}-new": {"partitions": 12, "replication_factor": 3, "configs": configs},
        },
        "brokers": {"default": {"log.cleaner.threads": 2}},
        "quotas": [{"user": GROUP, "client_id": GROUP, "limits": {"producer_byte_rate": 1 << 40}}],
    }
    # JSON is YAML.
    path.write_text(json.dumps(document))


def _write_profile(path: Path) -> None:
    path.parent.mkdir(parents=True)
    settings = {
        "bootstrap_servers": ",".join(
            f"kafka-{number}.eu-central-1.example.com:9093" for number in range(9)
        ),
        "confirm": "by-name",
        "expect-cluster": "iQ2nBxCZQ8eD0q3XaBcDeF",
        "security.protocol": "SASL_SSL",
        "sasl.username": GROUP,
        "password-command": f"pass show kafka/production/{GROUP}",
    }
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items()]
    path.write_text("\n".join([f"[profiles.{PROFILE}]", *lines]) + "\n")


def _damaged_log(directory: Path) -> Path:
    """Write a log of ten batches, of which one has a flipped bit."""
    directory.mkdir(parents=True)
    batches = [
        bytes(
            build_batch([Record(i, T0_MS + i, b"key", b"value %d" % i)], partition_leader_epoch=0)
        )
        for i in range(10)
    ]
    path = directory / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    rebuild(RealDisk(), str(directory), Wanted())
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 20] ^= 1
    path.write_bytes(data)
    return directory


@contextmanager
def _open_consumer_and_transaction(address: str) -> Iterator[None]:
    """Keep a member in the group, and a transaction open."""
    from confluent_kafka import Consumer, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "client.id": "billing-service-7d9f8b6c5d-x2x4z",
            "group.instance.id": "billing-service-7d9f8b6c5d-x2x4z-instance-0",
        }
    )
    producer = Producer({"bootstrap.servers": address, "transactional.id": GROUP})
    consumer.subscribe([TOPIC])
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0)
    producer.flush(120)
    while not consumer.assignment():
        consumer.poll(0.1)
    try:
        yield
    finally:
        producer.abort_transaction(30)
        consumer.close()


def _tables_of(line: str, names: dict[str, str]) -> list[Table]:
    """Run `line` and return its tables, in the order of printing."""
    _, tables, errors = _run(line, names)
    assert tables, f"{line}: {errors}"
    return tables


def _run(line: str, names: dict[str, str]) -> tuple[int, list[Table], str]:
    words = [word.format(**names) for word in shlex.split(line)]
    if (
        words[0] not in {"dump-log", "repair-log", "profile"}
        and "--explain" not in words
        and "-D" not in words
    ):
        words += ["-b", names["address"]]
    shown: list[Table] = []

    def show(_: Output, tables: list[Table]) -> None:
        shown.extend(_same(table, names) for table in tables)

    with (
        mock.patch.object(output.Output, "_show_tables", show),
        mock.patch.object(output.Output, "plan", lambda self, table: show(self, [table])),
        mock.patch.object(output.Output, "write_buffered"),
        mock.patch.object(sys, "stderr", io.StringIO()) as errors,
    ):
        status = app.run(words)
    return status, shown, errors.getvalue()


def _same(table: Table, names: dict[str, str]) -> Table:
    """Return `table` with the same values in every run."""
    rows = [{key: _same_value(key, row[key], names) for key in row} for row in table.rows]
    return Table(table.columns, rows, str(_same_value("", table.heading, names)))


def _same_value(key: str, value: object, names: dict[str, str]) -> object:
    if key in _VARYING_COLUMNS:
        return _VARYING_COLUMNS[key]
    if isinstance(value, list | tuple):
        return [_same_value("", it, names) for it in value]
    if not isinstance(value, str):
        return value
    value = value.replace(names["dir"], "/mnt/disk-1/kafka")
    for pattern, replacement in _VARYING:
        value = pattern.sub(replacement, value)
    return value


def run_cases() -> Iterator[tuple[str, list[Table]]]:
    """Run all cases; yield each command line with its tables."""
    with _running_cluster() as names:
        for line in CASES:
            yield line, _tables_of(line, names)


def lines_on_terminals(tables: list[Table]) -> str:
    """Return what is printed on terminals of the WIDTHS."""
    return "".join(f"=== {width} columns\n{_rendered(tables, width)}" for width in WIDTHS)


def _rendered(tables: list[Table], width: int) -> str:
    data = io.BytesIO()
    shown = Output(data=data, color=False, is_terminal=True, width=width)
    shown.show([], name="", tables=tables)
    return data.getvalue().decode()


def path_of(line: str, suffix: str) -> Path:
    """Return the file in which the tables of a command line are recorded."""
    words = [word for word in re.sub(r"\{\w+\}", "", line).split() if word not in {"-n", "-y"}]
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    return RECORDED / f"{name}.{suffix}"


def recorded(line: str) -> list[Table]:
    """Return the recorded tables of a command line."""
    return [Table(**table) for table in json.loads(path_of(line, "json").read_text())]


def record(line: str, tables: list[Table]) -> None:
    """Write both files of a command line."""
    rows = [
        {
            "columns": list(table.columns),
            "rows": [{key: row.get(key) for key in table.columns} for row in table.rows],
            "heading": table.heading,
        }
        for table in tables
    ]
    path_of(line, "json").write_text(json.dumps(rows, indent=1) + "\n")
    path_of(line, "txt").write_text(lines_on_terminals(tables))


def main() -> None:
    """Write the files of all cases; with --lines only those of lines, from the recorded rows."""
    if sys.argv[1:] == ["--lines"]:
        for line in CASES:
            path_of(line, "txt").write_text(lines_on_terminals(recorded(line)))
        return
    found = list(run_cases())
    for path in RECORDED.iterdir():
        path.unlink()
    for line, tables in found:
        record(line, tables)


if __name__ == "__main__":
    main()
