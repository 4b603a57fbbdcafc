"""kctl consume: read records of topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import READS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.items import did_you_mean, positive
from kctl.cli.output import DocumentStream, Output, OutputFormat
from kctl.cli.read_options import OffsetOption, PartitionOption
from kctl.cli.session import Session
from kctl.errors import KctlError, UsageError
from kctl.export.options import Isolation

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.consumer import FetchedRecord, PartitionReader
    from kctl.admin.group_consumer import GroupConsumer
    from kctl.admin.offsets import Position
    from kctl.model import TopicPartition


TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to read.")]
FromBeginningOption = Annotated[
    bool, typer.Option("--from-beginning", "-B", help="The same as --offset earliest.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", metavar="GROUP", help="As a member of it, committing."),
]
ExitAtEndOption = Annotated[
    bool, typer.Option("--exit", "-e", help="Stop at the end; starts at the beginning then.")
]
MaxMessagesOption = Annotated[
    int | None, typer.Option("--max-messages", "-m", metavar="N", help="Stop after N records.")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="TEMPLATE",
        help=r"e.g. '{partition} {offset} {time} {key} {value}\n'; also topic, timestamp, "
        "headers, key_size, value_size.",
    ),
]
ShowKeyOption = Annotated[bool, typer.Option("--show-key", "-K", help="Key, a tab, and the value.")]
ReadCommittedOption = Annotated[
    bool,
    typer.Option("--read-committed", help="No records of open or aborted transactions."),
]


IsolationOption = Annotated[
    Isolation | None,
    typer.Option("--isolation", help="The same, in Kafka's words. [default: read_uncommitted]"),
]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    remote_command(app, "consume", READS)(consume)


def consume(
    session: Session,
    topics: TopicsArgument,
    from_beginning: FromBeginningOption = False,
    offset: OffsetOption = None,
    partition: PartitionOption = None,
    group: GroupOption = None,
    exit_at_end: ExitAtEndOption = False,
    max_messages: MaxMessagesOption = None,
    template: TemplateOption = None,
    show_key: ShowKeyOption = False,
    read_committed: ReadCommittedOption = False,
    isolation: IsolationOption = None,
) -> int:
    """Read records; by default new ones as they come, and their values, one a line.

    With -o ndjson a JSON object each, just as `kctl produce -i ndjson` reads. Ctrl-C ends it.

    \b
    Examples:
      kctl consume orders --from-beginning --exit
      kctl consume orders --offset @-1h -o ndjson
      kctl consume orders --offset 100..200 -p 0 -f '{offset} {key} {value}\\n'
      kctl consume orders -g billing --max-messages 10
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.positions import parse_range

    if from_beginning and offset is not None:
        raise UsageError("Say where to start once: --from-beginning or --offset")
    if isolation is not None and read_committed and isolation is not Isolation.READ_COMMITTED:
        raise UsageError("--read-committed and --isolation read_uncommitted contradict each other")
    if group is not None and (offset is not None or partition):
        raise UsageError("A group says itself where to go on: no --offset or -p with --group")
    start_text = offset or ("earliest" if from_beginning or exit_at_end else "latest")
    start, end = parse_range(start_text, session.now_ms())
    is_committed_only = read_committed or isolation is Isolation.READ_COMMITTED
    request = _Request(
        list(dict.fromkeys(topics)), start, end, _partition_numbers(partition), group,
        exit_at_end=exit_at_end, isolation_level=int(is_committed_only),
    )  # fmt: skip
    sink = _make_sink(session.output, template, show_key=show_key)
    limit = positive(max_messages, "--max-messages")
    interrupt = Interrupt(session.runtime.scheduler)

    async def work(admin: "AdminClient") -> None:
        source = await _open(admin, request)
        try:
            await _pump(source, sink, session, limit)
        finally:
            await source.close()

    interrupt.run(lambda: session.run(work, interrupt.guard))
    sink.close()
    return interrupt.status or DONE


@dataclass(slots=True)
class _Request:
    """What is to be read."""

    topics: list[str]
    start: "Position"
    end: "Position | None"
    partitions: list[int] | None
    group: str | None
    exit_at_end: bool
    isolation_level: int


