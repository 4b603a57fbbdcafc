"""kctl produce: writes records to a topic."""

import os
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from kctl.cli.connect import parse_pair
from kctl.cli.declaration.command import (
    CHANGES,
    INT32_NUMBER,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.items import positive
from kctl.cli.output import Output
from kctl.cli.records.produce_old import OldBrokers, write_old
from kctl.cli.records.produce_report import ProduceReport
from kctl.cli.records.value_options import ValueOptions
from kctl.cli.session import Session
from kctl.cli.units import option_instant_ms
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.record_writer import WriteRequest
    from kctl.cli.records.record_input import InputLine, Parse
    from kctl.cli.records.value_options import Encode
    from kctl.client.producer import NewRecord

_STDIN = 0


class InputFormat(StrEnum):
    """How the input is divided into records."""

    LINES = "lines"
    NDJSON = "ndjson"
    WHOLE = "whole"


class Acks(StrEnum):
    """Which replicas must have a record before it counts as written."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


class Codec(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


TopicArgument = Annotated[str, Argument(metavar="TOPIC", help="An existing topic.")]
ValuesArgument = Annotated[
    list[str] | None,
    Argument(metavar="VALUE", help="Values. [default: lines of standard input]"),
]
FromLineOption = Annotated[
    int | None,
    Option(
        "--from-line",
        metavar="N",
        help="Skip the lines before line N: continue a run that stopped.",
    ),
]
FileOption = Annotated[
    str | None,
    Option("--file", "-f", metavar="FILE", help="Read this file instead of standard input."),
]
InputFormatOption = Annotated[
    InputFormat,
    Option("--input", "-i", help="A record per line, JSON objects, or the whole file."),
]
KeyOption = Annotated[str | None, Option("--key", "-k", metavar="KEY", help="Key of every record.")]
KeySeparatorOption = Annotated[
    str | None,
    Option("--key-separator", "-S", metavar="TEXT", help="Separator of key and value in lines."),
]
NullOption = Annotated[
    str | None,
    Option("--null", metavar="TEXT", help="The text that means a null key or value."),
]
HeaderOption = Annotated[
    list[str] | None,
    Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
]
PartitionOption = Annotated[
    int | None,
    Option("--partition", "-p", metavar="N", help="[default: by the key, or round robin]"),
    INT32_NUMBER,
]
TimestampOption = Annotated[
    str | None,
    Option(
        "--timestamp",
        metavar="TIME",
        help="e.g. 2026-01-31T08:00 (UTC), -1h, or ms since the epoch. [default: now]",
    ),
]
AcksOption = Annotated[Acks, Option("--acks", help="Replicas that must have the record.")]
CompressionOption = Annotated[Codec, Option("--compression", "-z", help="Codec of the batches.")]

TransactionalIdOption = Annotated[
    str | None,
    Option("--transactional-id", metavar="ID", help="Write all records in one transaction."),
]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "produce", CHANGES)(produce)


def produce(
    session: Session,
    topic: TopicArgument,
    values: ValuesArgument = None,
    file: FileOption = None,
    from_line: FromLineOption = None,
    input_format: InputFormatOption = InputFormat.LINES,
    key: KeyOption = None,
    key_separator: KeySeparatorOption = None,
    null: NullOption = None,
    header: HeaderOption = None,
    partition: PartitionOption = None,
    timestamp: TimestampOption = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Codec.NONE,
    transactional_id: TransactionalIdOption = None,
    *,
    values_as: ValueOptions,
    old: OldBrokers,
) -> int:
    """Write records to a topic: arguments, lines of standard input or a file, or JSON objects.

    A JSON line has any of key, value, headers, partition, timestamp (key_base64 and value_base64
    for bytes), as `kctl consume -o ndjson` prints. With -o ndjson (or json, csv, ...) the command
    prints the partition and offset of each record; otherwise it reports their number on standard
    error.

    If no broker accepts records for the time of --timeout, the command stops with exit status 3. It
    reports how many records are written and how many are unknown, and the line to continue at with
    --from-line.

    With --transactional-id, a run that fails, is interrupted or takes longer than a minute leaves
    no records that read_committed consumers see. Another producer with the same id is fenced.

    With --value, values are JSON in the input, and encoded by a schema. With --broker-list or
    --zookeeper, records go to Kafka 0.7, which acknowledges nothing and stores values only.

    \b
    Examples:
      kctl produce orders hello world
      kctl produce orders -k customer-7 -H source=web '{"total": 12}'
      kctl produce orders -f orders.txt --key-separator : -z zstd
      kctl produce orders -f orders.txt --from-line 16656
      kctl consume orders -o ndjson --exit | kctl produce copy -i ndjson
      kctl produce orders -f orders.txt --transactional-id nightly-import
      kctl produce orders -f orders.ndjson -i ndjson --value avro --registry http://registry:8081
      kctl produce orders --zookeeper zk1:2181 hello
    """
    from kctl.admin.record_writer import WriteRequest
    from kctl.protocol.constants import ACKS_ALL
    from kctl.records.compression import CompressionType

    _check(values, file, from_line, input_format, acks, transactional_id)
    timestamp_ms = None if timestamp is None else option_instant_ms(timestamp, session.now_ms())
    template = _template(key, header, partition, timestamp_ms)
    parse = _parser(session, input_format, template, key_separator, null, values_as.encoder(topic))
    first = positive(from_line, "--from-line") or 1
    chunks = _chunks(session.output, values, file, input_format, first)
    has_lines = not values and input_format is not InputFormat.WHOLE
    is_transactional = transactional_id is not None and not session.dry_run
    report = ProduceReport(session, topic, has_lines=has_lines, is_transactional=is_transactional)
    request = WriteRequest(
        topic,
        partition,
        acks=ACKS_ALL if acks is Acks.ALL else int(acks.value),
        compression_type=CompressionType[compression.name],
        timeout_ms=session.settings.timeout_ms,
        transactional_id=transactional_id,
    )
    return _write(session, request, old, _records(report, chunks, parse), report)


def _template(
    key: str | None, header: list[str] | None, partition: int | None, timestamp_ms: int | None
) -> "NewRecord":
    """Return a record with what all records have in common."""
    from kctl.client.producer import NewRecord

    headers = tuple(_header(pair) for pair in header or [])
    content = None if key is None else key.encode()
    return NewRecord(content, None, headers, partition, timestamp_ms)


def _check(
    values: list[str] | None,
    file: str | None,
    from_line: int | None,
    input_format: InputFormat,
    acks: Acks,
    transactional_id: str | None,
) -> None:
    """Raise UsageError for options that contradict each other."""
    if values and (file or input_format is InputFormat.NDJSON):
        raise UsageError("VALUE cannot be combined with --file or --input ndjson")
    if from_line is not None and (values or input_format is InputFormat.WHOLE):
        raise UsageError("--from-line is for lines of standard input or a file")
    if transactional_id == "":
        raise UsageError("--transactional-id must not be empty")
    if transactional_id is not None and acks is not Acks.ALL:
        raise UsageError("--transactional-id needs --acks all")


def _write(
    session: Session,
    request: "WriteRequest",
    old: OldBrokers,
    records: "Iterator[list[NewRecord]]",
    report: ProduceReport,
) -> int:
    from kctl.admin.record_writer import write_records

    try:
        if old.are_given:
            return write_old(session, request, old, records, report)
        session.run(
            lambda admin: write_records(admin, request, records, report, dry_run=session.dry_run)
        )
    except (KeyboardInterrupt, BrokenPipeError):
        report.say_where_it_stopped()
        raise
    return report.finish()


def _records(
    report: ProduceReport, chunks: "Iterator[list[InputLine]]", parse: "Parse"
) -> "Iterator[list[NewRecord]]":
    """Yield the records of each chunk; raise for a malformed one once those before it are sent."""
    for chunk in chunks:
        yield report.parse(chunk, parse)
        report.raise_if_malformed()


def _open_file(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        # A directory can be opened. This fails for it, as reads would later, without its name.
        os.read(descriptor, 0)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}", hint="check the path") from None
    return descriptor


def _header(pair: str) -> tuple[str, bytes | None]:
    name, value = parse_pair(pair, "--header")
    return name, value.encode()


def _parser(
    session: Session,
    input_format: InputFormat,
    template: "NewRecord",
    key_separator: str | None,
    null: str | None,
    encode: "Encode | None",
) -> "Parse":
    from kctl.cli.records.record_input import encoding_parser, json_parser, text_parser

    if input_format is InputFormat.NDJSON:
        if key_separator is not None or null is not None:
            raise UsageError("--key-separator and --null cannot be combined with --input ndjson")
        return json_parser(template, session.now_ms(), encode)
    parse = text_parser(template, key_separator, null)
    return parse if encode is None else encoding_parser(parse, encode)


def _chunks(
    output: Output,
    values: list[str] | None,
    file: str | None,
    input_format: InputFormat,
    first_line: int,
) -> "Iterator[list[InputLine]]":
    from kctl.cli.records.record_input import numbered_lines

    if values:
        yield [(number, os.fsencode(value)) for number, value in enumerate(values, 1)]
        return
    if file in (None, "-") and os.isatty(_STDIN):
        output.say("Type records, one per line; Ctrl-D ends the input.")
    descriptor = _STDIN if file in (None, "-") else _open_file(file or "")
    try:
        if input_format is InputFormat.WHOLE:
            parts = iter(lambda: os.read(descriptor, 1 << 20), b"")
            yield [(1, b"".join(parts))]
        elif input_format is InputFormat.NDJSON:
            for chunk in numbered_lines(descriptor, first_line):
                yield [(number, line) for number, line in chunk if line.strip()]
        else:
            yield from numbered_lines(descriptor, first_line)
    finally:
        if descriptor != _STDIN:
            os.close(descriptor)
