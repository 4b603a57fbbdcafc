"""kctl consume: reads the records of topics."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import (
    COUNT,
    READS,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.items import positive
from kctl.cli.output import DocumentStream, Output, OutputFormat
from kctl.cli.pipes import is_stdout_left, leave_stdout
from kctl.cli.read_options import OffsetOption, PartitionOption, partition_numbers
from kctl.cli.records.select_options import SelectOptions
from kctl.cli.records.value_options import ValueDecoder, ValueOptions
from kctl.cli.records.zookeeper_group import ZooKeeperOption, check_options
from kctl.cli.session import Session
from kctl.counts import counted
from kctl.errors import TimedOutError, UsageError
from kctl.export.options import Isolation
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.consumer import FetchedRecord, PartitionReader
    from kctl.client.group_consumer import GroupConsumer
    from kctl.client.record_filter import LastRecords, PathStep, RecordFilter
    from kctl.kafka.group_reader import ZooKeeperGroupReader
    from kctl.model import Position
    from kctl.runtime.real import RealRuntime

# How long an interrupted command waits for output that is being written.
INTERRUPTED_WRITE_MS = 200

TopicsArgument = Annotated[list[str], Argument(metavar="TOPIC", help="Topics to read.")]
FromBeginningOption = Annotated[
    bool, Option("--from-beginning", "-B", help="The same as --offset earliest.")
]
GroupOption = Annotated[
    str | None,
    Option(
        "--group", "-g", metavar="GROUP", help="Read as a member of this group and commit offsets."
    ),
]
ExitAtEndOption = Annotated[
    bool,
    Option("--exit", "-e", help="Stop at the end offset; the default start is earliest."),
]
MaxMessagesOption = Annotated[
    int | None,
    Option("--max-messages", "-m", metavar="N", help="Stop after N records."),
    COUNT,
]
TemplateOption = Annotated[
    str | None,
    Option(
        "--format",
        "-f",
        metavar="TEMPLATE",
        help=r"e.g. '{partition} {offset} {time} {key} {value}\n'; also topic, timestamp, "
        "headers, key_size, value_size. A partition of Kafka 0.7 is BROKER-NUMBER.",
    ),
]
ShowKeyOption = Annotated[
    bool, Option("--show-key", "-K", help="Print the key, a tab and the value.")
]
ReadCommittedOption = Annotated[
    bool,
    Option("--read-committed", help="Skip records of open and aborted transactions."),
]


IsolationOption = Annotated[
    Isolation | None,
    Option("--isolation", help="Kafka's isolation.level. [default: read_uncommitted]"),
]


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "consume", READS)(consume)


def consume(
    session: Session,
    topics: TopicsArgument,
    from_beginning: FromBeginningOption = False,
    offset: OffsetOption = None,
    partition: PartitionOption = None,
    group: GroupOption = None,
    zookeeper: ZooKeeperOption = None,
    exit_at_end: ExitAtEndOption = False,
    max_messages: MaxMessagesOption = None,
    template: TemplateOption = None,
    show_key: ShowKeyOption = False,
    read_committed: ReadCommittedOption = False,
    isolation: IsolationOption = None,
    *,
    select: SelectOptions,
    values_as: ValueOptions,
) -> int:
    """Read records. By default, print the values of new records as they arrive, one per line.

    With -o ndjson, print JSON objects that `kctl produce -i ndjson` reads. Ctrl-C stops the
    command. As in Kafka's consumers, records of open and aborted transactions are printed too,
    unless --read-committed is given. To a terminal, control characters are printed as escapes.

    --tail orders the records of all partitions by timestamp. With --offset, --tail, --key, ... and
    -m, only selected records count. A time without a zone is in UTC.

    With --value, values are decoded by a schema and printed as JSON, which --grep and --jq see.

    \b
    Examples:
      kctl consume orders --tail 10
      kctl consume orders -B --exit --key user-7 --jq .items[0].price
      kctl consume orders --offset @2026-01-31T08:00 --grep 'error|timeout'
      kctl consume orders --offset @-1h -o ndjson
      kctl consume orders --offset 100..200 -p 0 -f '{offset} {key} {value}\\n'
      kctl consume orders -g billing --max-messages 10
      kctl consume orders -g billing --zookeeper zk1:2181
      kctl consume orders --value avro --registry http://registry:8081 --jq .customer.id
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.positions import parse_range
    from kctl.client.record_filter import LastRecords

    _check_group(group, offset, partition)
    check_options(zookeeper, group, exit_at_end, select.tail, isolation or read_committed)
    begins = _start(offset, select, group, is_first=from_beginning, exit_at_end=exit_at_end)
    session.writes |= group is not None  # commits
    selection = _Selection(select.record_filter(), positive(max_messages, "--max-messages"))
    start, end = parse_range(begins, session.now_ms())
    request = _Request(
        list(dict.fromkeys(topics)), start, end, partition_numbers(partition), group,
        exit_at_end=exit_at_end or select.tail is not None, zookeeper=zookeeper,
        isolation_level=int(_is_committed_only(read_committed, isolation)), is_first=from_beginning,
    )  # fmt: skip
    sink = _make_sink(session.output, template, selection.filter.path, show_key=show_key)
    last = LastRecords(select.tail) if select.tail is not None else None
    decoder = ValueDecoder(values_as.value_schema(request.topics))
    interrupt = Interrupt(session.runtime.scheduler)

    async def work(admin: "AdminClient") -> None:
        source = await _open(admin, request, session)
        await _pump(source, sink if last is None else last, session, selection, decoder)

    interrupt.run(lambda: session.run(work, interrupt.guard, by_brokers=zookeeper is None))
    if last is not None:
        sink.write(last.take())
    sink.close()
    _report_undecodable(session.output, decoder, values_as)
    return interrupt.status or DONE