class _Sink:
    """Prints records."""

    def __init__(self, output: Output, write: "Callable[[FetchedRecord], None]") -> None:
        self._output = output
        self._write = write
        self._stream: DocumentStream | None = None

    @classmethod
    def of_documents(cls, output: Output) -> "_Sink":
        """A JSON object, a CSV row or the like for each."""
        from kctl.cli.record_format import document

        columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        columns += ["key_base64", "value_base64"]
        stream = DocumentStream(output, columns, "record")

        def write(record: "FetchedRecord") -> None:
            shown = document(record)
            if output.format is OutputFormat.NAME:
                shown["record"] = f"{record.topic}-{record.partition}@{record.record.offset}"
            stream.add(shown)

        sink = cls(output, write)
        sink._stream = stream
        return sink

    def write(self, records: "Sequence[FetchedRecord]") -> None:
        """Print and flush."""
        for record in records:
            self._write(record)
        self._output.flush()

    def close(self) -> None:
        """End the output."""
        if self._stream is not None:
            self._stream.close()


def _make_sink(output: Output, template: str | None, *, show_key: bool) -> _Sink:
    from kctl.cli.record_format import template_renderer

    is_text = output.format is OutputFormat.TABLE
    if not is_text:
        if template is not None or show_key:
            raise UsageError("--format and --show-key do not go with --output")
        return _Sink.of_documents(output)
    render = template_renderer(template or ("{key}\\t{value}\\n" if show_key else "{value}\\n"))
    return _Sink(output, lambda record: output.write_buffered(render(record)))


async def _pump(source: "_Source", sink: _Sink, session: Session, limit: int | None) -> None:
    count = 0
    while not source.is_done and (limit is None or count < limit):
        records = await source.poll()
        if limit is not None:
            records = records[: limit - count]
        sink.write(records)
        count += len(records)
        source.processed(records)
        for note in source.take_notes():
            session.output.say(f"note: {note}")


class _Source:
    """A PartitionReader or a GroupConsumer: what both have in common."""

    def __init__(self, reader: "PartitionReader | GroupConsumer") -> None:
        self._reader = reader

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to read."""
        return self._reader.is_done

    async def poll(self) -> "list[FetchedRecord]":
        """The next records."""
        return await self._reader.poll()

    def processed(self, records: "Sequence[FetchedRecord]") -> None:
        """They have been printed."""
        from kctl.admin.group_consumer import GroupConsumer

        if isinstance(self._reader, GroupConsumer):
            self._reader.processed(records)

    def take_notes(self) -> list[str]:
        """What there is to tell."""
        notes = list(self._reader.notes)
        self._reader.notes.clear()
        return notes

    async def close(self) -> None:
        """Commit and leave, or just stop."""
        from kctl.admin.group_consumer import GroupConsumer

        if isinstance(self._reader, GroupConsumer):
            await self._reader.close()
        else:
            self._reader.close()


async def _open(admin: "AdminClient", request: _Request) -> _Source:
    from kctl.admin.consumer import PartitionReader
    from kctl.admin.group_consumer import GroupConsumer

    partitions = await _partitions(admin, request)
    if request.group is not None:
        consumer = GroupConsumer(
            admin.router,
            request.group,
            request.topics,
            request.start,
            until_end=request.exit_at_end,
            isolation_level=request.isolation_level,
        )
        return _Source(consumer)
    level = request.isolation_level
    starts = await admin.offsets.resolve(
        dict.fromkeys(partitions, request.start), isolation_level=level
    )
    ends = {}
    if request.end is not None:
        resolved = await admin.offsets.resolve(
            dict.fromkeys(partitions, request.end), isolation_level=level
        )
        ends = {partition: found.offset for partition, found in resolved.items()}
    if request.exit_at_end:
        for partition, found in (
            await admin.offsets.latest(partitions, isolation_level=level)
        ).items():
            ends[partition] = min(found.offset, ends.get(partition, found.offset))
    for found in starts.values():
        if found.error is not None:
            raise found.error
    positions = {partition: found.offset for partition, found in starts.items()}
    return _Source(PartitionReader(admin.router, positions, ends, isolation_level=level))


async def _partitions(admin: "AdminClient", request: _Request) -> "list[TopicPartition]":
    from kctl.model import TopicPartition

    partitions = []
    for topic in await admin.topics.describe(request.topics):
        if topic.error is not None:
            names = [it.name for it in await admin.topics.list_topics()]
            raise KctlError(f"No topic {topic.name}", hint=did_you_mean(topic.name, names))
        known = [item.partition for item in topic.partitions]
        for number in known if request.partitions is None else request.partitions:
            if number not in known:
                raise KctlError(f"{topic.name} has no partition {number}, only {len(known)}")
            partitions.append(TopicPartition(topic.name, number))
    return partitions


def _partition_numbers(texts: list[str] | None) -> list[int] | None:
    if not texts:
        return None
    numbers = [number for text in texts for number in text.split(",")]
    if not all(number.strip().isdigit() for number in numbers):
        raise UsageError(f"Not partitions: {', '.join(texts)}", hint="e.g. -p 0,3")
    return sorted({int(number) for number in numbers})
