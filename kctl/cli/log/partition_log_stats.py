"""kctl log-stats: what logs hold, by topic or partition: of log directories, or of a cluster."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import OutputFormat
from kctl.cli.session import Session
from kctl.cli.units import format_bytes, format_duration
from kctl.errors import UsageError, not_found

if TYPE_CHECKING:
    from kctl.dump.stats import LogStats

_KEYS = ("topic", "partition")
_FIGURES = (
    "partitions", "segments", "size", "records", "batches", "records_per_batch", "ratio",
    "codecs", "oldest", "newest", "damaged_places",
)  # fmt: skip
_FILES_ONLY = ("segments", "batches", "records_per_batch", "ratio", "codecs", "damaged_places")
_SUMS = ("partitions", "segments", "size", "records", "batches", "damaged_places")

Row = dict[str, Any]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "log-stats", READS)(log_stats)


def log_stats(
    session: Session,
    paths: Annotated[
        list[str] | None,
        Argument(metavar="[PATH...]", help="Log directories, partitions' directories or files."),
    ] = None,
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", metavar="NAME", help="Only this topic.")
    ] = None,
    by_partition: Annotated[
        bool, Option("--by-partition", help="A row for each partition.")
    ] = False,
    plot: Annotated[
        bool, Option("--plot", help="Draw sizes, ages and compression as bars, too.")
    ] = False,
) -> int:
    """Show what logs hold, by topic: sizes, the ages of the first and last record, and of files
    also records per batch and compression (bytes of keys and values per byte on disk).

    With a PATH, files are read, and no broker is contacted or disturbed. Without, a cluster is
    asked: sizes are those of leaders, and records are counted by offsets, which is more than there
    are in a compacted topic. The exit status is 1 if files are damaged.

    \b
    Examples:
      kctl log-stats /data
      kctl log-stats /data/orders-0 /data/orders-1 --by-partition --plot
      kctl log-stats -t orders --plot
      kctl log-stats -b kafka:9092 -o json
    """
    if paths and session.names_a_cluster:
        raise UsageError("Files of PATH, or a cluster: not both", hint="leave out -b")
    now_ms = session.now_ms()
    rows = _rows_of_files(paths) if paths else _rows_of_cluster(session, topic or [])
    if paths and topic:
        found = {it["topic"] for it in rows}
        missing = [name for name in topic if name not in found]
        if missing:
            raise not_found("topic", missing[0], found)
        rows = [it for it in rows if it["topic"] in topic]
    if not by_partition:
        rows = _by_topic(rows)
    is_damaged = any(it["damaged_places"] for it in rows)
    _show(session, rows, now_ms, is_of_files=bool(paths), by_partition=by_partition, plot=plot)
    return FAILED if is_damaged else DONE


def _rows_of_files(paths: list[str]) -> list[Row]:
    from kctl.dump.partition_stats import partition_stats
    from kctl.runtime.real.disk import RealDisk
    from kctl.runtime.real.paths import with_directory_names

    rows = []
    for it in partition_stats(RealDisk(), with_directory_names(paths)):
        topic, number = it.partition or (it.directory, None)
        rows.append({"topic": topic, "partition": number, **_figures(it.stats)})
    return sorted(rows, key=lambda it: (it["topic"], it["partition"] or 0))


def _figures(stats: "LogStats") -> Row:
    return {
        "partitions": 1,
        "segments": stats.files,
        "size": stats.size,
        "records": stats.records,
        "batches": stats.batches,
        "stored_bytes": sum(it.stored_bytes for it in stats.by_codec.values()),
        "data_bytes": sum(it.data_bytes for it in stats.by_codec.values()),
        "codecs": sorted(stats.by_codec),
        "oldest_ms": stats.min_timestamp,
        "newest_ms": stats.max_timestamp,
        "damaged_places": stats.damaged_places,
    }


def _rows_of_cluster(session: Session, topics: list[str]) -> list[Row]:
    from kctl.admin.log_figures import log_figures

    found = session.run(lambda admin: log_figures(admin, topics))
    for note in found.notes:
        session.output.say(f"note: {note}")
    return [
        {
            "topic": it.partition.topic, "partition": it.partition.partition, "partitions": 1,
            "segments": None, "size": it.size_bytes, "records": it.records, "batches": None,
            "stored_bytes": None, "data_bytes": None, "codecs": [],
            "oldest_ms": it.oldest_ms, "newest_ms": it.newest_ms, "damaged_places": None,
        }
        for it in found.logs
    ]  # fmt: skip


def _by_topic(rows: list[Row]) -> list[Row]:
    topics: dict[str, list[Row]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    return [
        {
            "topic": topic,
            **{key: _of(sum, parts, key) for key in (*_SUMS, "stored_bytes", "data_bytes")},
            "codecs": sorted({codec for it in parts for codec in it["codecs"]}),
            "oldest_ms": _of(min, parts, "oldest_ms"),
            "newest_ms": _of(max, parts, "newest_ms"),
        }
        for topic, parts in topics.items()
    ]


def _of(choose: Callable[[Iterable[int]], int], rows: list[Row], key: str) -> int | None:
    known = [row[key] for row in rows if row[key] is not None]
    return choose(known) if known else None


def _complete(row: Row) -> Row:
    """Return the document of a row, with its quotients."""
    stored, data = row["stored_bytes"], row["data_bytes"]
    per_batch = row["records"] / row["batches"] if row["batches"] else None
    return {
        **row,
        "records_per_batch": None if per_batch is None else round(per_batch, 1),
        "ratio": round(data / stored, 2) if stored else None,
    }


def _show(
    session: Session,
    rows: list[Row],
    now_ms: int,
    *,
    is_of_files: bool,
    by_partition: bool,
    plot: bool,
) -> None:
    output = session.output
    documents = [_complete(row) for row in rows]
    if output.format is not OutputFormat.TABLE:
        columns = (*_KEYS[: 1 + by_partition], *_FIGURES[:-3], "oldest_ms", "newest_ms")
        output.show(documents, columns, name="topic")
        return
    hidden = set() if is_of_files else set(_FILES_ONLY)
    if by_partition:
        hidden.add("partitions")
    columns = (*_KEYS[: 1 + by_partition], *(it for it in _FIGURES if it not in hidden))
    shown = [
        {
            **row,
            "size": None if row["size"] is None else format_bytes(row["size"]),
            "oldest": _age(row["oldest_ms"], now_ms),
            "newest": _age(row["newest_ms"], now_ms),
        }
        for row in documents
    ]
    output.show(shown, columns, name="topic")
    if plot and rows:
        output.write("".join(f"{it}\n" for it in _plotted(documents, now_ms, output.width)))


def _age(timestamp_ms: int | None, now_ms: int) -> str | None:
    """Return how long ago that was; 0ms for a time to come."""
    return None if timestamp_ms is None else format_duration(max(now_ms - timestamp_ms, 0))


def _plotted(rows: list[Row], now_ms: int, width: int | None) -> list[str]:
    from kctl.cli.bars import Bar, bar_lines

    def label(row: Row) -> str:
        return (
            row["topic"] if row.get("partition") is None else f"{row['topic']}-{row['partition']}"
        )

    sizes = [
        Bar(label(it), it["size"], format_bytes(it["size"]))
        for it in rows
        if it["size"] is not None
    ]
    ages = [
        Bar(label(it), max(now_ms - it["oldest_ms"], 0), _age(it["oldest_ms"], now_ms) or "")
        for it in rows
        if it["oldest_ms"] is not None
    ]
    ratios = [
        Bar(label(it), it["ratio"], f"{it['ratio']:g}") for it in rows if it["ratio"] is not None
    ]
    lines = []
    for heading, bars in (
        ("size", sizes), ("age of the first record", ages), ("compression", ratios),
    ):  # fmt: skip
        if bars:
            lines += ["", heading, *bar_lines(bars, width)]
    return lines
