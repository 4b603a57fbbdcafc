"""kctl dump-log --stats: the statistics of logs as tables and bars."""

from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Output, OutputFormat
from kctl.cli.units import format_instant
from kctl.counts import counted, offset_range

if TYPE_CHECKING:
    from kctl.cli.tables.spark import SparkOptions
    from kctl.dump.stats import LogStats

_CODEC_COLUMNS = ("codec", "batches", "records", "stored_bytes", "data_bytes", "ratio")
_BAR_WIDTH = 40
_TIME_BUCKETS = 20
_BLOCKS = " ▏▎▍▌▋▊▉█"
_MINUTE_MS = 60_000


def show_stats(output: Output, paths: list[str], top: int, spark: "SparkOptions") -> int:
    """Print the figures of the .log files at or below `paths`; FAILED if some are damaged."""
    stats = _on_spark(paths, spark) if spark.spark else _here(paths)
    document = stats_document(stats, top)
    if output.format is OutputFormat.TABLE:
        output.write(stats_text(stats, document, output.width))
    else:
        output.show_one(document, [], name="files")
    return FAILED if stats.damaged_places else DONE


def _here(paths: list[str]) -> "LogStats":
    from kctl.dump.file_stats import add_file
    from kctl.dump.partition_stats import log_files
    from kctl.dump.stats import LogStats
    from kctl.runtime.real.disk import RealDisk

    stats = LogStats()
    for file, base_offset in log_files(RealDisk(), paths):
        add_file(stats, RealDisk(), file, base_offset)
    return stats


def _on_spark(paths: list[str], spark: "SparkOptions") -> "LogStats":
    from kctl.cli.tables.spark import spark_session
    from kctl.dump.partition_stats import log_files
    from kctl.export.spark.forensics import stats_on_spark
    from kctl.runtime.real.disk import RealDisk
    from kctl.runtime.real.paths import absolute

    files = log_files(RealDisk(), absolute(paths))
    with spark_session(spark) as session:
        return stats_on_spark(session, files)


def stats_document(stats: "LogStats", top: int) -> dict[str, Any]:
    """Return the complete figures."""
    return {
        "files": stats.files,
        "size": stats.size,
        "batches": stats.batches,
        "records": stats.records,
        "control_batches": stats.control_batches,
        "transactional_batches": stats.transactional_batches,
        "damaged_places": stats.damaged_places,
        "first_offset": stats.first_offset,
        "last_offset": stats.last_offset,
        "min_timestamp": stats.min_timestamp,
        "max_timestamp": stats.max_timestamp,
        "key_bytes": stats.key_bytes,
        "value_bytes": stats.value_bytes,
        "null_keys": stats.null_keys,
        "null_values": stats.null_values,
        "codecs": [
            {
                "codec": name,
                "batches": codec.batches,
                "records": codec.records,
                "stored_bytes": codec.stored_bytes,
                "data_bytes": codec.data_bytes,
                "ratio": round(codec.ratio, 2),
            }
            for name, codec in sorted(stats.by_codec.items())
        ],
        "batch_sizes": [
            {"up_to_bytes": 2**power, "batches": count}
            for power, count in enumerate(stats.batch_sizes)
            if count
        ],
        "times": _time_buckets(stats),
        "top_keys": [
            {"key": _shown(key), "records": count} for key, count in stats.keys.most_common(top)
        ],
    }


def _time_buckets(stats: "LogStats") -> list[dict[str, Any]]:
    if not stats.minutes:
        return []
    first, last = min(stats.minutes), max(stats.minutes)
    width = max(1, -(-(last - first + 1) // _TIME_BUCKETS))
    counts = [0] * ((last - first) // width + 1)
    for minute, count in stats.minutes.items():
        counts[(minute - first) // width] += count
    return [
        {"from": format_instant((first + i * width) * _MINUTE_MS), "records": count}
        for i, count in enumerate(counts)
    ]


def _shown(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"


def stats_text(stats: "LogStats", document: dict[str, Any], width: int | None = None) -> str:
    """Return tables and bars, of at most `width` columns."""
    from kctl.cli.table_text import table_lines, wrapped_text

    offsets = "no offsets"
    if stats.first_offset is not None and stats.last_offset is not None:
        offsets = offset_range(stats.first_offset, stats.last_offset)
    times = ""
    if stats.min_timestamp is not None and stats.max_timestamp is not None:
        times = f"{format_instant(stats.min_timestamp)} to {format_instant(stats.max_timestamp)}"
    facts = (
        (
            f"{counted(stats.files, 'file')}, {counted(stats.size, 'byte')}, "
            f"{counted(stats.batches, 'batch')}, "
            f"{counted(stats.records, 'record')}"
        ),
        f"{offsets}  {times}".rstrip(),
        (
            f"keys {counted(stats.key_bytes, 'byte')} ({stats.null_keys} null), "
            f"values {counted(stats.value_bytes, 'byte')} ({stats.null_values} null)"
        ),
        (
            f"{counted(stats.transactional_batches, 'transactional batch')}, "
            f"{counted(stats.control_batches, 'control batch')}, "
            f"{counted(stats.damaged_places, 'damaged place')}"
        ),
    )
    lines = [line for fact in facts for line in wrapped_text(fact, width)]
    lines += ["", *table_lines(_CODEC_COLUMNS, document["codecs"], width)]
    sizes = [(f"<= {it['up_to_bytes']}", it["batches"]) for it in document["batch_sizes"]]
    spread = [(it["from"], it["records"]) for it in document["times"]]
    keys = [(it["key"] or "''", it["records"]) for it in document["top_keys"]]
    for heading, rows in (
        ("batches by size, bytes", sizes), ("records by time", spread), ("most common keys", keys),
    ):  # fmt: skip
        if rows:
            lines += ["", heading, *_bars(rows, width)]
    return "".join(f"{line}\n" for line in lines)


def _bars(rows: list[tuple[str, int]], width: int | None) -> list[str]:
    """Return a bar for each row, the largest over all the columns that bars have."""
    most = max(count for _, count in rows) or 1
    shown = ["".join(c if c.isprintable() else "?" for c in label)[:40] for label, _ in rows]
    label_width = max(map(len, shown))
    digits = max(len(str(count)) for _, count in rows)
    room = _BAR_WIDTH if width is None else width - label_width - digits - len("      ")
    bar_width = max(1, min(_BAR_WIDTH, room))
    lines = []
    for label, (_, count) in zip(shown, rows, strict=True):
        eighths = round(count * bar_width * 8 / most)
        bar = "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        lines.append(f"  {label:>{label_width}}  {count:>{digits}}  {bar}".rstrip())
    return lines
