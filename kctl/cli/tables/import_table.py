"""kctl import: imports tables into a stopped broker's log directory, or to live brokers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import (
    COUNT,
    DANGEROUS,
    INT32_COUNT,
    NUMBER,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, exit_status_of
from kctl.cli.failures import report as report_error
from kctl.cli.items import positive
from kctl.cli.output import Table
from kctl.cli.records.produce import Codec
from kctl.cli.session import Session
from kctl.cli.tables.spark import SparkOptions, spark_session
from kctl.cli.units import parse_size
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.records.bulk import require_bulk
from kctl.runtime.real.paths import absolute

if TYPE_CHECKING:
    from kctl.table_import.import_files import Runner
    from kctl.table_import.import_plan import LoadOptions, LoadPlan, TablePlaces

_COLUMNS = ("partition", "first_offset", "end_offset", "rows", "segments", "bytes")
# The default retention.ms.
_RETENTION_MS = 7 * 86_400_000


class TableName(StrEnum):
    """The values of `--format`: those of kctl.table_import.tables.TableFormat, which would import
    Arrow."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    NDJSON = "ndjson"


class OrderName(StrEnum):
    """The values of `--order-by`."""

    TIMESTAMP = "timestamp"
    OFFSET = "offset"


TablesArgument = Annotated[
    list[str], Argument(metavar="TABLE...", help="Files, directories or URLs.")
]
IntoOption = Annotated[
    str | None,
    Option("--into", metavar="DIR", help="Log directory of a stopped broker."),
]
TopicOption = Annotated[
    str | None,
    Option("--topic", "-t", metavar="NAME", help="Topic of all rows. [default: the column topic]"),
]
PartitionsOption = Annotated[
    int | None,
    Option("--partitions", "-p", metavar="N", help="Partitions of a topic that is new in DIR."),
    INT32_COUNT,
]
RepartitionOption = Annotated[
    bool,
    Option("--repartition", help="Assign partitions by key, not by the column partition."),
]
OrderOption = Annotated[
    OrderName | None,
    Option("--order-by", help="Sort each partition. [default: the order of the rows]"),
]
CodecOption = Annotated[Codec, Option("--compression", "-z", help="Codec of the batches.")]
SegmentOption = Annotated[
    str, Option("--segment-size", metavar="SIZE", help="Maximum size of a segment.")
]
FormatOption = Annotated[
    TableName | None,
    Option("--format", "-f", help="File format. [default: by the file name]"),
]
NullOption = Annotated[
    str | None,
    Option("--null", metavar="TEXT", help="CSV: the text that means a null key or value, e.g. ''."),
]
SkipOption = Annotated[
    int,
    Option("--skip", metavar="ROWS", help="Skip the first rows (live brokers only)."),
    NUMBER,
]
JobsOption = Annotated[
    int | None,
    Option("--jobs", "-j", metavar="N", help="Number of processes. [default: one per core]"),
    COUNT,
]


def register(app: CommandGroup) -> None:
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
    null: NullOption = None,
    skip: SkipOption = 0,
    jobs: JobsOption = None,
    *,
    on_spark: SparkOptions,
) -> int:
    """Import the rows of a table as records: Parquet, ORC, CSV or JSON lines files.

    The columns are those of `kctl export`: key, value, and optionally topic, partition, timestamp,
    headers. Rows that name no partition go where Kafka's clients would send their keys.

    With --into, segments are written directly to the log directory of a stopped broker; a new topic
    must then be created with as many partitions, or is adopted by `kctl serve` on new metadata.
    Without --into, records are sent to the brokers of -b, where the topics must exist. All rows are
    checked and the plan is shown before the first record is written. Repeat the command to continue
    an interrupted import.

    An empty value in CSV is an empty value, not a tombstone, unless --null '' is given.

    \b
    Examples:
      kctl import orders.parquet --into /data --topic orders --partitions 6
      kctl import /tables/orders --into /data --yes
      kctl import users.csv -b broker1:9092 --topic users --yes
      kctl import users.csv -b broker1:9092 --topic users --null '' --dry-run
      kctl import events.ndjson --into /data -t events -p 3 --order-by timestamp --dry-run
      kctl import --spark --master spark://head:7077 /nfs/tables/orders --into /nfs/data --yes
    """
    require_bulk("kctl import", "spark" if on_spark.spark else "export")
    from kctl.records.compression import CompressionType
    from kctl.table_import.import_plan import LoadOptions
    from kctl.table_import.tables import TableFormat

    on_spark.check()
    options = LoadOptions(
        topic,
        positive(partitions, "--partitions"),
        keeps_partitions=not repartition,
        order_by=None if order_by is None else order_by.value,
        compression_type=CompressionType[compression.name],
        segment_bytes=min(parse_size(segment_size), (1 << 31) - 1),
        table_format=None if table_format is None else TableFormat(table_format.value),
        null_text=null,
    )
    _say_unknown_columns(session, tables, options)
    if into is None:
        if on_spark.spark or order_by or partitions or jobs or segment_size != "1GiB":
            raise UsageError(
                "--spark, --jobs, --order-by, --partitions and --segment-size go with --into DIR"
            )
        return _to_brokers(session, tables, options, skip)
    if skip:
        raise UsageError("--skip is for live brokers; --into resumes an interrupted import")
    if on_spark.spark:
        tables, into = absolute(tables), absolute([into])[0]
        with spark_session(on_spark, ("spark.speculation=false",)) as running:
            return _to_files(session, tables, into, options, _on_spark(running))
    with _in_processes(positive(jobs, "--jobs")) as runner:
        return _to_files(session, tables, into, options, runner)


