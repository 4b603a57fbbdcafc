"""kctl group delete-offsets: deletes committed offsets, such as those of deleted topics.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`deleteOffsets`); KIP-496
"""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument
from kctl.cli.failures import DONE
from kctl.cli.group.reset import AllTopicsOption, TopicOption
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.topic.scope import partitions_named
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.model import TopicPartition


def delete_offsets(
    session: Session,
    name: Annotated[str, Argument(metavar="GROUP", help="A group.")],
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
) -> int:
    """Delete the committed offsets of a group for topics that none of its members reads.

    \b
    Examples:
      kctl group delete-offsets billing -t orders --dry-run
      kctl group delete-offsets billing -t orders:0,1 --yes
    """
    if bool(topic) == all_topics:
        raise UsageError("No topics given", hint="give either --topic (-t) or --all-topics")

    from kctl.admin.committed_offsets import plan_deletion

    def question(offsets: "dict[TopicPartition, int]") -> Question:
        rows = [_offset_row(it, offset, "") for it, offset in offsets.items()]
        table = Table(["topic", "partition", "committed_offset"], rows)
        named = counted(len(offsets), "committed offset")
        return Question(table, f"Delete {named} of group {name}?")

    scope = partitions_named(topic or [])
    change = session.change(
        lambda admin: plan_deletion(admin, name, scope),
        question,
        lambda admin, offsets: admin.offsets.delete_committed(name, offsets),
    )
    if change.is_declined:
        return DONE
    offsets = change.plan
    if change.result is None:
        rows = [_offset_row(it, offset, "would delete") for it, offset in offsets.items()]
    else:
        rows = [
            _offset_row(it.partition, offsets[it.partition], "deleted", it.error)
            for it in change.result
        ]
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _offset_row(
    partition: "TopicPartition", offset: int, status: str, error: object = None
) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed_offset": offset,
        **row("partition_name", str(partition), status, error),
    }
