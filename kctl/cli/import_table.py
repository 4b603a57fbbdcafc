"""kctl import: tables into a stopped broker's log directory, or to live brokers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import DANGEROUS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.items import counted, positive
from kctl.cli.output import Table
from kctl.cli.produce import Codec
from kctl.cli.session import Session
from kctl.cli.spark import (
    DEFAULT_MASTER,
    ConfOption,
    MasterOption,
    SparkOption,
    check_spark_options,
    spark_session,
)
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.bulk_load.live import LiveReport
    from kctl.bulk_load.load import Runner
    from kctl.bulk_load.plan import LoadOptions, LoadPlan, TablePlaces

_COLUMNS = ("partition", "first_offset", "end_offset", "rows", "segments", "bytes")
# A topic deletes what is older, unless it is told otherwise.
_RETENTION_MS = 7 * 86_400_000


class TableName(StrEnum):
    """What `--format` takes: see kctl.bulk_load.tables.TableFormat, which would load Arrow."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    NDJSON = "ndjson"


class OrderName(StrEnum):
    """What `--order-by` takes."""

    TIMESTAMP = "timestamp"
    OFFSET = "offset"


TablesArgument = Annotated[
    list[str], typer.Argument(metavar="TABLE...", help="Files, or directories of them; or URLs.")
]
IntoOption = Annotated[
    str | None,
    typer.Option("--into", metavar="DIR", help="Log directory of a broker that is stopped."),
]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="NAME", help="[default: the column topic]"),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", "-p", metavar="N", help="Of a topic that is new in DIR."),
]
RepartitionOption = Annotated[
    bool, typer.Option("--repartition", help="Go by the keys, not by the column partition.")
]
OrderOption = Annotated[
    OrderName | None,
    typer.Option("--order-by", help="Within partitions. [default: the order of the rows]"),
]
CodecOption = Annotated[Codec, typer.Option("--compression", "-z", help="Codec of the batches.")]
SegmentOption = Annotated[
    str, typer.Option("--segment-size", metavar="SIZE", help="Begin a new segment beyond it.")
]
FormatOption = Annotated[
    TableName | None, typer.Option("--format", "-f", help="[default: told by the name]")
]
SkipOption = Annotated[
    int, typer.Option("--skip", metavar="ROWS", min=0, help="To live brokers: without the first.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", help="Processes. [default: one a core]"),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    remote_command(app, "import", DANGEROUS)(import_table)


def import_table(
    session: Session,
    tables: TablesArgument,
    into: IntoOption = None,
    topic: TopicOption = None,
    partitions: PartitionsOption = None,
    repartition: RepartitionOption = False,
    order_by: OrderOption = None,
    compression: CodecOption = Codec.LZ4,
    segment_size: SegmentOption = "1GiB",
    table_format: FormatOption = None,
    skip: SkipOption = 0,
    jobs: JobsOption = None,
    spark: SparkOption = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> int:
    """Turn the rows of a table into records: files of Parquet, ORC, CSV or JSON lines.

    Columns are those of `kctl export`: key, value, and if they are there topic, partition,
    timestamp, headers. Rows that name no partition go where Kafka's clients would send their keys.

    With --into, segments are written straight into the log directory of a broker that is stopped;
    a new topic is then created with as many partitions, or adopted by `kctl serve` on new
    metadata. Without, records go to the brokers of -b, whose topics must be there. The plan is
    shown first; a run that died is taken up by the same command.

    \b
    Examples:
      kctl import orders.parquet --into /data --topic orders --partitions 6
      kctl import /tables/orders --into /data --yes
      kctl import users.csv -b broker1:9092 --topic users --yes
      kctl import events.ndjson --into /data -t events -p 3 --order-by timestamp --dry-run
      kctl import --spark --master spark://head:7077 /nfs/tables/orders --into /nfs/data --yes
    """
    from kctl.bulk_load.plan import LoadOptions
    from kctl.bulk_load.tables import TableFormat
    from kctl.cli.export import parse_size
    from kctl.records.compression import CompressionType

    check_spark_options(master, conf, is_wanted=spark)
    options = LoadOptions(
        topic,
        positive(partitions, "--partitions"),
        keeps_partitions=not repartition,
        order_by=None if order_by is None else order_by.value,
        compression_type=CompressionType[compression.name],
        segment_bytes=min(parse_size(segment_size), (1 << 31) - 1),
        table_format=None if table_format is None else TableFormat(table_format.value),
    )
    if into is None:
        if spark or order_by or partitions or segment_size != "1GiB":
            raise UsageError(
                "--spark, --order-by, --partitions and --segment-size go with --into DIR"
            )
        return _to_brokers(session, tables, options, skip)
    if skip:
        raise UsageError("--skip goes with live brokers; --into takes up what died by itself")
    if spark:
        with spark_session(master, [*(conf or []), "spark.speculation=false"]) as running:
            return _to_files(session, tables, into, options, _on_spark(running))
    with _in_processes(positive(jobs, "--jobs")) as runner:
        return _to_files(session, tables, into, options, runner)


def _to_files(
    session: Session, tables: list[str], into: str, options: "LoadOptions", runner: "Runner"
) -> int:
    from kctl.bulk_load.load import load_files
    from kctl.runtime.real.disk import RealDisk

    disk = RealDisk()
    if not disk.exists(f"{into}/meta.properties") and disk.exists(f"{into}/logs/meta.properties"):
        into = f"{into}/logs"  # of `kctl serve --data-dir`

    def confirm(plan: "LoadPlan | None") -> bool:
        if plan is None:
            table = Table(("import",), [{"import": f"complete what was begun in {into}"}])
            return _is_wanted(session, table, "Complete it?")
        columns = ("topic", "partitions", "rows", "into")
        rows = [
            {
                "topic": name,
                "partitions": f"{plan.counts[name]} {'new' if is_new else 'appended to'}",
                "rows": plan.rows_of[name],
                "into": into,
            }
            for name, is_new in {it.topic: it.is_new for it in plan.targets}.items()
        ]
        return _is_wanted(session, Table(columns, rows), f"Import {plan.rows} rows?")

    report = load_files(disk, tables, into, options, session.now_ms(), runner, confirm)
    if report is None:
        return DONE
    if report.is_taken_up:
        session.output.say("note: an earlier run of this import was taken up")
    newest = max((it.max_timestamp for it in report.loaded), default=-1)
    if 0 <= newest < session.now_ms() - _RETENTION_MS:
        session.output.say(
            "note: all records are older than a week: see that retention.ms of the topics is "
            "larger before the broker starts"
        )
    documents = [
        {
            "partition": f"{it.topic}-{it.partition}", "first_offset": it.first_offset,
            "end_offset": it.end_offset, "rows": it.rows, "segments": len(it.segments),
            "bytes": it.bytes,
        }
        for it in report.loaded
    ]  # fmt: skip
    session.output.show(documents, _COLUMNS, name="partition")
    return DONE


def _is_wanted(session: Session, plan: Table, question: str) -> bool:
    if session.dry_run:
        session.output.show(plan.rows, plan.columns, name=plan.columns[0])
        return False
    return session.confirm(plan, question)


def _to_brokers(session: Session, tables: list[str], options: "LoadOptions", skip: int) -> int:
    from kctl.bulk_load.live import load_live
    from kctl.bulk_load.plan import find_places
    from kctl.bulk_load.tables import find_parts
    from kctl.cli.progress import ProgressBar

    parts = find_parts(tables, options.table_format)
    places = find_places(parts, options)
    if not _is_wanted(session, _live_plan(places), f"Write {places.rows - skip} records?"):
        return DONE
    size = sum(part.size for part in parts)
    bar = ProgressBar(size)

    async def work(admin: "AdminClient") -> "LiveReport":
        return await load_live(
            admin.router, parts, options, session.now_ms(), skip=skip,
            timeout_ms=session.settings.timeout_ms,
            progress=lambda rows: bar.update(size * rows // places.rows),
        )  # fmt: skip

    try:
        report = session.run(work)
    finally:
        bar.close()
    documents = [{"topic": name, "rows": rows} for name, rows in report.rows.items()]
    session.output.show(documents, ("topic", "rows"), name="topic")
    session.output.say(f"{counted(report.total, 'record')} written")
    return DONE


def _live_plan(places: "TablePlaces") -> Table:
    rows = [{"topic": name, "rows": found.rows} for name, found in places.topics.items()]
    return Table(("topic", "rows"), rows)


@contextmanager
def _in_processes(jobs: int | None) -> "Iterator[Runner]":
    from kctl.cli.progress import ProgressBar
    from kctl.runtime.real.processes import core_count, map_in_processes

    bars: list[ProgressBar] = []
    table_bytes = 0

    def runner(work: Callable[[Any, Any], Any], items: Sequence[Any], total: int) -> Iterable[Any]:
        nonlocal table_bytes
        # First the table is read, then as many rows are written: both are shown as its bytes.
        table_bytes = table_bytes or total
        for bar in bars:
            bar.close()
        bars.append(ProgressBar(table_bytes))
        scale = table_bytes / max(1, total)
        return map_in_processes(
            work, items, jobs or core_count(), lambda done: bars[-1].update(round(done * scale))
        )

    try:
        yield runner
    finally:
        for bar in bars:
            bar.close()


def _on_spark(running: Any) -> "Runner":
    from kctl.export.spark.runner import spark_map

    def runner(work: Callable[[Any, Any], Any], items: Sequence[Any], _total: int) -> Iterable[Any]:
        return spark_map(running, work, items)

    return runner
