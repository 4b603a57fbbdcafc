"""kctl export --explain: shows what an export would read, and where its tasks would run."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kctl.cli.items import positive
from kctl.cli.output import OutputFormat
from kctl.cli.session import Session
from kctl.cli.tables.spark import SparkOptions
from kctl.cli.units import format_bytes
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.export.explain import ExportPlan
    from kctl.export.export import ExportRequest

_COLUMNS = ("partition", "offsets", "exported", "to_read", "segments", "bytes", "tasks")


def explain(
    session: Session, request: "ExportRequest", out: str, on_spark: SparkOptions, jobs: int | None
) -> None:
    """Print a row for each partition, and a summary on stderr; nothing is written and Spark is not
    started. Raise what the export would raise before it reads records."""
    from kctl.export.explain import explain_live, explain_logs

    if request.sources:
        plan = explain_logs(request)
    else:
        plan = session.run(lambda admin: explain_live(admin, request))
    _show(session, plan, is_live=not request.sources)
    output = session.output
    size = f" ({format_bytes(plan.bytes)})" if plan.bytes else ""
    partitions = counted(sum(it.offsets > 0 for it in plan.partitions), "partition")
    output.say(
        f"would read {counted(plan.offsets, 'offset', ',')}{size} of {partitions}"
        f" in {counted(plan.tasks, 'task')} {_where(request, on_spark, jobs)}"
    )
    if request.retention_ms is not None:
        output.say(_expiry(request, request.retention_ms, session.now_ms()))
    output.say(f"would write {request.options.table_format.value} to {out}; nothing is written now")


def _expiry(request: "ExportRequest", retention_ms: int, now_ms: int) -> str:
    """Return what would be removed from the table as it is."""
    from kctl.export.expiry import Expiry

    expiry = Expiry(request.out, request.options, retention_ms)
    before = datetime.fromtimestamp(expiry.before_ms(now_ms) / 1000, UTC)
    text = f"would remove what is before {before:%Y-%m-%d %H:%M} UTC"
    if request.options.table_format.is_lake:
        return text
    found = list(expiry.old_files(now_ms))
    return (
        f"{text}: {counted(len(found), 'file', ',')} ({format_bytes(sum(it.size for it in found))})"
    )


def _where(request: "ExportRequest", on_spark: SparkOptions, jobs: int | None) -> str:
    from kctl.runtime.real.processes import core_count

    if on_spark.spark:
        return f"on Spark ({on_spark.master})"
    if not request.sources:
        return "in this process"
    processes = positive(jobs, "--jobs") or core_count()
    return "in one process" if processes == 1 else f"in up to {processes} processes"


def _show(session: Session, plan: "ExportPlan", *, is_live: bool) -> None:
    is_table = session.output.format is OutputFormat.TABLE
    documents = []
    for it in plan.partitions:
        document = {
            "partition": str(it.partition), "first_offset": it.first_offset,
            "end_offset": it.end_offset, "exported": it.exported, "to_read": it.offsets,
            "bytes": it.bytes, "tasks": it.tasks,
        }  # fmt: skip
        if not is_live:
            document |= {
                "segments": it.segments, "all_segments": it.all_segments, "all_bytes": it.all_bytes,
            }  # fmt: skip
        if is_table:
            document["offsets"] = f"{it.first_offset}..{it.end_offset}"
            if not is_live:
                document["segments"] = f"{it.segments} of {it.all_segments}"
                document["bytes"] = f"{it.bytes} of {it.all_bytes}"
        documents.append(document)
    shown = _COLUMNS if is_table else list(documents[0]) if documents else _COLUMNS
    session.output.show(
        documents, [it for it in shown if it != "segments" or not is_live], name="partition"
    )
