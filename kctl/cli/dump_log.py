"""kctl dump-log: what is in the files of a log directory, without a broker."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import guarded
from kctl.cli.dump_shapes import (
    KeyAsOption,
    KeyMessageOption,
    KeySchemaOption,
    MessageOption,
    SchemaOption,
    ShapeWords,
    ValueAsOption,
    shapes_of,
)
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.log_filters import FilterFactory, FilterOptions
from kctl.cli.output import Output, OutputFormat
from kctl.cli.read_options import OffsetOption
from kctl.cli.spark import (
    DEFAULT_MASTER,
    ConfOption,
    MasterOption,
    SparkOption,
    SparkWords,
    check_spark_options,
)
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.dump.filters import RecordFilter
    from kctl.dump.shapes import Shapes
    from kctl.dump.values import BulkStyle, Decoder, DumpItem, DumpOptions
    from kctl.runtime.disk import Disk


class DumpFormat(StrEnum):
    """How the dump is printed."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"
    KAFKA = "kafka"


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("dump-log", help=_HELP)(_command)


_HELP = """Show what is in the files of a log directory.

PATH is a file, a partition's directory or a whole log directory; no broker is asked, and one that
runs is not disturbed. Damage is told on stderr with file, position and reason, and the dump goes
on behind it; the exit status is then 1.

With a filter only .log files are read, and only where the indexes say that something wanted may
be. --offset takes a range as `kctl consume` does: 100..200, -10, @-1h..@-30m.

\b
Examples:
  kctl dump-log /data/orders-0
  kctl dump-log --print-data-log /data/orders-0/00000000000000000000.log
  kctl dump-log --print-data-log --format ndjson /data/__consumer_offsets-3
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
    """What is to be shown of which files."""

    paths: list[str]
    print_data_log: bool = False
    deep_iteration: bool = False
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
    """Print the dump; the exit status."""
    from kctl.runtime.real.clock import RealClock
    from kctl.runtime.real.disk import RealDisk

    disk = RealDisk()
    damages: list[str] = []
    factory = FilterFactory(disk, request.filters, RealClock().wall_ms())
    if request.is_followed:
        _follow(output, disk, request, factory)
        return DONE
    items = _watched(_items(disk, request, factory.filter_for), damages, output)
    if request.only_checks_indexes:
        from kctl.cli.index_checks import without_index_entries

        items = without_index_entries(items)
    _print(output, items, request)
    return FAILED if damages else DONE


def _print(output: Output, items: "Iterable[DumpItem]", request: DumpRequest) -> None:
    for text in _rendered(items, request):
        output.write_buffered(text)
    output.flush()


def _follow(output: Output, disk: "Disk", request: DumpRequest, factory: FilterFactory) -> None:
    from kctl.cli.follow_log import follow
    from kctl.dump.filtered_dump import filtered_dump
    from kctl.dump.values import DumpedFile

    options = _options(request, is_bulk=False)
    if request.dump_format is DumpFormat.JSON:
        raise UsageError("A JSON list has an end: with --follow take --format ndjson")

    def print_range(directory: str, start: int, end: int) -> None:
        wanted = factory.filter_for(directory).within(start, end)
        items = filtered_dump(disk, [directory], options, lambda _directory: wanted)
        shown = (item for item in items if start == 0 or not isinstance(item, DumpedFile))
        _print(output, _watched(shown, [], output), request)

    follow(disk, request.paths, print_range)


def _items(
    disk: "Disk", request: DumpRequest, filter_for: "Callable[[str], RecordFilter]"
) -> "Iterable[DumpItem]":
    from kctl.dump.dump import dump

    is_filtered = request.filters != FilterOptions() or request.limit is not None
    if not is_filtered:
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
        with_records=request.print_data_log or request.deep_iteration,
        decoder=Decoder.AUTO if request.decoder is None else request.decoder,
        bulk=_bulk_style(request) if is_bulk else None,
    )


def _bulk_style(request: DumpRequest) -> "BulkStyle | None":
    from kctl.dump.values import BulkStyle

    if request.is_hex or request.shapes is not None:
        return None
    with_data = request.print_data_log
    if request.dump_format is DumpFormat.KAFKA:
        return BulkStyle.KAFKA_WITH_DATA if with_data else BulkStyle.KAFKA
    if request.dump_format is DumpFormat.TEXT:
        return BulkStyle.TEXT_WITH_DATA if with_data else BulkStyle.TEXT
    return None


def _watched(
    items: "Iterable[DumpItem]", damages: list[str], output: Output
) -> "Iterator[DumpItem]":
    """Pass `items` on, and tell the user of damage as it is met."""
    from kctl.dump.values import DumpDamage

    for item in items:
        if isinstance(item, DumpDamage):
            damages.append(item.path)
            output.say(f"error: {item}")
        yield item


def _rendered(
    items: "Iterable[DumpItem]", request: DumpRequest
) -> Iterator[str | bytes | memoryview]:
    with_data = request.print_data_log
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
            document(item, with_data=request.print_data_log, shapes=request.shapes),
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


def _chosen_decoder(
    dump_format: DumpFormat, *, offsets: bool, transactions: bool, is_raw: bool
) -> "Decoder":
    from kctl.dump.values import Decoder

    if offsets + transactions + is_raw > 1:
        raise UsageError(
            "Only one of --offsets-decoder, --transaction-log-decoder and --raw may be given"
        )
    if offsets:
        return Decoder.OFFSETS
    if transactions:
        return Decoder.TRANSACTIONS
    return Decoder.NONE if is_raw or dump_format is DumpFormat.KAFKA else Decoder.AUTO


PathsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="PATH...", help="Files or directories.")
]
FilesOption = Annotated[
    str | None, typer.Option("--files", metavar="FILE,...", help="The same as PATH, with commas.")
]
PrintDataLogOption = Annotated[
    bool, typer.Option("--print-data-log", help="Show records with keys and values.")
]
DeepIterationOption = Annotated[
    bool, typer.Option("--deep-iteration", help="Show records, not only batches.")
]
OffsetsDecoderOption = Annotated[
    bool, typer.Option("--offsets-decoder", help="Read records as those of __consumer_offsets.")
]
TransactionDecoderOption = Annotated[
    bool,
    typer.Option("--transaction-log-decoder", help="Read records as those of __transaction_state."),
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Do not decode internal topics by their names.")
]
FormatOption = Annotated[
    DumpFormat, typer.Option("--format", "-o", help="kafka: the very text of kafka-dump-log 2.7.")
]
HexOption = Annotated[bool, typer.Option("--hex", help="Show batches byte by byte, annotated.")]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", metavar="KEY", help="Only records with that key.")
]
KeyPatternOption = Annotated[
    str | None, typer.Option("--key-pattern", metavar="REGEX", help="Only records with such keys.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME[=VALUE]", help="Only records with that header."),
]
EpochOption = Annotated[
    int | None, typer.Option("--leader-epoch", metavar="N", help="Only batches of that epoch.")
]
ProducerOption = Annotated[
    int | None, typer.Option("--producer-id", metavar="ID", help="Only that producer's batches.")
]
OnlyControlOption = Annotated[
    bool, typer.Option("--only-control", help="Only markers of transactions.")
]
OnlyAbortedOption = Annotated[
    bool, typer.Option("--only-aborted", help="Only batches of aborted transactions.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="GROUP", help="Only that group's offsets and members."),
]
TransactionalIdOption = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="Only that transaction's states."),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Stop after N records, or batches.")
]
TailOption = Annotated[
    int | None, typer.Option("--tail", metavar="N", help="The same as --offset -N.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on as the log grows, until Ctrl-C.")
]
StatsOption = Annotated[
    bool, typer.Option("--stats", help="Counts, sizes, codecs, histograms and commonest keys.")
]
WhereOption = Annotated[
    bool,
    typer.Option("--where", help="Only say which partition holds --group or --transactional-id."),
]
VerifyIndexOption = Annotated[
    bool, typer.Option("--verify-index-only", help="Check index files, do not show their entries.")
]
SanityOption = Annotated[
    bool, typer.Option("--index-sanity-check", help="Only check that index files make sense.")
]
MaxMessageSizeOption = Annotated[
    int | None,
    typer.Option(
        "--max-message-size", metavar="BYTES", help="For kafka-dump-log's sake: batches have any."
    ),
]


def _command(
    paths: PathsArgument = None,
    files: FilesOption = None,
    print_data_log: PrintDataLogOption = False,
    deep_iteration: DeepIterationOption = False,
    offsets_decoder: OffsetsDecoderOption = False,
    transaction_log_decoder: TransactionDecoderOption = False,
    is_raw: RawOption = False,
    dump_format: FormatOption = DumpFormat.TEXT,
    is_hex: HexOption = False,
    key_as: KeyAsOption = None,
    value_as: ValueAsOption = None,
    schema: SchemaOption = None,
    message: MessageOption = None,
    key_schema: KeySchemaOption = None,
    key_message: KeyMessageOption = None,
    offset: OffsetOption = None,
    key: KeyOption = None,
    key_pattern: KeyPatternOption = None,
    header: HeaderOption = None,
    leader_epoch: EpochOption = None,
    producer_id: ProducerOption = None,
    only_control: OnlyControlOption = False,
    only_aborted: OnlyAbortedOption = False,
    group: GroupOption = None,
    transactional_id: TransactionalIdOption = None,
    limit: LimitOption = None,
    tail: TailOption = None,
    is_followed: FollowOption = False,
    is_stats: StatsOption = False,
    is_where: WhereOption = False,
    verify_index_only: VerifyIndexOption = False,
    index_sanity_check: SanityOption = False,
    max_message_size: MaxMessageSizeOption = None,
    spark: SparkOption = False,
    master: MasterOption = DEFAULT_MASTER,
    conf: ConfOption = None,
) -> None:
    @guarded
    def run() -> int:
        if offset is not None and tail is not None:
            raise UsageError("Say where to start once: --offset or --tail")
        positive(max_message_size, "--max-message-size")
        lasts = positive(tail, "--tail")
        filters = FilterOptions(
            offset if lasts is None else f"-{lasts}", tuple(key or ()), key_pattern,
            tuple(header or ()), leader_epoch, producer_id, only_control, only_aborted, group,
            transactional_id,
        )  # fmt: skip
        decoder = _chosen_decoder(
            dump_format, offsets=offsets_decoder, transactions=transaction_log_decoder,
            is_raw=is_raw,
        )  # fmt: skip
        shapes = shapes_of(
            ShapeWords(key_as, key_schema, key_message, "key"),
            ShapeWords(value_as, schema, message, "value"),
        )
        request = DumpRequest(
            _all_paths(paths, files),
            print_data_log or offsets_decoder or transaction_log_decoder or shapes is not None,
            deep_iteration, decoder, dump_format, is_hex, filters, positive(limit, "--limit"),
            is_followed, shapes, verify_index_only,
        )  # fmt: skip
        return _dispatch(
            request, SparkWords(spark, master, conf), is_stats=is_stats, is_where=is_where,
            is_sane=index_sanity_check,
        )  # fmt: skip

    run()


def _all_paths(paths: list[str] | None, files: str | None) -> list[str]:
    found = [*(paths or ()), *(file for file in (files or "").split(",") if file)]
    if not found:
        raise UsageError("Name a file or a directory: PATH, or --files FILE,...")
    return found


def _show_stats(request: DumpRequest, spark: SparkWords) -> int:
    from kctl.cli.log_stats import show_stats

    is_json = request.dump_format in (DumpFormat.JSON, DumpFormat.NDJSON)
    kind = OutputFormat.JSON if is_json else OutputFormat.TABLE
    return show_stats(Output(kind), request.paths, 10, spark)


def _dispatch(
    request: DumpRequest, spark: SparkWords, *, is_stats: bool, is_where: bool, is_sane: bool
) -> int:
    if request.shapes is not None and request.dump_format is DumpFormat.KAFKA:
        raise UsageError("--format kafka is kafka-dump-log's text: no --key-as, no --value-as")
    check_spark_options(spark.master, spark.conf, is_wanted=spark.is_wanted)
    if is_stats:
        return _show_stats(request, spark)
    if spark.is_wanted:
        raise UsageError("--spark goes with --stats")
    output = Output()
    if is_where:
        from kctl.cli.holders import show_holders

        filters = request.filters
        return show_holders(output, request.paths, filters.group, filters.transactional_id)
    if is_sane:
        from kctl.cli.index_checks import check_sanity

        return check_sanity(output, request.paths)
    status = dump_log(output, request)
    if request.only_checks_indexes:
        from kctl.cli.index_checks import check_indexes

        status = max(status, check_indexes(output, request.paths))
    return status
