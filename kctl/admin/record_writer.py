"""Writes the records of an input to one topic, chunk by chunk, and in one transaction if wanted.

The transaction is committed if every record was written, and otherwise aborted: by a request, or by
the coordinator, when it times out, if no broker answers.
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from kctl.client.producer import NewRecord, Outcome, ProducedRecord, Producer
from kctl.client.producer_transaction import ProducerTransaction
from kctl.client.results import is_unknown_topic
from kctl.errors import KctlError, NotFoundError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.protocol.constants import ACKS_ALL
from kctl.protocol.error_codes import ApiError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

# After a stop the abort is a courtesy: the broker aborts the transaction when it times out.
_ABORT_TIMEOUT_MS = 1_000
# How long a topic may be unknown: brokers learn of a new one after the controller, one by one.
TOPIC_UNKNOWN_MS_MAX = 1_000
_TOPIC_POLL_MS = 50


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Where records are written, and how."""

    topic: str
    # The partition that records name; it must exist.
    partition: int | None = None
    acks: int = ACKS_ALL
    compression_type: int = 0
    timeout_ms: int = 30_000
    transactional_id: str | None = None


class WriteResults(Protocol):
    """Receives the results while records are written."""

    def add(self, results: Sequence[ProducedRecord], stopped_by: KctlError | None) -> None:
        """Take the result of each record of a chunk, and the error that ends the run, if any."""

    def rehearse(self, count: int) -> None:
        """Take the number of records of a chunk that a dry run does not write."""

    def aborted(self, error: KctlError | None) -> None:
        """Take the end of the transaction; `error` if the request to abort it failed."""


async def write_records(
    admin: "AdminClient",
    request: WriteRequest,
    chunks: Iterable[Sequence[NewRecord]],
    results: WriteResults,
    *,
    dry_run: bool = False,
) -> None:
    """Write the records of all chunks, or up to the error that stops the producer.

    `dry_run` checks the topic and reads the chunks. Raise NotFoundError if the topic or partition
    does not exist, and the errors of `chunks`, after the transaction was aborted.
    """
    transaction = None
    if request.transactional_id is not None and not dry_run:
        transaction = ProducerTransaction(admin.router, request.transactional_id)
    producer = Producer(
        admin.router,
        request.topic,
        acks=request.acks,
        compression_type=request.compression_type,
        timeout_ms=request.timeout_ms,
        transaction=transaction,
    )
    await _open(admin, producer, request)
    if dry_run:
        for records in chunks:
            results.rehearse(len(records))
        return
    try:
        is_complete = await _write(producer, chunks, results)
        if is_complete and transaction is not None:
            await transaction.end(commit=True)
    except Exception:
        # Whatever ends the run: what is written so far must not stay open.
        await _abort(transaction, producer, results)
        raise
    if not is_complete:
        await _abort(transaction, producer, results)


async def _open(admin: "AdminClient", producer: Producer, request: WriteRequest) -> None:
    topic, partition = request.topic, request.partition
    runtime = admin.router.runtime
    give_up_ms = runtime.clock.monotonic_ms() + TOPIC_UNKNOWN_MS_MAX
    while True:
        try:
            await producer.open()
            break
        except ApiError as error:
            if not is_unknown_topic(error):
                raise
        if runtime.clock.monotonic_ms() >= give_up_ms:
            names = [it.name for it in await admin.topics.list_topics()]
            hint = f"create it: kctl topic create {shlex.quote(topic)}"
            raise not_found("topic", topic, names, hint=hint)
        await sleep(runtime.scheduler, _TOPIC_POLL_MS)
    if partition is not None and not 0 <= partition < producer.partition_count:
        raise NotFoundError(
            f"{topic} has no partition {partition}, only {producer.partition_count}"
        )


async def _write(
    producer: Producer, chunks: Iterable[Sequence[NewRecord]], results: WriteResults
) -> bool:
    """Return whether every record of every chunk was written."""
    has_failed = False
    for records in chunks:
        if records:
            sent = await producer.send(records)
            results.add(sent, producer.stopped_by)
            has_failed = has_failed or any(it.outcome is Outcome.REJECTED for it in sent)
        if producer.stopped_by is not None:
            return False
    return not has_failed


async def _abort(
    transaction: ProducerTransaction | None, producer: Producer, results: WriteResults
) -> None:
    if transaction is None:
        return
    limit_ms = None if producer.stopped_by is None else _ABORT_TIMEOUT_MS
    try:
        await transaction.end(commit=False, timeout_ms=limit_ms)
    except KctlError as error:
        results.aborted(error)
    else:
        results.aborted(None)
