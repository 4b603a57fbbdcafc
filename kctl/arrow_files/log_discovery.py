"""Finds the partition logs of a source: a log directory, a partition directory or segment files.

Kafka 2.7: kafka.log.LogManager (loadLogs)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from kctl.arrow_files.files import FileFacts, Files
from kctl.arrow_files.partition_log import LISTED_SUFFIXES, PartitionLog, partition_log
from kctl.errors import NotFoundError, UsageError
from kctl.model import TopicPartition
from kctl.storage import segments07
from kctl.storage.checkpoint import decode_offsets
from kctl.storage.layout import (
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    OLD_LOG_SUFFIX,
    parse_directory_name,
)

TOPICS_NAMED_MAX = 10


def find_logs(
    sources: Sequence[str], topics: Sequence[str], partitions: Iterable[int] = ()
) -> list[PartitionLog]:
    """Return the logs of the selected topics, ordered by topic and partition.

    `topics` are names or shell patterns; without any, all topics except internal ones are selected.
    Raise UsageError if a source does not exist, NotFoundError if no source holds a topic or
    partition that is named.
    """
    found = [log for source in sources for log in _logs_at(source)]
    chosen = [log for log in found if _is_wanted(log.topic_partition.topic, topics)]
    names = {log.topic_partition.topic for log in found}
    for topic in topics:
        if not any(fnmatchcase(name, topic) for name in names):
            known = ", ".join(sorted(names)[:TOPICS_NAMED_MAX]) or "no topic"
            raise NotFoundError(f"No topic {topic} in {', '.join(sources)}", hint=f"found: {known}")
    numbers = set(partitions)
    if numbers:
        held = {log.topic_partition.partition for log in chosen}
        if numbers - held:
            raise NotFoundError(
                f"No partition {min(numbers - held)} in {', '.join(sources)}",
                hint=f"found: {', '.join(map(str, sorted(held)[:TOPICS_NAMED_MAX]))}",
            )
        chosen = [log for log in chosen if log.topic_partition.partition in numbers]
    return sorted(_once(chosen), key=lambda log: log.topic_partition)


def _is_wanted(name: str, topics: Sequence[str]) -> bool:
    if not topics:
        return not name.startswith("__")
    return any(fnmatchcase(name, topic) for topic in topics)


def _once(logs: Iterable[PartitionLog]) -> Iterator[PartitionLog]:
    """Merge segment files of the same partition; UsageError for two replicas of one partition."""
    by_partition: dict[TopicPartition, PartitionLog] = {}
    for log in logs:
        first = by_partition.setdefault(log.topic_partition, log)
        if first is log:
            continue
        paths = {segment.base_offset for segment in first.segments}
        if any(segment.base_offset in paths for segment in log.segments):
            raise UsageError(
                f"{log.topic_partition} is in {first.segments[0].path} and in "
                f"{log.segments[0].path}: name only one replica",
            )
        first.segments = sorted(
            first.segments + log.segments, key=lambda segment: segment.base_offset
        )
        first.beside |= log.beside
    return iter(by_partition.values())


def _logs_at(source: str) -> list[PartitionLog]:
    files, path = Files.of(source)
    facts = files.find(path)
    if facts is None:
        raise UsageError(f"{source}: no such file or directory")
    if not facts.is_directory:
        return _log_of_file(files, source, facts)
    listing = files.list(path)
    topic_partition = _partition_of(facts.name, listing)
    if topic_partition is not None:
        log = partition_log(files, topic_partition, listing)
        if log is not None:
            parent = path.rsplit("/", 1)[0]
            _set_log_starts(files, parent, [log])
            return [log]
    return _logs_of_directory(files, source, path)


def _log_of_file(files: Files, source: str, facts: FileFacts) -> list[PartitionLog]:
    directory = facts.path.rpartition("/")[0]
    topic_partition = _partition_of(directory.rpartition("/")[2], [facts])
    if not facts.name.endswith((LOG_SUFFIX, OLD_LOG_SUFFIX)) or topic_partition is None:
        raise UsageError(
            f"{source}: not a segment of a partition",
            hint="the path names topic and partition: .../orders-0/00000000000000000000.log",
        )
    stem = facts.path.removesuffix(LOG_SUFFIX)
    listing = [facts]
    if facts.name.endswith(LOG_SUFFIX):
        listing = [
            it
            for it in files.list(directory)
            if it.path.startswith(f"{stem}.") and not it.path.endswith(OLD_LOG_SUFFIX)
        ]
    log = partition_log(files, topic_partition, listing)
    if log is None:
        raise UsageError(f"{source}: the name is not an offset of 20 digits")
    return [log]


def _logs_of_directory(files: Files, source: str, path: str) -> list[PartitionLog]:
    logs = []
    for directory, listing in files.directories(path, LISTED_SUFFIXES):
        topic_partition = _partition_of(directory.rpartition("/")[2], listing)
        if topic_partition is None:
            continue
        log = partition_log(files, topic_partition, listing)
        if log is not None:
            logs.append(log)
    if not logs:
        hint = "give a broker's log directory, or a partition's, e.g. /data or /data/orders-0"
        if files.find(f"{path.rstrip('/')}/logs/{META_PROPERTIES}") is not None:
            # `kctl serve --data-dir` has its records there.
            hint = f"did you mean {source.rstrip('/')}/logs?"
        raise UsageError(f"{source}: no partition found", hint=hint)
    _set_log_starts(files, path, logs)
    return logs


def _partition_of(name: str, listing: Iterable[FileFacts]) -> TopicPartition | None:
    """Return the partition whose directory is called `name`; None if it is none, or is leaving.

    With files of Kafka 0.7 it may be `topic_0`.
    """
    if any(it.path.endswith(OLD_LOG_SUFFIX) for it in listing):
        return segments07.parse_directory_name(name)
    found = parse_directory_name(name)
    return None if found is None or found.is_delete or found.is_future else found.topic_partition


def _set_log_starts(files: Files, directory: str, logs: Sequence[PartitionLog]) -> None:
    starts = stored_offsets(files, f"{directory}/{LOG_START_OFFSET_CHECKPOINT}")
    for log in logs:
        log.log_start_offset = starts.get(log.topic_partition, 0)


def stored_offsets(files: Files, path: str) -> Mapping[TopicPartition, int]:
    """Return the offsets of a checkpoint; none if there is no such file, or if it is empty, as
    those of a broker of Apache Kafka are until it writes them. Raise CorruptDataError."""
    data = b"" if files.find(path) is None else files.read(path)
    return decode_offsets(data, path) if data else {}
