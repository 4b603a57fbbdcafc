"""kctl dump-log: shows the files of a log directory, without a broker."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.log.dump_options import (
    DumpFormat,
    LayoutOptions,
    ModeOptions,
    PathOptions,
    RecordOptions,
)
from kctl.cli.log.dump_shapes import ShapeOptions
from kctl.cli.log.log_filters import FilterFactory, FilterOptions
from kctl.cli.output import Output, OutputFormat
from kctl.cli.tables.spark import SparkOptions
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.dump.filters import RecordFilter
    from kctl.dump.shapes import Shapes
    from kctl.dump.values import BulkStyle, Decoder, DumpItem, DumpOptions
    from kctl.runtime.disk import Disk

# Time between two looks at a directory that is followed.
_FOLLOW_EVERY_MS = 300


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "dump-log", _HELP)(_command)


_HELP = """Show what is in the files of a log directory.

PATH is a file, a partition's directory or a whole log directory. No broker is contacted, and a
running one is not disturbed. Damage is reported on stderr with file, position and reason, and the
dump continues after it; the exit status is then 1.

With a filter only .log files are read, and only where the indexes show that matching records may
be. --offset takes a range as `kctl consume` does: 100..200, -10, @-1h..@-30m.

\b
Examples:
  kctl dump-log /data/orders-0
  kctl dump-log --print-data-log /data/orders-0/00000000000000000000.log
  kctl dump-log --print-data-log --format ndjson /data/__consumer_offsets-3
  kctl dump-log --format ndjson /archive/clicks-0/00000000000000000000.kafka
  kctl dump-log --print-data-log --offset @-1h --key order-17 /data/orders-0
  kctl dump-log --print-data-log --value-as avro --schema order.avsc /data/orders-0
  kctl dump-log --only-aborted --deep-iteration /data/orders-0
  kctl dump-log --group billing --print-data-log /data
  kctl dump-log --where --group billing /data
  kctl dump-log --stats /data/orders-0
  kctl dump-log --stats --spark --master spark://head:7077 /nfs/data
  kctl dump-log --format kafka --deep-iteration /data/orders-0/*.log
"""


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What is shown of which files."""

    paths: list[str]
    # Whether records are shown with keys and values, or at all.
    with_data: bool = False
    with_records: bool = False
    decoder: "Decoder | None" = None
    dump_format: DumpFormat = DumpFormat.TEXT
    is_hex: bool = False
    filters: FilterOptions = field(default_factory=FilterOptions)
    limit: int | None = None
    is_followed: bool = False
    shapes: "Shapes | None" = None
    # Index files are checked, their entries not shown.
    only_checks_indexes: bool = False


def dump_log(output: Output, request: DumpRequest) -> int:
    """Print the dump and return the exit status."""
    from kctl.runtime.real.clock import RealClock
    from kctl.runtime.real.disk import RealDisk

    disk = RealDisk()
    _check_old_files(disk, request)
    damages: list[str] = []
    factory = FilterFactory(disk, request.filters, RealClock().wall_ms())
    if request.is_followed:
        _follow(output, disk, request, factory)
        return DONE
    items = _watched(_items(disk, request, factory.filter_for), damages, output)
    if request.only_checks_indexes:
        from kctl.cli.log.index_checks import without_index_entries

        items = without_index_entries(items)
    _print(output, items, request)
    return FAILED if damages else DONE


def _check_old_files(disk: "Disk", request: DumpRequest) -> None:
    """UsageError for a form of output that would show nothing of a file of Kafka 0.7."""
    refused = {
        "--hex": request.is_hex,
        "--follow": request.is_followed,
        "--format kafka": request.dump_format is DumpFormat.KAFKA,
    }
    for option, is_given in refused.items():
        if is_given:
            from kctl.dump.old_log_stats import refuse_old_files

            refuse_old_files(disk, request.paths, option)


def _print(output: Output, items: "Iterable[DumpItem]", request: DumpRequest) -> None:
    for text in _rendered(items, request):
        output.write_buffered(text)
    output.flush()


def _follow(output: Output, disk: "Disk", request: DumpRequest, factory: FilterFactory) -> None:
    from kctl.dump.filtered_dump import filtered_dump
    from kctl.dump.follow import follow
    from kctl.dump.values import DumpedFile
    from kctl.runtime.future import sleep
    from kctl.runtime.real import make_runtime

    options = _options(request, is_bulk=False)
    if request.dump_format is DumpFormat.JSON:
        raise UsageError("A JSON list has an end: with --follow take --format ndjson")

    scheduler = make_runtime().scheduler

    def wait() -> None:
        scheduler.run_until(scheduler.spawn(sleep(scheduler, _FOLLOW_EVERY_MS)))

    def print_range(directory: str, start: int, end: int) -> None:
        wanted = factory.filter_for(directory).within(start, end)
        items = filtered_dump(disk, [directory], options, lambda _directory: wanted)
        shown = (item for item in items if start == 0 or not isinstance(item, DumpedFile))
        _print(output, _watched(shown, [], output), request)

    for found in follow(disk, request.paths, wait):
        print_range(*found)


def _items(
    disk: "Disk", request: DumpRequest, filter_for: "Callable[[str], RecordFilter]"
) -> "Iterable[DumpItem]":
    from kctl.dump.dump import dump

    if not request.filters.is_any:
        return dump(disk, request.paths, _options(request, is_bulk=True))
    from kctl.dump.filtered_dump import filtered_dump, limited

    options = _options(request, is_bulk=False)
    items = filtered_dump(disk, request.paths, options, filter_for)
    if request.limit is None:
        return items
    of_records = options.with_records or request.filters.look_into_records
    return limited(items, request.limit, of_records=of_records)


def _options(request: DumpRequest, *, is_bulk: bool) -> "DumpOptions":
    from kctl.dump.values import Decoder, DumpOptions

    return DumpOptions(
        with_records=request.with_data or request.with_records,
        decoder=Decoder.AUTO if request.decoder is None else request.decoder,
        bulk=_bulk_style(request) if is_bulk else None,
    )


def _bulk_style(request: DumpRequest) -> "BulkStyle | None":
    from kctl.dump.values import BulkStyle

    if request.is_hex or request.shapes is not None:
        return None
    with_data = request.with_data
    if request.dump_format is DumpFormat.KAFKA:
        return BulkStyle.KAFKA_WITH_DATA if with_data else BulkStyle.KAFKA
    if request.dump_format is DumpFormat.TEXT:
        return BulkStyle.TEXT_WITH_DATA if with_data else BulkStyle.TEXT
    return None


def _watched(
    items: "Iterable[DumpItem]", damages: list[str], output: Output
) -> "Iterator[DumpItem]":
    """Pass `items` on, and report damage as it is found."""
    from kctl.dump.values import DumpDamage

    for item in items:
        if isinstance(item, DumpDamage):
            damages.append(item.path)
            output.say(f"error: {item}")
        yield item


def _rendered(
    items: "Iterable[DumpItem]", request: DumpRequest
) -> Iterator[str | bytes | memoryview]:
    with_data = request.with_data
    if request.is_hex:
        from kctl.dump.hex_format import hex_lines

        return hex_lines(items)
    if request.dump_format is DumpFormat.KAFKA:
        from kctl.dump.kafka_format import Contents, kafka_lines
        from kctl.dump.values import Decoder

        is_raw = request.decoder is Decoder.NONE
        contents = Contents.AS_TEXT if is_raw else Contents.DECODED
        return kafka_lines(items, contents if with_data else Contents.NOTHING)
    if request.dump_format is DumpFormat.TEXT:
        from kctl.dump.text_format import text_lines

        return text_lines(items, with_data=with_data, shapes=request.shapes)
    return _json_texts(items, request)


def _json_texts(items: "Iterable[DumpItem]", request: DumpRequest) -> Iterator[str]:
    from kctl.dump.documents import document

    lines = (
        json.dumps(
            document(item, with_data=request.with_data, shapes=request.shapes),
            ensure_ascii=False,
        )
        for item in items
    )
    if request.dump_format is DumpFormat.NDJSON:
        yield from (f"{line}\n" for line in lines)
        return
    separator = "[\n  "
    for line in lines:
        yield f"{separator}{line}"
        separator = ",\n  "
    yield "[]\n" if separator == "[\n  " else "\n]\n"


def _command(
    source: PathOptions,
    records: RecordOptions,
    layout: LayoutOptions,
    shapes: ShapeOptions,
    filters: FilterOptions,
    mode: ModeOptions,
    spark: SparkOptions,
) -> int:
    from kctl.runtime.real.paths import with_directory_names

    mode.check()
    shown_as = shapes.shapes()
    paths = source.all()
    request = DumpRequest(
        # kafka-dump-log prints a path as it was given.
        paths if layout.dump_format is DumpFormat.KAFKA else with_directory_names(paths),
        with_data=records.with_data or shown_as is not None,
        with_records=records.deep_iteration,
        decoder=records.decoder(layout.dump_format),
        dump_format=layout.dump_format,
        is_hex=layout.is_hex,
        filters=filters,
        limit=positive(filters.limit, "--limit"),
        is_followed=mode.is_followed,
        shapes=shown_as,
        only_checks_indexes=mode.verify_index_only,
    )
    return _dispatch(request, mode, spark)


def _show_stats(request: DumpRequest, spark: SparkOptions) -> int:
    from kctl.cli.log.log_stats import show_stats

    is_json = request.dump_format in (DumpFormat.JSON, DumpFormat.NDJSON)
    kind = OutputFormat.JSON if is_json else OutputFormat.TABLE
    return show_stats(Output(kind), request.paths, 10, spark)


def _dispatch(request: DumpRequest, mode: ModeOptions, spark: SparkOptions) -> int:
    if request.shapes is not None and request.dump_format is DumpFormat.KAFKA:
        raise UsageError("--format kafka is kafka-dump-log's text: no --key-as, no --value-as")
    spark.check()
    if mode.is_stats:
        return _show_stats(request, spark)
    if spark.spark:
        raise UsageError("--spark goes with --stats")
    output = Output()
    if mode.is_where:
        from kctl.cli.log.holders import show_holders

        filters = request.filters
        return show_holders(output, request.paths, filters.group, filters.transactional_id)
    if mode.index_sanity_check:
        from kctl.cli.log.index_checks import check_sanity

        return check_sanity(output, request.paths)
    status = dump_log(output, request)
    if request.only_checks_indexes:
        from kctl.cli.log.index_checks import check_indexes

        status = max(status, check_indexes(output, request.paths))
    return status
