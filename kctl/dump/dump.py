"""Dumps files of a log directory without a broker: chooses the dumper by the file's name.

Nothing is locked, changed or created: the directory may belong to a running broker, whose momentary
state the dump then shows. A file that cannot be read is reported as damage, and the others follow.

Kafka 2.7: kafka.tools.DumpLogSegments (`main`)
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kctl.dump.index_dump import dump_offset_index, dump_time_index, dump_transaction_index
from kctl.dump.log_dump import dump_log
from kctl.dump.old_log_dump import dump_old_log
from kctl.dump.state_dump import (
    dump_epoch_checkpoint,
    dump_meta_properties,
    dump_offset_checkpoint,
    dump_producer_snapshot,
)
from kctl.dump.values import Decoder, DumpDamage, DumpedFile, DumpItem, DumpOptions, FileKind
from kctl.errors import CorruptDataError, UsageError
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.file_records import FileRecords
from kctl.storage.log_directory import log_directory_hint
from kctl.storage.segments07 import is_old_partition, parse_segment_name

if TYPE_CHECKING:
    from kctl.dump.decoders import Decode

__all__ = ["dump", "dump_file", "find_files"]

# In the order in which a directory's files are dumped.
_BY_SUFFIX = {
    layout.LOG_SUFFIX: FileKind.LOG,
    layout.OLD_LOG_SUFFIX: FileKind.OLD_LOG,
    layout.INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    layout.TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    layout.TXN_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    layout.SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME = {
    layout.LEADER_EPOCH_CHECKPOINT: FileKind.EPOCH_CHECKPOINT,
    layout.META_PROPERTIES: FileKind.META_PROPERTIES,
    layout.RECOVERY_POINT_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    layout.LOG_START_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    layout.HIGH_WATERMARK_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    layout.CLEANER_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
}
_KIND_ORDER = {kind: place for place, kind in enumerate(FileKind)}
_INTERNAL_TOPICS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTIONS,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__share_group_state": Decoder.SHARE_GROUPS,
}


def dump(disk: Disk, paths: Iterable[str], options: DumpOptions) -> Iterator[DumpItem]:
    """Yield the contents of each of `paths`: a file, a partition's directory or a log directory.

    Raise UsageError, before anything is read, for a path that does not exist or is none of these.
    """
    found = [(path, find_files(disk, path)) for path in paths]
    for path, files in found:
        for file in files:
            yield from dump_file(disk, file, options)
        if disk.is_directory(path):
            yield from _partitions_without_log(files)


def _partitions_without_log(files: list[str]) -> Iterator[DumpDamage]:
    """Report each partition that has index files, but no .log."""
    has_log: dict[str, bool] = {}
    for file in files:
        directory, _, name = file.rpartition("/")
        found = classify(file)
        if found is None:
            continue
        is_old_log = found[0] is FileKind.OLD_LOG
        if is_old_log or layout.parse_file_name(name) is not None:
            is_log = is_old_log or found[0] is FileKind.LOG
            has_log[directory] = has_log.get(directory, False) or is_log
    for directory, is_there in has_log.items():
        if not is_there:
            yield DumpDamage(directory, None, "the partition has indexes, but no .log")


def find_files(disk: Disk, path: str) -> list[str]:
    """Return the files at or below `path` that can be dumped, segments in order of their offsets.

    Raise UsageError if `path` does not exist or contains no file of a log directory.
    """
    if not disk.exists(path):
        raise UsageError(f"{path}: no such file or directory")
    if not disk.is_directory(path):
        if classify(path) is None:
            raise UsageError(
                f"{path}: not a file that can be dumped",
                hint="there are .log, .kafka, .index, .timeindex, .txnindex, .snapshot, "
                "checkpoints and meta.properties",
            )
        return [path]
    found = _files_in(disk, path)
    if not found and layout.parse_directory_name(_name(path)) is None:
        raise UsageError(
            f"{path}: contains no files of a log directory", hint=log_directory_hint(disk, path)
        )
    return found


def _files_in(disk: Disk, directory: str) -> list[str]:
    files: list[tuple[tuple[int, int, str], str]] = []
    partitions: list[str] = []
    for name in disk.list(directory):
        path = f"{directory.rstrip('/')}/{name}"
        if disk.is_directory(path):
            if layout.parse_directory_name(name) is not None or is_old_partition(disk, path):
                partitions.append(path)
        elif (found := classify(path)) is not None:
            kind, base_offset = found
            order = (-1 if base_offset is None else base_offset, _KIND_ORDER[kind], name)
            files.append((order, path))
    below = [path for partition in partitions for path in _files_in(disk, partition)]
    return [path for _, path in sorted(files)] + below


def classify(path: str) -> tuple[FileKind, int | None] | None:
    """Return the kind of file, and its base offset; None if it cannot be dumped."""
    name = _name(path)
    old_start = parse_segment_name(name)
    if old_start is not None:
        return FileKind.OLD_LOG, old_start
    if name in _BY_NAME:
        return _BY_NAME[name], None
    snapshot = layout.parse_metadata_snapshot_name(name)
    if snapshot is not None:
        return FileKind.METADATA_SNAPSHOT, snapshot[0]
    parsed = layout.parse_file_name(name)
    if parsed is None:
        return None
    offset, suffix = parsed
    # A file that is being added or deleted is read as the file it will become or was.
    for passing in layout.PASSING_SUFFIXES:
        suffix = suffix.removesuffix(passing)
    kind = _BY_SUFFIX.get(suffix)
    return None if kind is None else (kind, offset)


def dump_file(disk: Disk, path: str, options: DumpOptions) -> Iterator[DumpItem]:
    """Yield the contents of one file that `classify` recognizes."""
    found = classify(path)
    if found is None:
        raise UsageError(f"{path}: not a file that can be dumped")
    kind, base_offset = found
    yield DumpedFile(path, kind, base_offset, disk.size(path))
    try:
        yield from _contents(disk, path, kind, base_offset or 0, options)
    except CorruptDataError as error:
        yield DumpDamage.of(path, None, error)


def _contents(
    disk: Disk, path: str, kind: FileKind, base_offset: int, options: DumpOptions
) -> Iterator[DumpItem]:
    if kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
        # The batches of a snapshot begin with offset 0, whatever its name says.
        base_offset = base_offset if kind is FileKind.LOG else 0
        records = FileRecords.open(disk, path)
        try:
            decode = decoder_for(path, options.decoder) if options.with_records else None
            yield from dump_log(
                records,
                base_offset,
                with_records=options.with_records,
                decode=decode,
                bulk=options.bulk,
            )
        finally:
            records.close()
    elif kind is FileKind.OLD_LOG:
        yield from dump_old_log(disk, path, base_offset)
    elif kind is FileKind.OFFSET_INDEX:
        yield from dump_offset_index(disk, path, base_offset)
    elif kind is FileKind.TIME_INDEX:
        yield from dump_time_index(disk, path, base_offset)
    elif kind is FileKind.TRANSACTION_INDEX:
        yield from dump_transaction_index(disk, path, base_offset)
    elif kind is FileKind.PRODUCER_SNAPSHOT:
        yield from dump_producer_snapshot(disk, path)
    elif kind is FileKind.OFFSET_CHECKPOINT:
        yield from dump_offset_checkpoint(disk, path)
    elif kind is FileKind.EPOCH_CHECKPOINT:
        yield from dump_epoch_checkpoint(disk, path)
    else:
        yield from dump_meta_properties(disk, path)


def decoder_for(path: str, decoder: Decoder) -> "Decode | None":
    """Return the decoder for the records of the .log at `path`, or None."""
    if decoder is Decoder.AUTO and classify(path) == (FileKind.METADATA_SNAPSHOT, 0):
        decoder = Decoder.CLUSTER_METADATA
    if decoder is Decoder.AUTO:
        directory = layout.parse_directory_name(_name(path.rpartition("/")[0]))
        topic = directory.topic_partition.topic if directory else ""
        decoder = _INTERNAL_TOPICS.get(topic, Decoder.NONE)
    if decoder is Decoder.NONE:
        return None
    # The codec of messages is loaded only where it is needed: a short dump finishes sooner.
    from kctl.dump.decoders import decode_group_record, decode_transaction_record
    from kctl.dump.later_records import decode_metadata_record, decode_share_group_record

    decoders: dict[Decoder, Decode] = {
        Decoder.OFFSETS: decode_group_record,
        Decoder.TRANSACTIONS: decode_transaction_record,
        Decoder.CLUSTER_METADATA: decode_metadata_record,
        Decoder.SHARE_GROUPS: decode_share_group_record,
    }
    return decoders[decoder]


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
