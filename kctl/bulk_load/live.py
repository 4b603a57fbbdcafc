"""load_live: a table to a live cluster, through kctl's producer; ACLs and quotas apply.

Rows are sent in their order, a chunk after the other, and a chunk is done when all its records
are acknowledged. So where a run ends, the number of rows before it is known, and the next one
may skip them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.admin.producer import NewRecord, Producer
from kctl.admin.result import is_unknown_topic
from kctl.bulk_load.plan import LoadOptions
from kctl.bulk_load.tables import TablePart, read_rows
from kctl.errors import KctlError
from kctl.protocol.error_codes import ApiError

if TYPE_CHECKING:
    from kctl.client.router import Router

# Rows that are sent, and acknowledged, together.
_ROWS_TOGETHER = 10_000


@dataclass(slots=True)
class LiveReport:
    """What was written: records by topic."""

    rows: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.rows.values())


class Interrupted(KctlError):
    """A record could not be written; `rows` of the table are done."""

    def __init__(self, error: KctlError, rows: int) -> None:
        hint = f"--skip {rows} goes on behind those that are written" if rows else error.hint
        super().__init__(f"After {rows} rows: {error}", hint=hint)


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
    """Write the rows of the table but for the first `skip`; the topics must be there.

    Interrupted says how far it came; in its last chunk, some records may be written.
    """
    producers: dict[str, Producer] = {}
    report = LiveReport()
    done = skip
    for rows in _chunks(parts, now_ms, skip):
        try:
            for topic, records in _by_topic(rows, options):
                if topic not in producers:
                    producers[topic] = await _open(router, topic, options, timeout_ms)
                await _send(producers[topic], records)
                report.rows[topic] = report.rows.get(topic, 0) + len(records)
        except KctlError as error:
            raise Interrupted(error, done) from error
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
            raise KctlError("A row without a topic", hint="--topic NAME is for all rows")
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
        raise KctlError(
            f"No topic {topic}", hint=f"create it: kctl topic create {topic} -p N"
        ) from None
    return producer


async def _send(producer: Producer, records: list[NewRecord]) -> None:
    for result in await producer.send(records):
        if result.error is not None:
            raise result.error
