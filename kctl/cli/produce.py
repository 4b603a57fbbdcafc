"""kctl produce: write records to a topic."""

import os
import shlex
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import CHANGES, remote_command
from kctl.cli.connect import parse_pair
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import did_you_mean
from kctl.cli.output import Output, OutputFormat
from kctl.cli.session import Session
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.producer import NewRecord, ProducedRecord, Producer
    from kctl.admin.producer_transaction import ProducerTransaction
    from kctl.cli.record_input import Parse

# Records that failed are told one by one up to here.
_ERRORS_TOLD_MAX = 10
_STDIN = 0


class InputFormat(StrEnum):
    """How records are cut out of the input."""

    LINES = "lines"
    NDJSON = "ndjson"
    WHOLE = "whole"


class Acks(StrEnum):
    """Who must have a record before it counts as written."""

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


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; it must exist.")]
ValuesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="VALUE", help="Values. [default: lines of standard input]"),
]
FileOption = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="Read it instead.")
]
InputFormatOption = Annotated[
    InputFormat,
    typer.Option("--input", "-i", help="One record a line, a JSON object, or the file."),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="KEY", help="Key of every record.")
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option("--key-separator", "-S", metavar="TEXT", help="Divides key and value."),
]
NullOption = Annotated[
    str | None, typer.Option("--null", metavar="TEXT", help="Stands for a null key or value.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option("--partition", "-p", metavar="N", help="[default: by the key, or in turn]"),
]
TimestampOption = Annotated[
    str | None, typer.Option("--timestamp", metavar="TIME", help="[default: now]")
]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Who must have it.")]
CompressionOption = Annotated[
    Codec, typer.Option("--compression", "-z", help="Codec of the batches.")
]

TransactionalIdOption = Annotated[
    str | None,
    typer.Option(
        "--transactional-id", metavar="ID", help="All records in one transaction: all or none."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    remote_command(app, "produce", CHANGES)(produce)


def produce(
    session: Session,
    topic: TopicArgument,
    values: ValuesArgument = None,
    file: FileOption = None,
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
) -> int:
    """Write records to a topic: arguments, lines of standard input or a file, or JSON objects.

    A JSON line has any of key, value, headers, partition, timestamp (key_base64 and value_base64
    for bytes), just as `kctl consume -o ndjson` prints. Where each record went is printed with -o
    ndjson (or json, csv, ...); without, only how many, on standard error.

    With --transactional-id what fails, is interrupted or takes longer than a minute leaves nothing
    that readers of committed data see; another producer with the same id is fenced.

    \b
    Examples:
      kctl produce orders hello world
      kctl produce orders -k customer-7 -H source=web '{"total": 12}'
      kctl produce orders -f orders.txt --key-separator : -z zstd
      kctl consume orders -o ndjson --exit | kctl produce copy -i ndjson
      kctl produce orders -f orders.txt --transactional-id nightly-import
    """
    from kctl.admin.producer import NewRecord, Producer
    from kctl.cli.units import parse_instant_ms
    from kctl.records.compression import CompressionType

    if values and (file or input_format is InputFormat.NDJSON):
        raise UsageError("Give values as arguments or as a file of records, not both")
    template = NewRecord(
        None if key is None else key.encode(),
        None,
        tuple(_header(pair) for pair in header or []),
        partition,
        None if timestamp is None else parse_instant_ms(timestamp, session.now_ms()),
    )
    if transactional_id is not None and acks is not Acks.ALL:
        raise UsageError("--transactional-id needs --acks all")
    parse = _parser(session, input_format, template, key_separator, null)
    chunks = _chunks(session.output, values, file, input_format)

    async def work(admin: "AdminClient") -> "_Report":
        transaction = _transaction(admin, transactional_id, is_wanted=not session.dry_run)
        producer = Producer(
            admin.router,
            topic,
            acks=-1 if acks is Acks.ALL else int(acks.value),
            compression_type=CompressionType[compression.name],
            timeout_ms=session.settings.timeout_ms,
            transaction=transaction,
        )
        await _open(admin, producer, topic, partition)
        report = _Report(session, topic, transaction)
        await _write_all(producer, report, (report.parse(chunk, parse) for chunk in chunks))
        return report

    return session.run(work).finish()


async def _write_all(
    producer: "Producer", report: "_Report", chunks: "Iterator[list[NewRecord]]"
) -> None:
    """Write, and end the transaction if there is one."""
    try:
        for records in chunks:
            if report.is_rehearsal:
                report.written += len(records)
            elif records:
                report.add(await producer.send(records))
            report.raise_if_malformed()
        await report.end_transaction()
    except KctlError:
        await report.abort_transaction()
        raise


class _Report:
    """Counts what was written, and tells it."""

    def __init__(
        self, session: Session, topic: str, transaction: "ProducerTransaction | None" = None
    ) -> None:
        self.written = 0
        self._transaction = transaction
        self._is_aborted = False
        # Nothing is to be written: --dry-run.
        self.is_rehearsal = session.dry_run
        self._session = session
        self._topic = topic
        self._failed = 0
        self._lines = 0
        self._malformed: KctlError | None = None
        self._documents: list[dict[str, Any]] = []

    def parse(self, chunk: list[bytes], parse: "Parse") -> "list[NewRecord]":
        """The records of a chunk, up to the first that cannot be understood."""
        records = []
        for line in chunk:
            self._lines += 1
            try:
                records.append(parse(line))
            except KctlError as error:
                self._malformed = KctlError(f"Record {self._lines} of the input: {error}")
                break
        return records

    def raise_if_malformed(self) -> None:
        """End here, after what came before was written."""
        if self._malformed is not None:
            error = self._malformed
            if self._transaction is not None:
                error.hint = "the transaction was aborted"
                raise error
            error.hint = f"the {self.written} records before it were written to {self._topic}"
            raise error

    def add(self, results: "list[ProducedRecord]") -> None:
        """Take in where records went."""
        broken = [result for result in results if result.error is not None]
        for result in broken[: max(0, _ERRORS_TOLD_MAX - self._failed)]:
            where = f"{self._topic}-{result.partition}"
            self._session.output.say(f"error: record for {where}: {result.error}")
        self.written += len(results) - len(broken)
        self._failed += len(broken)
        if self._session.output.format is OutputFormat.TABLE:
            return
        self._documents += [self._document(result) for result in results]
        if self._session.output.format is OutputFormat.NDJSON:
            self._session.output.show(self._documents, name="record")
            self._documents = []

    async def end_transaction(self) -> None:
        """Commit, unless a record failed."""
        if self._transaction is not None:
            if self._failed:
                await self.abort_transaction()
            else:
                await self._transaction.end(commit=True)

    async def abort_transaction(self) -> None:
        """Leave nothing that readers of committed data see."""
        if self._transaction is not None and not self._is_aborted:
            self._is_aborted = True
            try:
                await self._transaction.end(commit=False)
            except KctlError as error:
                # The broker does so itself when the transaction's time is over.
                self._session.output.say(f"note: the transaction could not be aborted: {error}")

    def finish(self) -> int:
        """Print what is left; the exit status."""
        output = self._session.output
        if output.format is not OutputFormat.TABLE and not self._session.dry_run:
            columns = ["topic", "partition", "offset", "timestamp", "status", "error"]
            output.show(self._documents, columns, name="record")
        verb = "would be written" if self._session.dry_run else "written"
        noun = "record" if self.written == 1 else "records"
        output.say(f"{self.written} {noun} {verb} to {self._topic}")
        if self._failed:
            aborted = ": the transaction was aborted" if self._is_aborted else ""
            total = self.written + self._failed
            output.say(f"error: {self._failed} of {total} records failed{aborted}")
        return FAILED if self._failed else DONE

    def _document(self, result: "ProducedRecord") -> dict[str, Any]:
        offset = result.offset if result.offset >= 0 else None
        return {
            "record": f"{self._topic}-{result.partition}@{'?' if offset is None else offset}",
            "topic": self._topic,
            "partition": result.partition,
            "offset": offset,
            "timestamp": result.timestamp,
            "status": "failed" if result.error else "written",
            "error": None if result.error is None else str(result.error),
        }


def _transaction(
    admin: "AdminClient", transactional_id: str | None, *, is_wanted: bool
) -> "ProducerTransaction | None":
    from kctl.admin.producer_transaction import ProducerTransaction

    if transactional_id is None or not is_wanted:
        return None
    if not transactional_id:
        raise UsageError("--transactional-id must not be empty")
    return ProducerTransaction(admin.router, transactional_id)


async def _open(
    admin: "AdminClient", producer: "Producer", topic: str, partition: int | None
) -> None:
    from kctl.admin.result import is_unknown_topic
    from kctl.protocol.error_codes import ApiError

    try:
        await producer.open()
    except ApiError as error:
        if not is_unknown_topic(error):
            raise
        names = [it.name for it in await admin.topics.list_topics()]
        hint = did_you_mean(topic, names) or f"create it: kctl topic create {shlex.quote(topic)}"
        raise KctlError(f"No topic {topic}", hint=hint) from None
    if partition is not None and not 0 <= partition < producer.partition_count:
        raise KctlError(f"{topic} has no partition {partition}, only {producer.partition_count}")


def _header(pair: str) -> tuple[str, bytes | None]:
    name, value = parse_pair(pair, "--header")
    return name, value.encode()


def _parser(
    session: Session,
    input_format: InputFormat,
    template: "NewRecord",
    key_separator: str | None,
    null: str | None,
) -> "Parse":
    from kctl.cli.record_input import json_parser, text_parser

    if input_format is InputFormat.NDJSON:
        if key_separator is not None or null is not None:
            raise UsageError("--key-separator and --null are for lines, not for JSON")
        return json_parser(template, session.now_ms())
    return text_parser(template, key_separator, null)


def _chunks(
    output: Output, values: list[str] | None, file: str | None, input_format: InputFormat
) -> Iterator[list[bytes]]:
    from kctl.cli.record_input import line_chunks

    if values:
        yield [os.fsencode(value) for value in values]
        return
    if file in (None, "-") and os.isatty(_STDIN):
        output.say("Type records, one a line; Ctrl-D ends.")
    descriptor = _STDIN if file in (None, "-") else os.open(file or "", os.O_RDONLY)
    try:
        if input_format is InputFormat.WHOLE:
            parts = iter(lambda: os.read(descriptor, 1 << 20), b"")
            yield [b"".join(parts)]
        elif input_format is InputFormat.NDJSON:
            for chunk in line_chunks(descriptor):
                yield [line for line in chunk if line.strip()]
        else:
            yield from line_chunks(descriptor)
    finally:
        if descriptor != _STDIN:
            os.close(descriptor)
