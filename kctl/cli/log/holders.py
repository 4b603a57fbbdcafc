"""kctl dump-log --where: finds the partition of an internal topic for a group or a transaction."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.java_hash import abs_java_hash

if TYPE_CHECKING:
    from kctl.cli.output import Output
    from kctl.runtime.disk import Disk

# offsets.topic.num.partitions and transaction.state.log.num.partitions.
_DEFAULT_PARTITIONS = 50


def show_holders(
    output: "Output", paths: list[str], group: str | None, transactional_id: str | None
) -> int:
    """Print for each the partition, and its directory if it is below one of `paths`.

    Assumes the default of 50 partitions per topic, unless the log directory has others: a broker
    may not have the last of them.
    """
    from kctl.runtime.real.disk import RealDisk

    wanted = [
        (topic, name)
        for topic, name in (
            ("__consumer_offsets", group),
            ("__transaction_state", transactional_id),
        )
        if name is not None
    ]
    if not wanted:
        raise UsageError("--where needs --group or --transactional-id")
    for topic, name in wanted:
        numbers = _partitions_below(RealDisk(), paths, topic)
        count, is_guess = _partition_count(numbers)
        partition = abs_java_hash(name) % count
        place = numbers.get(partition, "not in these directories")
        guess = f"  (if it has {counted(count, 'partition')})" if is_guess else ""
        output.write(f"{topic}-{partition}  {name}  {place}{guess}\n")
    return DONE


def _partition_count(numbers: dict[int, str]) -> tuple[int, bool]:
    """Return the number of partitions of the topic, and whether that is a guess."""
    if not numbers or len(numbers) != max(numbers) + 1:
        return _DEFAULT_PARTITIONS, True
    return len(numbers), False


def _partitions_below(disk: "Disk", paths: list[str], topic: str) -> dict[int, str]:
    from kctl.storage.layout import parse_directory_name

    found = {}
    for given in paths:
        path = given.rstrip("/")
        for name in disk.list(path) if disk.is_directory(path) else ():
            parsed = parse_directory_name(name)
            if parsed is not None and parsed.topic_partition.topic == topic:
                found[parsed.topic_partition.partition] = f"{path}/{name}"
    return found
