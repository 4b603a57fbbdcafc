"""kctl group delete-offsets: forget what a group committed, e.g. of topics that are gone.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`deleteOffsets`); KIP-496
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE
from kctl.cli.group_reset import AllTopicsOption, TopicOption, partitions_named
from kctl.cli.items import did_you_mean, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.errors import KctlError
    from kctl.model import TopicPartition


def delete_offsets(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="GROUP", help="A group.")],
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
) -> int:
    """Forget what a group committed for topics that none of its members reads.

    \b
    Examples:
      kctl group delete-offsets billing -t orders --dry-run
      kctl group delete-offsets billing -t orders:0,1 --yes
    """
    if bool(topic) == all_topics:
        raise UsageError("Say whose offsets to delete", hint="either --topic (-t) or --all-topics")

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        committed = await admin.offsets.committed(name)
        if not committed:
            raise await why_nothing(admin, name)
        partitions = _scope(sorted(committed), topic or [])
        offsets = {it: committed[it].offset for it in partitions}
        if session.dry_run:
            return [_offset_row(it, offsets[it], "would delete") for it in partitions]
        columns = ["topic", "partition", "committed_offset"]
        plan = Table(columns, [_offset_row(it, offsets[it], "") for it in partitions])
        question = f"Forget {len(partitions)} offsets of group {name}?"
        if not session.confirm(plan, question):
            return None
        results = await admin.offsets.delete_committed(name, partitions)
        return [
            _offset_row(it.partition, offsets[it.partition], "deleted", it.error) for it in results
        ]

    rows = session.run(work)
    if rows is None:
        return DONE
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


async def why_nothing(admin: "AdminClient", name: str) -> "KctlError":
    """The error of a group that has committed nothing, or is not there."""
    from kctl.errors import KctlError

    known = [group.group_id for group in (await admin.groups.list_groups()).groups]
    if name in known:
        return KctlError(f"Group {name} has committed nothing")
    return KctlError(f"No group {name}", hint=did_you_mean(name, known))


def _scope(
    committed: "Sequence[TopicPartition]", topics: Sequence[str]
) -> "Sequence[TopicPartition]":
    """What `TOPIC` and `TOPIC:P,P` stand for among what is committed; none: all of it."""
    if not topics:
        return committed
    chosen: list[TopicPartition] = []
    for topic, numbers in partitions_named(topics).items():
        known = {it.partition: it for it in committed if it.topic == topic}
        if not known:
            hint = did_you_mean(topic, {it.topic for it in committed})
            raise UsageError(f"Nothing is committed for topic {topic}", hint=hint)
        for number in known if numbers is None else numbers:
            if number not in known:
                raise UsageError(f"Nothing is committed for partition {number} of {topic}")
            chosen.append(known[number])
    return chosen


def _offset_row(
    partition: "TopicPartition", offset: int, status: str, error: object = None
) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": offset,
        **row("partition_name", str(partition), status, error),
    }
