"""The steps of the demo: what each shows, and its commands as a shell takes them."""

from enum import Enum

from kctl.lazy_dataclass import dataclass

READY_FILE = "ready"


class Mode(Enum):
    """How the demo runs a command."""

    # Until it ends.
    FOREGROUND = 0
    # While others run; the brokers run so until the demo ends.
    BROKERS = 1
    LOAD = 2
    # Ends the load, and shows what it printed.
    END_LOAD = 3
    # Needs the extra `export`.
    TABLE = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A command of a step."""

    command: str
    mode: Mode = Mode.FOREGROUND
    # verify-log exits with 1 when it finds damage.
    status: int = 0
    # Lines of its output that are shown, from the end.
    lines_shown: int = 12


@dataclass(frozen=True, slots=True)
class Step:
    """A heading, a sentence of explanation, and commands."""

    title: str
    note: str
    lines: tuple[Line, ...]


_LOG = "cluster/broker-1/logs/invoices-0"

STORY = (
    Step(
        "A cluster of three brokers",
        "Each broker is a process with its own data directory. No JVM, no ZooKeeper.",
        (
            Line(
                "kctl serve --brokers 3 --racks a,b,c --port 0 --data-dir cluster"
                f" --ready-file {READY_FILE}"
                " \\\n    -c offsets.topic.replication.factor=2 -c offsets.topic.num.partitions=4"
                " 2> serve.log",
                Mode.BROKERS,
            ),
            Line("kctl broker list --data-dir cluster"),
        ),
    ),
    Step(
        "A topic with 20,000 orders",
        "Any Kafka client could write them.",
        (
            Line("kctl topic create orders -p 6 -r 2"),
            Line("seq 20000 | sed 's/.*/customer-&:order &/' | kctl produce orders -S :"),
        ),
    ),
    Step(
        "A consumer group that is behind",
        "It has read 12,000 orders and stopped.",
        (
            Line("kctl consume orders -g billing -B -m 12000 > /dev/null"),
            Line("kctl group describe billing --by-topic"),
        ),
    ),
    Step(
        "Broker 3 retires under load",
        "A producer keeps writing while all replicas move to the other brokers.",
        (
            Line(
                "while [ ! -e enough ]; do seq 100; sleep 0.1; done | kctl produce orders",
                Mode.LOAD,
            ),
            Line("kctl broker decommission 3 --yes"),
            Line("kctl topic describe orders"),
            Line("touch enough", Mode.END_LOAD),
        ),
    ),
    Step(
        "A bit flips on a disk",
        "Broker 1 holds the only replica of invoices. One byte of its second batch changes.",
        (
            Line("kctl topic create invoices --replica-assignment 1"),
            Line("for i in 1 2 3; do seq 100 | kctl produce invoices; done", lines_shown=3),
            Line("kctl broker stop 1 --data-dir cluster"),
            Line(
                "printf '\\377' | dd bs=1 seek=1500 conv=notrunc status=none"
                f" \\\n    of={_LOG}/00000000000000000000.log"
            ),
            Line(f"kctl verify-log {_LOG}", status=1),
        ),
    ),
    Step(
        "The damage is repaired",
        "The damaged batch is removed and kept in a backup; all other records keep their offsets.",
        (
            Line(f"kctl repair-log --apply {_LOG}"),
            Line(f"kctl verify-log {_LOG}"),
            Line("kctl broker restart 1 --data-dir cluster"),
            Line("kctl consume invoices --exit --from-beginning | wc -l"),
        ),
    ),
    Step(
        "From topic to table",
        "Records become Parquet files that Spark, DuckDB and pandas read.",
        (
            Line("kctl export -t invoices --out invoices", Mode.TABLE),
            Line("ls invoices", Mode.TABLE),
        ),
    ),
)
