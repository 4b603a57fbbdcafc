"""kctl txn: list, describe, hanging, abort."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import DANGEROUS, READS, remote_command
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import did_you_mean, is_pattern, matching, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.transactions import OpenTransaction, TransactionDescription
    from kctl.model import TopicPartition

app = typer.Typer(rich_markup_mode=None)

_COLUMNS = (
    "transactional_id", "state", "producer_id", "producer_epoch", "coordinator", "started",
    "partition_count",
)  # fmt: skip
_OPEN_COLUMNS = (
    "topic", "partition", "producer_id", "producer_epoch", "first_offset", "started",
)  # fmt: skip

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only in it.")]


@remote_command(app, "list", READS)
def list_transactions(
    session: Session,
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="PATTERN", help="Transactional ids or globs.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those in it: Ongoing, Empty, ..."),
    ] = None,
) -> int:
    """List transactional ids and where their transactions stand.

    Kafka 2.7 has no request for it: the coordinators' topic, __transaction_state, is read.

    \b
    Examples:
      kctl txn list
      kctl txn list 'import-*' --state Ongoing
    """
    found = session.run(lambda admin: admin.transactions.list_transactions())
    wanted = set(matching([it.transactional_id for it in found], patterns or []))
    states = {name.lower() for name in state or ()}
    documents = [
        _document(it)
        for it in found
        if it.transactional_id in wanted and (not states or it.state.title.lower() in states)
    ]
    session.output.show(documents, _COLUMNS, name="transactional_id")
    return DONE


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids or globs.")],
) -> int:
    """Show transactions with the partitions that they write to.

    \b
    Examples:
      kctl txn describe nightly-import
      kctl txn describe 'copier-*' -o json
    """
    found = session.run(lambda admin: admin.transactions.list_transactions())
    known = [it.transactional_id for it in found]
    missing = [name for name in names if not is_pattern(name) and name not in known]
    wanted = set(matching(known, names))
    documents = [_document(it) for it in found if it.transactional_id in wanted]
    tables = [Table(("topic", "partition"), it["partitions"], _heading(it)) for it in documents]
    session.output.show(documents, name="transactional_id", tables=tables)
    for name in missing:
        hint = did_you_mean(name, known)
        session.output.say(
            f"error: No transactional id {name}" + (f"\nhint: {hint}" if hint else "")
        )
    return FAILED if missing else DONE


@remote_command(app, "hanging", READS)
def hanging(session: Session, topic: TopicOption = None) -> int:
    """Find transactions that are open in a partition while no coordinator knows of them.

    Nobody is going to end them, and readers of committed data wait for ever. All partitions whose
    last stable offset is behind their end are read from there on.

    \b
    Examples:
      kctl txn hanging
      kctl txn hanging --topic orders -o ndjson
    """

    async def work(admin: "AdminClient") -> "list[OpenTransaction]":
        found = await admin.transactions.open_transactions(await _partitions(admin, topic))
        return [it for it in found if it.transactional_id is None]

    documents = [_open_document(it) for it in session.run(work)]
    session.output.show(documents, _OPEN_COLUMNS, name="partition")
    return DONE


@remote_command(app, "abort", DANGEROUS)
def abort(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Transactional ids.")
    ] = None,
    topic: TopicOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", help="With --topic.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", help="Only that producer's.")
    ] = None,
    coordinator_epoch: Annotated[
        int, typer.Option("--coordinator-epoch", metavar="N", help="Of the markers written.")
    ] = 0,
) -> int:
    """Abort the open transactions of transactional ids, or what hangs in a partition.

    A producer with such an id is fenced: it can write nothing more. What hangs has no id; --topic
    and --partition tell where it is (`kctl txn hanging`), and the missing marker is written there.

    \b
    Examples:
      kctl txn abort nightly-import
      kctl txn abort --topic orders --partition 0 --producer-id 4001 --yes
    """
    if bool(names) == (topic is not None):
        raise UsageError("Say what to abort: transactional ids, or --topic and --partition")
    if topic is None:
        if partition is not None or producer_id is not None:
            raise UsageError("--partition and --producer-id go with --topic")
        return _abort_ids(session, list(dict.fromkeys(names or [])))
    if partition is None:
        raise UsageError("--topic needs --partition", hint="kctl txn hanging shows where")
    return _abort_hanging(session, topic, partition, producer_id, coordinator_epoch)


def _abort_ids(session: Session, names: list[str]) -> int:
    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        known = {it.transactional_id: it for it in await admin.transactions.list_transactions()}
        rows = []
        present = []
        for name in names:
            if name in known:
                present.append(known[name])
            else:
                # Asking for it would make it.
                rows.append(row("transactional_id", name, "", "no such transactional id"))
        plan = Table(_COLUMNS, [_document(it) for it in present])
        if session.dry_run:
            return rows + [
                row("transactional_id", it.transactional_id, "would abort") for it in present
            ]
        if present and not session.confirm(plan, "Abort what is open, and fence the producers?"):
            return None
        for it in present:
            error = None
            try:
                await admin.transactions.fence(it.transactional_id)
            except KctlError as failure:
                error = failure
            status = "aborted" if it.is_open else "fenced"
            rows.append(row("transactional_id", it.transactional_id, status, error))
        return rows

    rows = session.run(work)
    return DONE if rows is None else show_results(session, rows, "transactional_id")


def _abort_hanging(
    session: Session, topic: str, number: int, producer_id: int | None, coordinator_epoch: int
) -> int:
    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        partitions = [it for it in await _partitions(admin, topic) if it.partition == number]
        if not partitions:
            raise KctlError(f"{topic} has no partition {number}")
        found = [
            it
            for it in await admin.transactions.open_transactions(partitions)
            if producer_id in (None, it.producer_id)
        ]
        _refuse_known(found)
        if not found:
            session.output.say(f"note: nothing hangs in {topic}-{number}")
        plan = Table(_OPEN_COLUMNS, [_open_document(it) for it in found])
        if session.dry_run:
            return [_open_row(it, "would abort") for it in found]
        if found and not session.confirm(plan, "Write abort markers?"):
            return None
        rows = []
        for it in found:
            error = None
            try:
                await admin.transactions.abort_hanging(it, coordinator_epoch)
            except KctlError as failure:
                error = failure
            rows.append(_open_row(it, "aborted", error))
        return rows

    rows = session.run(work)
    return DONE if rows is None else show_results(session, rows, "partition")


def _refuse_known(found: "Sequence[OpenTransaction]") -> None:
    for it in found:
        if it.transactional_id is not None:
            raise KctlError(
                f"The transaction of producer {it.producer_id} in {it.partition} does not hang: "
                f"it belongs to transactional id {it.transactional_id}",
                hint=f"kctl txn abort {it.transactional_id}, or name another --producer-id",
            )


async def _partitions(admin: "AdminClient", topic: str | None) -> "list[TopicPartition]":
    from kctl.model import TopicPartition

    names = [topic] if topic is not None else [it.name for it in await admin.topics.list_topics()]
    partitions = []
    for described in await admin.topics.describe(names):
        if described.error is not None:
            known = [it.name for it in await admin.topics.list_topics()]
            raise KctlError(f"No topic {described.name}", hint=did_you_mean(described.name, known))
        partitions += [TopicPartition(described.name, it.partition) for it in described.partitions]
    return partitions


def _document(it: "TransactionDescription") -> dict[str, Any]:
    return {
        "transactional_id": it.transactional_id,
        "state": it.state.title,
        "producer_id": it.producer_id,
        "producer_epoch": it.producer_epoch,
        "coordinator": it.coordinator,
        "timeout_ms": it.timeout_ms,
        "started": None if it.start_ms is None else _time(it.start_ms),
        "updated": _time(it.last_update_ms),
        "partition_count": len(it.partitions),
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition}
            for partition in it.partitions
        ],
    }


def _heading(document: dict[str, Any]) -> str:
    started = f", started {document['started']}" if document["started"] else ""
    return (
        f"{document['transactional_id']}: {document['state']}{started}, "
        f"producer {document['producer_id']}/{document['producer_epoch']}, "
        f"coordinator {document['coordinator']}, timeout {document['timeout_ms']} ms"
    )


def _open_document(it: "OpenTransaction") -> dict[str, Any]:
    return {
        "topic": it.partition.topic,
        "partition": it.partition.partition,
        "producer_id": it.producer_id,
        "producer_epoch": it.producer_epoch,
        "first_offset": it.first_offset,
        "started": _time(it.timestamp_ms),
    }


def _open_row(it: "OpenTransaction", status: str, error: object = None) -> dict[str, Any]:
    return row("partition", it.partition, status, error, producer_id=it.producer_id)


def _time(wall_ms: int) -> str:
    from kctl.cli.units import format_instant

    return format_instant(wall_ms)
