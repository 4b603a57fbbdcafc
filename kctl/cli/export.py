"""kctl export: records out of log directories or live brokers into tables."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import READS, remote_command
from kctl.cli.export_schema import (
    MessageOption,
    RegistryOption,
    SchemaOption,
    SchemaWords,
    SubjectOption,
    value_schema,
)
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.output import OutputFormat
from kctl.cli.read_options import OffsetOption, PartitionOption
from kctl.cli.session import Session
from kctl.cli.spark import (
    DEFAULT_MASTER,
    ConfOption,
    MasterOption,
    SparkOption,
    check_spark_options,
)
from kctl.errors import UsageError
from kctl.export.options import COLUMNS, ExportOptions, FieldFormat, Isolation, TableFormat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kctl.admin.admin_client import AdminClient
    from kctl.export.export import ExportReport, ExportRequest, Plan
    from kctl.export.live_plan import Ranges
    from kctl.export.manifest import ManifestRow
    from kctl.model import TopicPartition


class OnDamage(StrEnum):
    """What `--on-damage` takes."""

    SKIP = "skip"
    FAIL = "fail"


class KeyName(StrEnum):
    """What `--key` takes."""

    RAW = "raw"
    STRING = "string"


OutOption = Annotated[str, typer.Option("--out", metavar="DIR", help="The table's directory.")]
SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="SOURCE", help="Log directory, partition directory or .log files."),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME", help="Topic or pattern; may be repeated."),
]
TableFormatOption = Annotated[
    TableFormat, typer.Option("--format", "-f", help="What the files are.")
]
ValueOption = Annotated[FieldFormat, typer.Option("--value", help="What values hold.")]
KeyOption = Annotated[KeyName, typer.Option("--key", help="What keys hold.")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="NAME,NAME", help="Only these columns.")
]
PartitionByOption = Annotated[
    str | None,
    typer.Option("--partition-by", metavar="KEY,KEY", help="Of topic, date, hour."),
]
IsolationOption = Annotated[
    Isolation, typer.Option("--isolation", help="Whether transactions must be committed.")
]
LatestPerKeyOption = Annotated[
    bool, typer.Option("--latest-per-key", help="Only the last record of each key.")
]
OnDamageOption = Annotated[
    OnDamage, typer.Option("--on-damage", help="Go on behind damage, or stop.")
]
FileSizeOption = Annotated[
    str, typer.Option("--file-size", metavar="SIZE", help="Bytes of log for a file.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", help="Processes. [default: one a core]"),
]


def register(app: typer.Typer) -> None:
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
    schema: SchemaOption = None,
    registry: RegistryOption = None,
    subject: SubjectOption = None,
    message: MessageOption = None,
    columns: ColumnsOption = None,
    partition_by: PartitionByOption = None,
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED,
    latest_per_key: LatestPerKeyOption = False,
    on_damage: OnDamageOption = OnDamage.SKIP,
    file_size: FileSizeOption = "256MiB",
    jobs: JobsOption = None,
    spark: SparkOption = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> int:
    """Turn records into a table: Parquet, ORC, CSV, JSON lines, Delta or Iceberg.

    SOURCE is read without a broker, be it a local path or a URL (s3://, gs://, hdfs://); without
    SOURCE the records are fetched from the brokers of -b. Columns are those of Spark's Kafka
    source. Run again, the command goes on where it died, adds what is new, and nothing twice.
    Damage is told on stderr, and the exit status is then 1.

    \b
    Examples:
      kctl export /data --topic orders --out /tables/orders
      kctl export /data -t 'orders*' --partition-by topic,date --value json --out /tables/orders
      kctl export -b broker1:9092 -t orders --offset @-1h --out /tables/last-hour
      kctl export /data/orders-0 --format ndjson --isolation read_committed --out /tmp/orders
      kctl export /data -t users --value avro --registry http://registry:8081 --out /tables/users
      kctl export /data -t users --latest-per-key --value json --out /tables/users
      kctl export --spark --master spark://head:7077 /nfs/data -t orders --out /nfs/tables/orders
      kctl export --spark -b broker1:9092 -t orders --out /tables/orders
    """
    from kctl.cli.positions import parse_range
    from kctl.export.export import ExportRequest

    words = SchemaWords(value.value, schema, registry, subject, message)
    known, writers = value_schema(words, topics or [], out)
    options = ExportOptions(
        table_format,
        columns=_names(columns, "--columns") or COLUMNS,
        partition_by=_names(partition_by, "--partition-by"),
        key_format=FieldFormat(key.value),
        value_format=value,
        value_schema=known,
        value_writers=writers,
        isolation=isolation,
        latest_per_key=latest_per_key,
        fails_on_damage=on_damage is OnDamage.FAIL,
        file_bytes=parse_size(file_size),
    )
    place = _place(out, options.table_format)
    request = ExportRequest(sources or [], place, options, topics or [], _numbers(partition))
    request.bounds = parse_range(offset or "earliest", session.now_ms())
    request.run = f"{session.now_ms():x}-{session.runtime.entropy.random_bytes(4).hex()}"
    check_spark_options(master, conf, is_wanted=spark)
    if spark:
        return _show(session, _on_spark(session, request, master, conf or []), out)
    return _show(session, _here(session, request, jobs), out)


def _here(session: Session, request: "ExportRequest", jobs: int | None) -> "ExportReport":
    return _from_files(request, jobs) if request.sources else _from_brokers(session, request)


def _from_files(request: "ExportRequest", jobs: int | None) -> "ExportReport":
    from kctl.cli.progress import ProgressBar
    from kctl.export.export import export_logs
    from kctl.runtime.real.processes import core_count

    bars: list[ProgressBar] = []

    def runner(plan: "Plan") -> "Iterable[ManifestRow]":
        from functools import partial

        from kctl.export.export import work
        from kctl.runtime.real.processes import map_in_processes

        bars.append(ProgressBar(plan.size))
        processes = positive(jobs, "--jobs") or core_count()
        return map_in_processes(partial(work, plan.task()), plan.items(), processes, bars[0].update)

    try:
        return export_logs(request, runner)
    finally:
        for bar in bars:
            bar.close()


def _on_spark(
    session: Session, request: "ExportRequest", master: str, conf: list[str]
) -> "ExportReport":
    from kctl.cli.spark import spark_progress, spark_session
    from kctl.export.export import export_logs
    from kctl.export.spark.runner import spark_runner

    if request.sources:
        with spark_session(master, conf) as running, spark_progress(running) as tasks:
            return export_logs(request, spark_runner(running), lambda plan: tasks(len(plan.splits)))
    from kctl.export.live import export_live_by, with_live_schema
    from kctl.export.live_plan import bytes_per_offset
    from kctl.export.spark.brokers import Connection, WorkOnBrokers

    async def look(
        admin: "AdminClient",
    ) -> "tuple[Ranges, dict[TopicPartition, float], ExportRequest]":
        ranges = await _ranges(admin, request)
        known = await with_live_schema(admin.router, ranges, request)
        return ranges, await bytes_per_offset(admin, ranges), known

    ranges, per_offset, request = session.run(look)
    settings = session.settings
    connection = Connection(
        tuple(settings.bootstrap_servers), settings.timeout_ms, tuple(settings.properties.items())
    )
    with spark_session(master, conf) as running, spark_progress(running) as tasks:
        runner = spark_runner(running, WorkOnBrokers(connection))
        return export_live_by(
            runner, ranges, request, per_offset, lambda plan: tasks(len(plan.splits))
        )


def _from_brokers(session: Session, request: "ExportRequest") -> "ExportReport":
    from kctl.cli.progress import ProgressBar
    from kctl.export.live import export_live
    from kctl.export.live_plan import offset_count

    async def work(admin: "AdminClient") -> "ExportReport":
        ranges = await _ranges(admin, request)
        bar = ProgressBar(offset_count(ranges), unit="offsets")
        try:
            return await export_live(admin.router, ranges, request, progress=bar.update)
        finally:
            bar.close()

    return session.run(work)


async def _ranges(admin: "AdminClient", request: "ExportRequest") -> "Ranges":
    from kctl.export.live_plan import live_partitions, live_ranges
    from kctl.model import Position, PositionKind

    if not request.topics:
        raise UsageError(
            "Nothing to export: neither SOURCE nor --topic",
            hint="kctl export /data --out DIR, or kctl export -b HOST:PORT --topic NAME --out DIR",
        )
    partitions = await live_partitions(admin, request.topics, request.partitions)
    start, end = request.bounds
    stop = end or Position(PositionKind.LATEST)
    isolation = request.options.isolation
    return await live_ranges(admin, partitions, lambda _it: start, lambda _it: stop, isolation)


def _show(session: Session, report: "ExportReport", out: str) -> int:
    output = session.output
    for damage in report.damages:
        output.say(f"error: {damage}")
    document = {
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
    if output.format is not OutputFormat.TABLE:
        document["damages"] = [str(damage) for damage in report.damages]
    output.show([document], list(document), name="out")
    return FAILED if report.damages else DONE


def _place(out: str, table_format: "TableFormat") -> str:
    """The table's directory: that of a lake whole, as its log names files so. UsageError if the
    lake's library is not there."""
    if not table_format.is_lake:
        return out
    from pathlib import Path

    from kctl.export.lake import check_lake

    check_lake(table_format)
    return out if "://" in out else str(Path(out).resolve())


def _names(text: str | None, option: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise UsageError(f"{option} names nothing")
    return names


def _numbers(texts: list[str] | None) -> list[int]:
    numbers = [number.strip() for text in texts or () for number in text.split(",")]
    if not all(number.isdigit() for number in numbers):
        raise UsageError(f"Not partitions: {', '.join(texts or ())}", hint="e.g. -p 0,3")
    return sorted({int(number) for number in numbers})


_SIZE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_size(text: str) -> int:
    """`256MiB`, `1GB`, `100k`, or bytes."""
    digits = text.strip().lower().removesuffix("b")
    number = digits.rstrip("kmgi")
    unit = digits[len(number) :]
    if not number.strip().isdigit() or unit not in _SIZE_UNITS:
        raise UsageError(f"Not a size: {text}", hint="e.g. 256MiB, 1GB")
    return int(number) * _SIZE_UNITS[unit]
