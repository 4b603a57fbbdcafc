"""kctl dump-log: what is in the files of a log directory, without a broker."""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import guarded
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Output
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.dump.values import BulkStyle, Decoder, DumpItem


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

\b
Examples:
  kctl dump-log /data/orders-0
  kctl dump-log --print-data-log /data/orders-0/00000000000000000000.log
  kctl dump-log --print-data-log --format ndjson /data/__consumer_offsets-3
  kctl dump-log --format kafka --deep-iteration /data/orders-0/*.log
"""


def dump_log(
    output: Output,
    paths: list[str],
    *,
    print_data_log: bool,
    deep_iteration: bool,
    decoder: "Decoder",
    dump_format: DumpFormat,
) -> int:
    """Print the dump of `paths`; the exit status."""
    from kctl.dump.dump import dump
    from kctl.dump.values import DumpOptions
    from kctl.runtime.real.disk import RealDisk

    bulk = _bulk_style(dump_format, with_data=print_data_log)
    with_records = print_data_log or deep_iteration
    options = DumpOptions(with_records=with_records, decoder=decoder, bulk=bulk)
    damages: list[str] = []
    items = _watched(dump(RealDisk(), paths, options), damages, output)
    for text in _rendered(items, dump_format, decoder, with_data=print_data_log):
        output.write_buffered(text)
    output.flush()
    return FAILED if damages else DONE


def _bulk_style(dump_format: DumpFormat, *, with_data: bool) -> "BulkStyle | None":
    from kctl.dump.values import BulkStyle

    if dump_format is DumpFormat.KAFKA:
        return BulkStyle.KAFKA_WITH_DATA if with_data else BulkStyle.KAFKA
    if dump_format is DumpFormat.TEXT:
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
    items: "Iterable[DumpItem]", dump_format: DumpFormat, decoder: "Decoder", *, with_data: bool
) -> Iterator[str | bytes | memoryview]:
    if dump_format is DumpFormat.KAFKA:
        from kctl.dump.kafka_format import Contents, kafka_lines
        from kctl.dump.values import Decoder

        contents = Contents.AS_TEXT if decoder is Decoder.NONE else Contents.DECODED
        return kafka_lines(items, contents if with_data else Contents.NOTHING)
    if dump_format is DumpFormat.TEXT:
        from kctl.dump.text_format import text_lines

        return text_lines(items, with_data=with_data)
    return _json_texts(items, with_data=with_data, is_list=dump_format is DumpFormat.JSON)


def _json_texts(items: "Iterable[DumpItem]", *, with_data: bool, is_list: bool) -> Iterator[str]:
    from kctl.dump.documents import document

    lines = (json.dumps(document(item, with_data=with_data), ensure_ascii=False) for item in items)
    if not is_list:
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


@guarded
def _run(
    paths: list[str],
    print_data_log: bool,
    deep_iteration: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    is_raw: bool,
    dump_format: DumpFormat,
) -> int:
    decoder = _chosen_decoder(
        dump_format, offsets=offsets_decoder, transactions=transaction_log_decoder, is_raw=is_raw
    )
    return dump_log(
        Output(),
        paths,
        print_data_log=print_data_log or offsets_decoder or transaction_log_decoder,
        deep_iteration=deep_iteration,
        decoder=decoder,
        dump_format=dump_format,
    )


def _command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files or directories.")],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Show records with keys and values.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Show records, not only batches.")
    ] = False,
    offsets_decoder: Annotated[
        bool,
        typer.Option("--offsets-decoder", help="Read records as those of __consumer_offsets."),
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        typer.Option(
            "--transaction-log-decoder", help="Read records as those of __transaction_state."
        ),
    ] = False,
    is_raw: Annotated[
        bool, typer.Option("--raw", help="Do not decode internal topics by their names.")
    ] = False,
    dump_format: Annotated[
        DumpFormat,
        typer.Option("--format", "-o", help="kafka: the very text of kafka-dump-log 2.7."),
    ] = DumpFormat.TEXT,
) -> None:
    _run(
        paths,
        print_data_log,
        deep_iteration,
        offsets_decoder,
        transaction_log_decoder,
        is_raw,
        dump_format,
    )
