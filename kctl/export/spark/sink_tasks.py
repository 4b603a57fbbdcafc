"""The work of a Spark job that writes to Kafka: that of its tasks, and that of its driver.

At least once: a task writes its rows, and a task that runs again writes them again.

Exactly once: task i writes in a transaction with the id `<name>-<i>`. A later attempt of the task
fences the earlier one and aborts its transaction. The driver commits the transactions when all
tasks are done; `batch_progress` describes what makes this safe for a stream. A job that is not a
stream has no batch that could run again: its name is new for each job.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.client.producer_transaction import ProducerTransaction
from kctl.errors import KctlError
from kctl.export.spark.batch_progress import BatchProgress, TaskTransaction, parse_progress
from kctl.export.spark.brokers import OpenConnection
from kctl.export.spark.row_writer import RowWriter, chunked
from kctl.export.spark.sink_options import SinkOptions
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.router import Router

_NAME_BYTES = 8
# A transaction has ended otherwise than asked for: by its timeout or a later attempt, or, in the
# epoch in which it began, by this job.
_ENDED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
    }
)


@dataclass(frozen=True, slots=True)
class Job:
    """What is committed at once: all rows of a DataFrame, or a batch of a stream."""

    name: str
    # None if it is not a stream.
    batch: int | None = None

    def transactional_id(self, task: int) -> str:
        """Return the id of a task's transactions."""
        return f"{self.name}-{task}"


class TransactionLostError(KctlError):
    """A transaction was aborted, by its timeout or by a later attempt, before it was committed."""


def new_job(options: SinkOptions) -> Job:
    """Return a job that is not a stream, with a name of its own unless one is given."""
    if options.transactional_id is not None:
        return Job(options.transactional_id)
    with options.connection.open() as opened:
        entropy = opened.admin.router.runtime.entropy
        return Job(f"kctl-spark-{entropy.random_bytes(_NAME_BYTES).hex()}")


def write_rows(options: SinkOptions, rows: Iterable[pa.RecordBatch]) -> None:
    """Write the rows of a task; all are acknowledged when it returns."""
    with options.connection.open() as opened:
        writer = RowWriter(opened.admin.router, options)
        for chunk in chunked(rows):
            opened.run(writer.write(chunk))


def write_in_transaction(
    options: SinkOptions, rows: Iterable[pa.RecordBatch], job: Job, task: int
) -> TaskTransaction | None:
    """Write the rows of a task and leave the transaction open; return None if there is none,
    because the task has no rows or its batch was written before."""
    with options.connection.open() as opened:
        if job.batch is not None:
            progress = opened.run(_read_progress(opened.admin, options, job.name))
            if not progress.must_write(job.batch):
                return None
        transaction = _transaction(opened, options, job.transactional_id(task))
        writer = RowWriter(opened.admin.router, options, transaction)
        # This aborts what an earlier attempt has left open, even if there are no rows now.
        opened.run(writer.producer_of(_place(options).topic))
        try:
            for chunk in chunked(rows):
                opened.run(writer.write(chunk))
        except BaseException:
            # If this fails as well, the next attempt or the timeout aborts the transaction.
            with suppress(KctlError):
                opened.run(transaction.end(commit=False))
            raise
        if not transaction.is_open:
            return None
        return TaskTransaction(task, transaction.producer_id, transaction.producer_epoch)


def commit_job(options: SinkOptions, job: Job, transactions: Sequence[TaskTransaction]) -> None:
    """Commit the transactions of a job. Of a stream's batch, also those that were prepared before a
    restart.

    TransactionLostError if one was aborted meanwhile; its hint says what to do.
    """
    with options.connection.open() as opened:
        if job.batch is None:
            ordered = sorted(transactions, key=lambda it: it.task)
            _expect_open(opened, options, job, ordered)
            committed = _commit_all(opened, options, job, ordered)
            if committed < len(ordered):
                raise _lost(job, committed, len(ordered))
            return
        progress = opened.run(_read_progress(opened.admin, options, job.name))
        if progress.must_write(job.batch):
            if not transactions:
                return
            progress = progress.prepared(job.batch, tuple(transactions))
            _expect_open(opened, options, job, progress.transactions)
            opened.run(_write_progress(opened.admin, options, job.name, progress))
        count = len(progress.transactions)
        committed = _commit_all(opened, options, job, progress.transactions)
        if committed == 0 < count:
            undone = progress.rolled_back()
            opened.run(_write_progress(opened.admin, options, job.name, undone))
        if committed < count:
            raise _lost(job, committed, count)
        if count:
            done = progress.committed()
            opened.run(_write_progress(opened.admin, options, job.name, done))


