"""Renders topics as documents."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kctl.cli.units import format_bytes
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.admin.topic_overview import TopicOverview
    from kctl.admin.topics import PartitionDescription, TopicDescription

PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr")


def partition_document(
    overview: "TopicOverview", partition: "PartitionDescription"
) -> dict[str, Any]:
    """Return a partition as `-o json` shows it."""
    from kctl.model import TopicPartition

    document = {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if partition.is_offline else partition.leader,
        "leader_epoch": known(partition.leader_epoch),
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline_replicas": partition.offline_replicas,
    }
    key = TopicPartition(partition.topic, partition.partition)
    if overview.eligible_leaders is not None and key in overview.eligible_leaders:
        leaders = overview.eligible_leaders[key]
        document["eligible_leaders"] = leaders.eligible
        document["last_known_eligible_leaders"] = leaders.last_known
    if overview.ends:
        document["start_offset"] = overview.starts.get(key)
        document["end_offset"] = overview.ends.get(key)
    if overview.sizes is not None:
        document["size_bytes"] = overview.sizes.by_partition.get(key, 0)
    return document


def topic_document(overview: "TopicOverview", topic: "TopicDescription") -> dict[str, Any]:
    """Return a topic with the requested partitions, as `-o json` shows it."""
    sizes = overview.sizes
    return {
        "name": topic.name,
        **({} if topic.topic_id is None else {"topic_id": topic.topic_id}),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": overview.configs.get(topic.name, {}),
        **({} if sizes is None else {"size_bytes": sizes.by_topic[topic.name]}),
        "partitions": [partition_document(overview, it) for it in overview.partitions(topic)],
    }


def partition_columns(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Return the columns of the tables of partitions: eligible leaders only where there are any."""
    names = ("eligible_leaders", "last_known_eligible_leaders")
    rows = [it for document in documents for it in document["partitions"]]
    return [*PARTITION_COLUMNS, *(name for name in names if any(it.get(name) for it in rows))]


def table_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a table row per partition of a topic, with sizes such as `1.5 MiB`."""
    return [
        {**it, "size": format_bytes(it["size_bytes"])} if "size_bytes" in it else it
        for it in document["partitions"]
    ]


def heading(document: dict[str, Any]) -> str:
    """Return the line above the table of a topic's partitions."""
    configs = ", ".join(f"{name}={value}" for name, value in document["configs"].items())
    size = f", {format_bytes(document['size_bytes'])}" if "size_bytes" in document else ""
    topic_id = f", id {document['topic_id']}" if "topic_id" in document else ""
    return (
        f"{document['name']}: {counted(document['partition_count'], 'partition')}, "
        f"replication factor {document['replication_factor']}{size}{topic_id}"
        + (f", {configs}" if configs else "")
    )


def plotted_sizes(documents: Sequence[dict[str, Any]], width: int | None) -> str:
    """Return a bar per partition, with the bytes of all its replicas."""
    from kctl.cli.bars import Bar, bar_lines

    bars = [
        Bar(f"{it['topic']} {it['partition']}", it["size_bytes"], format_bytes(it["size_bytes"]))
        for document in documents
        for it in document["partitions"]
    ]
    return "".join(f"{line}\n" for line in ["", *bar_lines(bars, width)])


def known(number: int) -> int | None:
    """Return `number`, or None if it is negative, which means unknown."""
    return None if number < 0 else number
