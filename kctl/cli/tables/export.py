"""kctl export: exports records of log directories or live brokers to tables."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import (
    READS,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.output import OutputFormat
from kctl.cli.read_options import OffsetOption, PartitionOption, partition_numbers
from kctl.cli.session import Session
from kctl.cli.tables.explain import explain
from kctl.cli.tables.export_schema import SchemaOptions, registry_reader, value_schema
from kctl.cli.tables.follow import RunOptions, expire, follow
from kctl.cli.tables.spark import SparkOptions
from kctl.cli.tables.table_options import FailureOptions, TableOptions
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.export.options import ExportOptions, FieldFormat, Isolation, TableFormat
from kctl.records.bulk import require_bulk
from kctl.runtime.real.paths import absolute, with_directory_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kctl.export.export import ExportReport, ExportRequest, Plan
    from kctl.export.manifest import ManifestRow
    from kctl.runtime.disk import Disk


class KeyName(StrEnum):
    """The values of `--key`."""

    RAW = "raw"
    STRING = "string"


OutOption = Annotated[str, Option("--out", metavar="DIR", help="The table: a directory.")]
SourcesArgument = Annotated[
    list[str] | None,
    Argument(metavar="SOURCE", help="Log directory, partition directory, .log or .kafka files."),
]
TopicsOption = Annotated[
    list[str] | None,
    Option("--topic", "-t", metavar="NAME", help="Topic or pattern; may be repeated."),
]
TableFormatOption = Annotated[TableFormat, Option("--format", "-f", help="File or table format.")]
ValueOption = Annotated[FieldFormat, Option("--value", help="How values are decoded.")]
KeyOption = Annotated[KeyName, Option("--key", help="How keys are decoded.")]
IsolationOption = Annotated[
    Isolation, Option("--isolation", help="Read all records, or only committed ones.")
]
# Endings of files, with which a user may expect --out to be one.
_FILE_ENDINGS = (".parquet", ".orc", ".csv", ".json", ".jsonl", ".ndjson")


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "export", READS)(export)


def export(
    session: Session,
    out: OutOption,
    sources: SourcesArgument = None,
    topics: TopicsOption = None,
    partition: PartitionOption = None,
    offset: OffsetOption = None,
    table_format: TableFormatOption = TableFormat.PARQUET,
    value: ValueOption = FieldFormat.RAW,
    key: KeyOption = KeyName.RAW,
    *,
    schema: SchemaOptions,
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED,
    table: TableOptions,
    failures: FailureOptions,
    running: RunOptions,
    on_spark: SparkOptions,
) -> int:
    """Export records to a table: Parquet, ORC, CSV, JSON lines, Delta or Iceberg.

    SOURCE is read without a broker and is a local path or a URL (s3://, gs://, hdfs://). Without
    SOURCE, records are fetched from the brokers of -b. The columns are those of Spark's Kafka
    source. A repeated run continues where an interrupted one stopped, adds new records, and never
    adds a record twice. Damage is reported on stderr, and the exit status is then 1. --follow keeps
    the table current until Ctrl-C or SIGTERM; new topics and partitions are included.

    \b
    Examples:
      kctl export /data --topic orders --out /tables/orders
      kctl export /data -t 'orders*' --partition-by topic,date --value json --out /tables/orders
      kctl export -b broker1:9092 -t orders --offset @-1h --out /tables/last-hour
      kctl export --explain /data -t orders --offset 1000.. --out /tables/orders
      kctl export /data/orders-0 --format ndjson --isolation read_committed --out /tmp/orders
      kctl export /data -t users --value avro --registry http://registry:8081 --out /tables/users
      kctl export /data -t users --value json --dead-letters /tables/bad --out /tables/users
      kctl export /archive/kafka-0.7 -t clicks --value string --out /tables/clicks
      kctl export --follow --every 30s -b broker1:9092 -t 'orders*' --out /tables/orders
      kctl export --follow /data -t orders -f delta --compression snappy --out /tables/orders
      kctl export --follow -b broker1:9092 -t users --latest-per-key -f delta --out /tables/users
      kctl export --follow --spark --master spark://head:7077 -b b:9092 -t a --out /nfs/a
      kctl export --follow --retention 30d --partition-by date -b broker1:9092 -t clicks --out /t
      kctl export --follow --metrics-port 9406 -b broker1:9092 -t clicks --out /tables/clicks
      kctl export /data -f iceberg --catalog prod --catalog-table sales.orders --out /tables/orders
      kctl export --spark --master spark://head:7077 /nfs/data -t orders --out /nfs/tables/orders
    """
    require_bulk("kctl export", "spark" if on_spark.spark else "export")
    from kctl.cli.positions import check_offline, parse_range
    from kctl.export.export import ExportRequest

    known, writers = value_schema(schema, value.value, topics or [], out)
    options = ExportOptions(
        table_format,
        key_format=FieldFormat(key.value),
        value_format=value,
        value_schema=known,
        value_writers=writers,
        isolation=isolation,
        **table.chosen(),
        **failures.chosen(session.runtime.disk, out, has_registry=schema.registry is not None),
    )
    _check_name(session, out)
    place = _place(session.runtime.disk, out, options)
    numbers = partition_numbers(partition) or []
    request = ExportRequest(sources or [], place, options, topics or [], numbers)
    request.schemas = registry_reader(schema, value.value, topics or [])
    request.bounds = parse_range(offset or "earliest", session.now_ms())
    if request.sources:
        check_offline(request.bounds)
    running.check(offset)
    return _run(session, request, out, running, on_spark)


def _run(
    session: Session,
    request: "ExportRequest",
    out: str,
    running: RunOptions,
    on_spark: SparkOptions,
) -> int:
    request.run = f"{session.now_ms():x}-{session.runtime.entropy.random_bytes(4).hex()}"
    on_spark.check()
    request.sources = with_directory_names(request.sources)
    if on_spark.spark:
        # Executors run in other directories.
        request.sources, (request.out,) = absolute(request.sources), absolute([request.out])
    if running.retention_ms is not None:
        from kctl.export.expiry import Expiry

        request.retention_ms = running.retention_ms
        Expiry(request.out, request.options, running.retention_ms)
    if running.explain:
        explain(session, request, out, on_spark, running.jobs)
        return DONE
    report: ExportReport | None
    if running.follow:
        report, status = follow(session, request, running, on_spark)
        return status if report is None else _show(session, report, out, is_said=True) or status
    if on_spark.spark:
        report = _on_spark(session, request, on_spark)
    else:
        report = _here(session, request, running.jobs)
    expire(session, request, running.retention_ms)
    return _show(session, report, out)


def _check_name(session: Session, out: str) -> None:
    """Print a note if the table's directory has a name that suggests a single file; raise
    UsageError if it is a file."""
    if Path(out).is_file():
        raise UsageError(f"{out} is a file", hint="--out names a directory, which holds the files")
    if out == "-":
        raise UsageError(
            "a table is a directory, and cannot be written to standard output",
            hint="for a pipe: kctl consume TOPIC -o ndjson --exit, or kctl dump-log -o ndjson",
        )
    if not out.endswith("/") and out.lower().endswith(_FILE_ENDINGS):
        session.output.say(f"note: {out} becomes a directory, which holds the files of the table")


def _here(session: Session, request: "ExportRequest", jobs: int | None) -> "ExportReport":
    return _from_files(request, jobs) if request.sources else _from_brokers(session, request)


def _from_files(request: "ExportRequest", jobs: int | None) -> "ExportReport":
    from kctl.cli.progress import ProgressBar
    from kctl.export.export import export_logs
    from kctl.runtime.real.processes import core_count

    bars: list[ProgressBar] = []
    records = 0

    def runner(plan: "Plan") -> "Iterable[ManifestRow]":
        from functools import partial

        from kctl.export.export import work
        from kctl.runtime.real.processes import map_in_processes

        bars.append(ProgressBar(plan.size))
        processes = positive(jobs, "--jobs") or core_count()
        return map_in_processes(partial(work, plan.task()), plan.items(), processes, draw)

    def draw(done: int) -> None:
        bars[0].update(done, detail=f", {counted(records, 'record', ',')}" if records else "")

    def count(row: "ManifestRow") -> None:
        nonlocal records
        records += row.rows

    try:
        return export_logs(request, runner, on_row=count)
    finally:
        for bar in bars:
            bar.close()


def _on_spark(session: Session, request: "ExportRequest", on_spark: SparkOptions) -> "ExportReport":
    from kctl.cli.tables.spark import export_progress, spark_connection, spark_session
    from kctl.export.export import export_logs
    from kctl.export.spark.runner import spark_runner, work_on_files
    from kctl.export.spark.task_times import TaskTime, summary

    times: list[TaskTime] = []
    clock = session.runtime.clock
    if request.sources:
        with spark_session(on_spark) as running, export_progress(running) as shown:
            runner = spark_runner(running, work_on_files, clock, times.extend, shown.counter)
            report = export_logs(request, runner, shown.begin)
        _say_all(session, summary(times))
        return report
    from kctl.export.live import export_live_by, prepare_live
    from kctl.export.spark.brokers import WorkOnBrokers

    prepared = session.run(lambda admin: prepare_live(admin, request))
    connection = spark_connection(session)
    with spark_session(on_spark) as running, export_progress(running) as shown:
        work = WorkOnBrokers(connection)
        runner = spark_runner(running, work, clock, times.extend, shown.counter)
        report = export_live_by(
            runner, prepared.ranges, prepared.request, prepared.per_offset, shown.begin
        )
    _say_all(session, summary(times))
    return report


def _say_all(session: Session, lines: "Iterable[str]") -> None:
    for line in lines:
        session.output.say(line)


def _from_brokers(session: Session, request: "ExportRequest") -> "ExportReport":
    from kctl.cli.progress import ProgressBar
    from kctl.export.live import export_topics

    bars: list[ProgressBar] = []

    def draw(done: int, total: int) -> None:
        if not bars:
            bars.append(ProgressBar(total, unit="offsets"))
        bars[0].update(done)

    try:
        return session.run(lambda admin: export_topics(admin, request, progress=draw))
    finally:
        for bar in bars:
            bar.close()


def _show(session: Session, report: "ExportReport", out: str, *, is_said: bool = False) -> int:
    output = session.output
    for damage in report.damages if not is_said else []:
        output.say(f"error: {damage}")
    document: dict[str, object] = {
        "out": out,
        "rows": report.rows,
        "earlier_rows": report.earlier_rows,
        "files": report.files,
        "file_bytes": report.file_bytes,
        "log_bytes": report.log_bytes,
        "partitions": report.partitions,
        "undecodable": report.undecodable,
        "damaged_ranges": len(report.damages),
    }
    if report.dead_letters or output.format is not OutputFormat.TABLE:
        document["dead_letters"] = report.dead_letters
    if output.format is not OutputFormat.TABLE:
        document["damages"] = [str(damage) for damage in report.damages]
    output.show([document], list(document), name="out")
    return FAILED if report.damages or report.problems else DONE


def _place(disk: "Disk", out: str, options: ExportOptions) -> str:
    """Return the table's directory; a lake's is absolute, as its log names files by absolute path.

    UsageError if it is inside a broker's log directory, or if the lake's library is not installed.
    """
    from kctl.storage.log_directory_locks import check_outside

    if "://" not in out:
        check_outside(disk, out, "A table")
    if not options.table_format.is_lake:
        return out
    from kctl.export.lake import check_lake

    place = out if "://" in out else str(Path(out).resolve())
    check_lake(options.table_format, options, place)
    return place