def abort_job(options: SinkOptions, job: Job, transactions: Iterable[TaskTransaction]) -> None:
    """Abort the transactions of a job that failed, unless it was prepared: then it is committed
    when the query is started again."""
    with options.connection.open() as opened:
        if job.batch is not None:
            progress = opened.run(_read_progress(opened.admin, options, job.name))
            if not progress.must_write(job.batch):
                return
        for it in transactions:
            transaction = _resumed(opened, options, job, it)
            try:
                opened.run(transaction.end(commit=False))
            except ApiError as error:
                if error.code not in _ENDED:
                    raise


def _expect_open(
    opened: OpenConnection,
    options: SinkOptions,
    job: Job,
    transactions: Sequence[TaskTransaction],
) -> None:
    """Raise TransactionLostError if one was aborted, before any is committed."""
    for it in transactions:
        transaction = _resumed(opened, options, job, it)
        try:
            # The coordinator refuses this if the epoch is over; a further partition does no harm.
            opened.run(transaction.add([_place(options)]))
        except ApiError as error:
            if error.code not in _ENDED:
                raise
            raise _lost(job, 0, len(transactions)) from None


def _commit_all(
    opened: OpenConnection,
    options: SinkOptions,
    job: Job,
    transactions: Sequence[TaskTransaction],
) -> int:
    """Commit in order; return how many were, before one that is lost."""
    for number, it in enumerate(transactions):
        try:
            opened.run(_resumed(opened, options, job, it).end(commit=True))
        except ApiError as error:
            if error.code not in _ENDED:
                raise
            return number
    return len(transactions)


def _lost(job: Job, committed: int, count: int) -> TransactionLostError:
    what = "The job" if job.batch is None else f"Batch {job.batch}"
    if not committed:
        return TransactionLostError(
            f"{what} lost a transaction before it was committed; nothing of it is visible",
            hint="run it again; kafka.transaction.timeout.ms bounds how long this may take",
        )
    return TransactionLostError(
        f"{what} is committed in part: {committed} of {count} transactions were committed, and "
        f"the next one had been aborted by its timeout",
        hint="kafka.transaction.timeout.ms bounds how long a driver may be down while it commits",
    )


def _transaction(
    opened: OpenConnection, options: SinkOptions, transactional_id: str
) -> ProducerTransaction:
    router: Router = opened.admin.router
    return ProducerTransaction(router, transactional_id, timeout_ms=options.transaction_timeout_ms)


def _resumed(
    opened: OpenConnection, options: SinkOptions, job: Job, it: TaskTransaction
) -> ProducerTransaction:
    transaction = _transaction(opened, options, job.transactional_id(it.task))
    transaction.resume(it.producer_id, it.producer_epoch)
    return transaction


def _place(options: SinkOptions) -> TopicPartition:
    assert options.topic is not None
    return TopicPartition(options.topic, 0)


async def _read_progress(admin: "AdminClient", options: SinkOptions, name: str) -> BatchProgress:
    place = _place(options)
    found = (await admin.offsets.committed(name, [place]))[place]
    if found.error is not None:
        raise found.error
    return parse_progress(found.offset, found.metadata)


async def _write_progress(
    admin: "AdminClient", options: SinkOptions, name: str, progress: BatchProgress
) -> None:
    place = _place(options)
    metadata = {place: progress.metadata}
    for result in await admin.offsets.commit(name, {place: progress.offset}, metadata):
        if result.error is not None:
            raise result.error
