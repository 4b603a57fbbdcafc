"""load_live: imports a table to a live cluster through kctl's producer; ACLs and quotas apply.

`check_live` comes first: nothing is written if a row cannot be decoded, or names a topic or
partition that does not exist. Rows are sent in order, one chunk after another; a chunk is done when
all its records are acknowledged. So where a run ends, the number of rows written is known, and the
next run can skip them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.client.producer import NewRecord, Outcome, Producer
from kctl.client.results import is_unknown_topic
from kctl.counts import counted
from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.table_import.import_plan import LoadOptions, TablePlaces
from kctl.table_import.tables import TablePart, read_rows

if TYPE_CHECKING:
    from kctl.client.router import Router

# Rows sent and acknowledged together.
_ROWS_TOGETHER = 10_000


@dataclass(slots=True)
class LiveReport:
    """The number of records written, by topic."""

    rows: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Return the number of records of all topics."""
        return sum(self.rows.values())


class Interrupted(KctlError):
    """A record could not be written; the first `rows` rows of the table are done.

    Of the rows after these, `written` are acknowledged as well, and the outcome of `unknown` is not
    known: the run that continues sends both again.
    """

    def __init__(self, cause: KctlError, rows: int, written: int, unknown: int) -> None:
        counts = ((written, "that are written"), (unknown, "whose outcome is unknown"))
        again = [f"{count} {what}" for count, what in counts if count]
        twice = f"; of the rows after these it sends {' and '.join(again)} again" if again else ""
        hint = f"--skip {rows} continues after the rows that are written{twice}"
        super().__init__(
            f"After {counted(rows, 'row')}: {cause}", hint=hint if rows or again else cause.hint
        )
        self.cause = cause


async def check_live(router: "Router", places: TablePlaces) -> dict[str, int]:
    """Return topic -> number of partitions, for the topics in `places`.

    KctlError if a topic does not exist; UsageError if rows name a partition that it does not have.
    """
    counts = {}
    for topic, wanted in sorted(places.topics.items()):
        view = await router.refresh([topic])
        count = counts[topic] = len(view.partitions_of(topic))
        if not count:
            error = ApiError(view.error_of(TopicPartition(topic, 0)))
            raise _no_topic(topic) if is_unknown_topic(error) else error
        if wanted.highest >= count:
            raise UsageError(
                f"Rows of {topic} name partition {wanted.highest}, but it has "
                f"{counted(count, 'partition')}",
                hint="--repartition assigns partitions by key instead",
            )
    return counts


async def load_live(
    router: "Router",
    parts: Sequence[TablePart],
    options: LoadOptions,
    now_ms: int,
    *,
    skip: int = 0,
    timeout_ms: int = 30_000,
    progress: Callable[[int], object] = lambda _rows: None,
) -> LiveReport:
    """Write the rows of the table, except the first `skip`; the topics must exist.

    Interrupted reports how many rows are done; some records of the next chunk may also have been
    written.
    """
    producers: dict[str, Producer] = {}
    report = LiveReport()
    done = skip
    for rows in _chunks(parts, now_ms, skip):
        outcomes: list[Outcome] = []
        try:
            for topic, records in _by_topic(rows, options):
                if topic not in producers:
                    producers[topic] = await _open(router, topic, options, timeout_ms)
                await _send(producers[topic], records, outcomes)
                report.rows[topic] = report.rows.get(topic, 0) + len(records)
        except KctlError as error:
            written, unknown = map(outcomes.count, (Outcome.WRITTEN, Outcome.UNKNOWN))
            raise Interrupted(error, done, written, unknown) from error
        done += rows.num_rows
        progress(done)
    return report


def _chunks(parts: Sequence[TablePart], now_ms: int, skip: int) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for rows in read_rows(part, now_ms):
            passed = min(skip, rows.num_rows)
            skip -= passed
            for start in range(passed, rows.num_rows, _ROWS_TOGETHER):
                yield rows.slice(start, _ROWS_TOGETHER)


def _by_topic(rows: pa.RecordBatch, options: LoadOptions) -> list[tuple[str, list[NewRecord]]]:
    found: dict[str, list[NewRecord]] = {}
    for row in rows.to_pylist():
        topic = options.topic or row["topic"]
        if topic is None:
            raise KctlError("A row has no topic", hint="--topic NAME sets it for all rows")
        found.setdefault(topic, []).append(_record(row, options))
    return list(found.items())


def _record(row: dict[str, Any], options: LoadOptions) -> NewRecord:
    headers = tuple((pair["key"] or "", pair["value"]) for pair in row["headers"] or ())
    partition = row["partition"] if options.keeps_partitions else None
    return NewRecord(row["key"], row["value"], headers, partition, row["timestamp"])


async def _open(router: "Router", topic: str, options: LoadOptions, timeout_ms: int) -> Producer:
    producer = Producer(
        router, topic, compression_type=options.compression_type, timeout_ms=timeout_ms
    )
    try:
        await producer.open()
    except ApiError as error:
        if not is_unknown_topic(error):
            raise
        raise _no_topic(topic) from None
    return producer


def _no_topic(topic: str) -> KctlError:
    return KctlError(f"No topic {topic}", hint=f"create it: kctl topic create {topic} -p N")


async def _send(producer: Producer, records: list[NewRecord], outcomes: list[Outcome]) -> None:
    """Send records and add their outcomes to `outcomes`; raise the first error."""
    results = await producer.send(records)
    outcomes += [result.outcome for result in results]
    for result in results:
        if result.error is not None:
            raise result.error