def _to_files(
    session: Session, tables: list[str], into: str, options: "LoadOptions", runner: "Runner"
) -> int:
    from kctl.runtime.real.disk import RealDisk
    from kctl.table_import.import_files import load_files

    disk = RealDisk()
    if not disk.exists(f"{into}/meta.properties") and disk.exists(f"{into}/logs/meta.properties"):
        into = f"{into}/logs"  # of `kctl serve --data-dir`

    def confirm(plan: "LoadPlan | None") -> bool:
        if plan is None:
            table = Table(("import",), [{"import": f"complete the interrupted import into {into}"}])
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
        return _is_wanted(session, Table(columns, rows), f"Import {counted(plan.rows, 'row')}?")

    report = load_files(disk, tables, into, options, session.now_ms(), runner, confirm)
    if report is None:
        return DONE
    if report.is_taken_up:
        session.output.say("note: continued an earlier run of this import")
    newest = max((it.max_timestamp for it in report.loaded), default=-1)
    if 0 <= newest < session.now_ms() - _RETENTION_MS:
        session.output.say(
            "note: all records are older than a week: raise the topics' retention.ms before the "
            "broker starts"
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
    from kctl.cli.progress import ProgressBar
    from kctl.table_import.import_live import Interrupted, check_live, load_live
    from kctl.table_import.import_plan import check_rows
    from kctl.table_import.tables import find_parts

    parts = find_parts(tables, options.table_format, options.null_text)
    places = check_rows(parts, options, session.now_ms())
    if skip > places.rows:
        raise UsageError(f"--skip {skip}: the table has {counted(places.rows, 'row')}")
    counts = session.run(lambda admin: check_live(admin.router, places))
    if not _is_wanted(
        session, _live_plan(places, counts), f"Write {counted(places.rows - skip, 'record')}?"
    ):
        return DONE
    size = sum(part.size for part in parts)
    bar = ProgressBar(size)

    try:
        report = session.run(
            lambda admin: load_live(
                admin.router, parts, options, session.now_ms(), skip=skip,
                timeout_ms=session.settings.timeout_ms,
                progress=lambda rows: bar.update(size * rows // places.rows),
            )
        )  # fmt: skip
    except Interrupted as stopped:
        bar.close()
        report_error(stopped)
        return exit_status_of(stopped.cause)
    finally:
        bar.close()
    documents = [{"topic": name, "rows": rows} for name, rows in report.rows.items()]
    session.output.show(documents, ("topic", "rows"), name="topic")
    session.output.say(f"{counted(report.total, 'record')} written")
    return DONE


def _live_plan(places: "TablePlaces", counts: dict[str, int]) -> Table:
    rows = [
        {"topic": name, "partitions": counts[name], "rows": found.rows}
        for name, found in places.topics.items()
    ]
    return Table(("topic", "partitions", "rows"), rows)


def _say_unknown_columns(session: Session, tables: list[str], options: "LoadOptions") -> None:
    from kctl.table_import.tables import find_parts, unknown_columns

    unknown = unknown_columns(find_parts(tables, options.table_format, options.null_text))
    if unknown:
        session.output.say(
            f"warning: columns that are not imported: {', '.join(unknown)}. The columns of records "
            "are key, value, topic, partition, timestamp, headers"
        )


@contextmanager
def _in_processes(jobs: int | None) -> "Iterator[Runner]":
    from kctl.cli.progress import ProgressBar
    from kctl.runtime.real.processes import core_count, map_in_processes

    bars: list[ProgressBar] = []
    table_bytes = 0

    def runner(work: Callable[[Any, Any], Any], items: Sequence[Any], total: int) -> Iterable[Any]:
        nonlocal table_bytes
        # The table is read, then the rows are written; both bars count the table's bytes.
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