def _check_group(group: str | None, offset: str | None, partition: list[str] | None) -> None:
    if group is not None and (offset is not None or partition):
        raise UsageError(
            "--group starts at the committed offsets: it cannot be combined with --offset or -p"
        )


def _is_committed_only(read_committed: bool, isolation: Isolation | None) -> bool:
    """Return whether to skip records of open and aborted transactions."""
    if isolation is Isolation.READ_UNCOMMITTED and read_committed:
        raise UsageError("--read-committed and --isolation read_uncommitted contradict each other")
    return read_committed or isolation is Isolation.READ_COMMITTED


def _report_undecodable(output: Output, decoder: ValueDecoder, values_as: ValueOptions) -> None:
    if decoder.undecodable:
        count = counted(decoder.undecodable, "value")
        kind = values_as.value
        output.say(f"note: {count} could not be decoded as {kind}: printed as stored")


def _start(
    offset: str | None,
    select: SelectOptions,
    group: str | None,
    *,
    is_first: bool,
    exit_at_end: bool,
) -> str:
    """Return the range to read, as --offset takes it; raise UsageError for a contradiction."""
    if is_first and offset is not None:
        raise UsageError("--from-beginning and --offset cannot be combined")
    if select.tail is None:
        return offset or ("earliest" if is_first or exit_at_end else "latest")
    if group is not None or offset is not None or is_first:
        raise UsageError("--tail cannot be combined with --group, --offset or --from-beginning")
    return f"-{select.tail}" if select.record_filter().is_empty else "earliest"


@dataclass(slots=True)
class _Request:
    """The records to read."""

    topics: list[str]
    start: "Position"
    end: "Position | None"
    partitions: list[int] | None
    group: str | None
    exit_at_end: bool
    isolation_level: int
    # Where the group is, if it is not at a coordinator; and whether it begins at the first record.
    zookeeper: str | None
    is_first: bool


class _Sink:
    """Prints records."""

    def __init__(self, output: Output, write: "Callable[[FetchedRecord], None]") -> None:
        self._output = output
        self._write = write
        self._stream: DocumentStream | None = None

    @classmethod
    def of_documents(cls, output: Output) -> "_Sink":
        """Return a sink that prints a document per record, in the format of `output`."""
        from kctl.cli.records.record_format import document

        columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        columns += ["key_base64", "value_base64"]
        stream = DocumentStream(output, columns, "record")

        def write(record: "FetchedRecord") -> None:
            shown = document(record)
            if output.format is OutputFormat.NAME:
                shown["record"] = f"{record.topic}-{record.partition_name}@{record.record.offset}"
            stream.add(shown)

        sink = cls(output, write)
        sink._stream = stream
        return sink

    def write(self, records: "Sequence[FetchedRecord]") -> None:
        """Print `records` and flush."""
        for record in records:
            self._write(record)
        self._output.flush()

    def close(self) -> None:
        """Complete the output."""
        if self._stream is not None and not is_stdout_left():
            self._stream.close()


def _make_sink(
    output: Output, template: str | None, path: "Sequence[PathStep]", *, show_key: bool
) -> _Sink:
    from kctl.cli.records.record_format import template_renderer

    is_text = output.format is OutputFormat.TABLE
    if not is_text:
        if template is not None or show_key:
            raise UsageError("--format and --show-key cannot be combined with --output")
        if path:
            raise UsageError("--jq prints text: it cannot be combined with --output")
        return _Sink.of_documents(output)
    text = template or ("{key}\\t{value}\\n" if show_key else "{value}\\n")
    render = template_renderer(text, path)
    return _Sink(output, lambda record: output.write_buffered(render(record)))


