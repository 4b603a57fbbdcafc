"""kctl txn: lists, describes and aborts transactions, and finds hanging ones."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import (
    DANGEROUS,
    INT32_NUMBER,
    NUMBER,
    READS,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.units import format_instant
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.transaction_abort import AbortPlan
    from kctl.admin.transactions import OpenTransaction, TransactionDescription

app = CommandGroup()

_COLUMNS = (
    "transactional_id", "state", "producer_id", "producer_epoch", "coordinator", "started",
    "partition_count",
)  # fmt: skip
_OPEN_COLUMNS = (
    "topic", "partition", "producer_id", "producer_epoch", "first_offset", "started",
)  # fmt: skip

TopicOption = Annotated[str | None, Option("--topic", metavar="TOPIC", help="Only in this topic.")]


@remote_command(app, "list", READS)
def list_transactions(
    session: Session,
    patterns: Annotated[
        list[str] | None, Argument(metavar="PATTERN", help="Transactional ids or globs.")
    ] = None,
    state: Annotated[
        list[str] | None,
        Option("--state", metavar="STATE", help="Only in this state: Ongoing, Empty, ..."),
    ] = None,
) -> int:
    """List transactional ids and the states of their transactions.

    Kafka 2.7 has no request for this: the command reads the topic __transaction_state.

    \b
    Examples:
      kctl txn list
      kctl txn list 'import-*' --state Ongoing
    """
    from kctl.admin.selection import matching

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
    names: Annotated[list[str], Argument(metavar="ID", help="Transactional ids or globs.")],
) -> int:
    """Show transactions and the partitions that they write to.

    \b
    Examples:
      kctl txn describe nightly-import
      kctl txn describe 'copier-*' -o json
    """
    from kctl.admin.selection import did_you_mean, is_pattern, matching

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
    """Find transactions that are open in a partition but unknown to their coordinator.

    Such a transaction never ends, and consumers with read_committed cannot read past it. The
    command reads every partition whose last stable offset is before its end from that offset.

    \b
    Examples:
      kctl txn hanging
      kctl txn hanging --topic orders -o ndjson
    """

    from kctl.admin.transaction_abort import hanging_transactions

    found = session.run(lambda admin: hanging_transactions(admin, topic))
    documents = [_open_document(it) for it in found]
    session.output.show(documents, _OPEN_COLUMNS, name="partition")
    return DONE


@remote_command(app, "abort", DANGEROUS)
def abort(
    session: Session,
    names: Annotated[list[str] | None, Argument(metavar="ID", help="Transactional ids.")] = None,
    topic: TopicOption = None,
    partition: Annotated[
        int | None,
        Option("--partition", "-p", metavar="N", help="The partition of --topic."),
        INT32_NUMBER,
    ] = None,
    producer_id: Annotated[
        int | None,
        Option("--producer-id", metavar="N", help="Only transactions of this producer."),
        NUMBER,
    ] = None,
    coordinator_epoch: Annotated[
        int,
        Option("--coordinator-epoch", metavar="N", help="Epoch in the markers."),
        INT32_NUMBER,
    ] = 0,
) -> int:
    """Abort the open transactions of transactional ids, or hanging ones in a partition.

    The current producer of a transactional id is fenced: its further writes fail. A hanging
    transaction has no id: --topic and --partition select it (see `kctl txn hanging`), and the
    command writes the missing marker to the partition.

    \b
    Examples:
      kctl txn abort nightly-import
      kctl txn abort --topic orders --partition 0 --producer-id 4001 --yes
    """
    if bool(names) == (topic is not None):
        raise UsageError("Give either transactional ids, or --topic and --partition")
    if topic is None:
        if partition is not None or producer_id is not None:
            raise UsageError("--partition and --producer-id need --topic")
        return _abort_ids(session, list(dict.fromkeys(names or [])))
    if partition is None:
        raise UsageError("--topic needs --partition", hint="kctl txn hanging lists partitions")
    return _abort_hanging(session, topic, partition, producer_id, coordinator_epoch)


def _abort_ids(session: Session, names: list[str]) -> int:
    from kctl.admin.transaction_abort import abort as abort_planned
    from kctl.admin.transaction_abort import plan_abort

    def question(plan: "AbortPlan") -> Question | None:
        if not plan.transactions:
            return None
        table = Table(_COLUMNS, [_document(it) for it in plan.transactions])
        return Question(table, "Abort open transactions and fence the producers?")

    change = session.change(lambda admin: plan_abort(admin, names), question, abort_planned)
    if change.is_declined:
        return DONE
    rows = [_id_row(name, "", "no such transactional id") for name in change.plan.missing]
    if change.result is None:
        rows += [_id_row(it.transactional_id, "would abort") for it in change.plan.transactions]
    for it in change.result or ():
        status = "aborted" if it.transaction.is_open else "fenced"
        rows.append(_id_row(it.transaction.transactional_id, status, it.error))
    return show_results(session, rows, "transactional_id")


def _abort_hanging(
    session: Session, topic: str, number: int, producer_id: int | None, coordinator_epoch: int
) -> int:
    from kctl.admin.transaction_abort import abort_hanging, plan_abort_hanging
    from kctl.model import TopicPartition

    def question(found: "list[OpenTransaction]") -> Question | None:
        if not found:
            return None
        table = Table(_OPEN_COLUMNS, [_open_document(it) for it in found])
        return Question(table, "Write abort markers?")

    partition = TopicPartition(topic, number)
    change = session.change(
        lambda admin: plan_abort_hanging(admin, partition, producer_id),
        question,
        lambda admin, found: abort_hanging(admin, found, coordinator_epoch),
    )
    if change.is_declined:
        return DONE
    if not change.plan:
        session.output.say(f"note: no hanging transaction in {partition}")
    rows = [_open_row(it.transaction, "aborted", it.error) for it in change.result or ()]
    if change.result is None:
        rows = [_open_row(it, "would abort") for it in change.plan]
    return show_results(session, rows, "partition")


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


def _id_row(name: str, status: str, error: object = None) -> dict[str, Any]:
    return row("transactional_id", name, status, error)


def _open_row(it: "OpenTransaction", status: str, error: object = None) -> dict[str, Any]:
    return row("partition", it.partition, status, error, producer_id=it.producer_id)


def _time(wall_ms: int) -> str:
    return format_instant(wall_ms)