@dataclass(slots=True)
class _Selection:
    """Which of the records read are printed, and how many are still wanted; None: all."""

    filter: "RecordFilter"
    left: int | None

    def take(self, records: "list[FetchedRecord]") -> "tuple[list[FetchedRecord], int]":
        """Return the selected records, and how many of `records` were looked at for them."""
        if self.left is None and self.filter.is_empty:
            return records, len(records)
        chosen = []
        for looked_at, record in enumerate(records, 1):
            if self.filter.matches(record):
                chosen.append(record)
            if self.left is not None and len(chosen) == self.left:
                self.left = 0
                return chosen, looked_at
        if self.left is not None:
            self.left -= len(chosen)
        return chosen, len(records)


async def _pump(
    source: "_Source",
    sink: "_Sink | LastRecords",
    session: Session,
    selection: _Selection,
    decoder: ValueDecoder,
) -> None:
    try:
        while not source.is_done and selection.left != 0:
            records = decoder.decoded(await source.poll())
            chosen, looked_at = selection.take(records)
            if chosen and isinstance(sink, _Sink):
                # The reader of a pipe may pause, as a pager does: heartbeats continue, and a signal
                # ends the command.
                interruption = await _written(session.runtime, partial(sink.write, chosen))
            else:
                interruption = None
                sink.write(chosen)
            source.processed(records[:looked_at])
            if interruption is not None:
                raise interruption
            for note in source.take_notes():
                session.output.say(f"note: {note}")
    finally:
        await source.close()


async def _written(runtime: "RealRuntime", write: Callable[[], object]) -> Exception | None:
    """Write on a separate thread, and return the interruption that came meanwhile, if any: records
    that are printed are to be committed. Raise it if the reader of the output pauses."""
    from kctl.runtime.future import CancelledError, wait_at_most

    job = runtime.scheduler.run_aside(write, "output")
    try:
        await job
    except CancelledError as interruption:
        late = TimedOutError("the output is not read")
        try:
            await wait_at_most(runtime.scheduler, job, INTERRUPTED_WRITE_MS, late)
        except TimedOutError:
            leave_stdout()
            raise interruption from None
        return interruption
    return None


class _Source:
    """A PartitionReader or a member of a group, through one interface."""

    def __init__(
        self,
        reader: "PartitionReader | GroupConsumer | ZooKeeperGroupReader",
        member: "GroupConsumer | ZooKeeperGroupReader | None" = None,
    ) -> None:
        """Read with `reader`; `member` is the same, if it is a member of a group."""
        self._reader = reader
        self._member = member

    @property
    def is_member(self) -> bool:
        """Return whether the records are read as a member of a group."""
        return self._member is not None

    @property
    def is_done(self) -> bool:
        """Return whether all records were read."""
        return self._reader.is_done

    async def poll(self) -> "list[FetchedRecord]":
        """Return the next records."""
        return await self._reader.poll()

    def processed(self, records: "Sequence[FetchedRecord]") -> None:
        """Mark `records` as printed, so that their offsets are committed."""
        if self._member is not None:
            self._member.processed(records)

    def take_notes(self) -> list[str]:
        """Return the messages for the user since the last call."""
        notes = list(self._reader.notes)
        self._reader.notes.clear()
        return notes

    async def close(self) -> None:
        """Stop; as a member of a group, commit and leave first."""
        closing = self._reader.close()
        if closing is not None:
            await closing


async def _open(admin: "AdminClient", request: _Request, session: Session) -> _Source:
    from kctl.admin.selection import partitions_of
    from kctl.client.consumer import PartitionReader
    from kctl.client.group_consumer import GroupConsumer

    if request.zookeeper is not None and request.group is not None:
        return await _join(session, request, request.zookeeper, request.group)
    partitions = await partitions_of(admin, request.topics, request.partitions)
    if request.group is not None:
        consumer = GroupConsumer(
            admin.router,
            request.group,
            request.topics,
            request.start,
            until_end=request.exit_at_end,
            isolation_level=request.isolation_level,
        )
        return _Source(consumer, consumer)
    reader = await PartitionReader.over_range(
        admin.router,
        partitions,
        request.start,
        request.end,
        until_latest=request.exit_at_end,
        isolation_level=request.isolation_level,
    )
    return _Source(reader)


async def _join(session: Session, request: _Request, zookeeper: str, group: str) -> _Source:
    """Join a group on ZooKeeper; UsageError if the profile forbids it."""
    from kctl.kafka.group_reader import ZooKeeperGroupReader

    guard = session.settings.guard
    guard.check_may_use_zookeeper()
    reader = await ZooKeeperGroupReader.open(
        session.runtime,
        zookeeper,
        group,
        request.topics,
        is_first=request.is_first,
        properties=session.settings.properties,
        check_cluster=guard.check_cluster,
    )
    return _Source(reader, reader)
