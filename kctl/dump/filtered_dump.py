"""A dump of the records that a filter selects: segments by their names, positions by the indexes.

Only .log files are read, and the .kafka files of Kafka 0.7; a batch is decompressed only if its
header does not rule it out.

Kafka 2.7: kafka.tools.DumpLogSegments has no filters
"""

from collections.abc import Callable, Iterable, Iterator

from kctl.dump.dump import classify, decoder_for, find_files
from kctl.dump.filters import RecordFilter, is_aborted
from kctl.dump.log_dump import dump_log
from kctl.dump.old_log_stats import selected_old_messages
from kctl.dump.seek import start_position
from kctl.dump.values import (
    DumpDamage,
    DumpedBatch,
    DumpedFile,
    DumpedOldMessage,
    DumpedRecord,
    DumpItem,
    DumpOptions,
    FileKind,
)
from kctl.errors import CorruptDataError
from kctl.records.memory_records import Batch
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import LOG_SUFFIX, OLD_LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.transaction_index import AbortedTransaction, TransactionIndex

FilterFor = Callable[[str], RecordFilter]

__all__ = ["filtered_dump", "limited"]


def filtered_dump(
    disk: Disk, paths: Iterable[str], options: DumpOptions, filter_for: FilterFor
) -> Iterator[DumpItem]:
    """Yield the items that the filter of each directory selects from the .log and .kafka files at
    or below `paths`."""
    files = [
        file
        for path in paths
        for file in find_files(disk, path)
        if file.endswith((LOG_SUFFIX, OLD_LOG_SUFFIX))
    ]
    filters: dict[str, RecordFilter] = {}
    for path in files:
        directory = path.rpartition("/")[0] or "."
        if directory not in filters:
            filters[directory] = filter_for(directory)
        if path.endswith(OLD_LOG_SUFFIX):
            yield from selected_old_messages(disk, path, filters[directory])
        else:
            yield from _dump_file(disk, path, directory, options, filters[directory])


def limited(items: Iterable[DumpItem], limit: int, *, of_records: bool) -> Iterator[DumpItem]:
    """Yield `items` up to `limit` records, or up to `limit` batches without `of_records`.

    Messages of Kafka 0.7 count with what they contain.
    """
    kind = DumpedRecord if of_records else DumpedBatch
    left = limit
    for item in items:
        if isinstance(item, kind) or (isinstance(item, DumpedOldMessage) and not item.depth):
            if not left:
                return
            left -= 1
        elif not left and not isinstance(item, DumpedOldMessage):
            return
        yield item


def _dump_file(
    disk: Disk, path: str, directory: str, options: DumpOptions, wanted: RecordFilter
) -> Iterator[DumpItem]:
    found = classify(path)
    base = found[1] or 0 if found is not None else 0
    following = [other for other in segment_base_offsets(disk, directory) if other > base]
    if following and following[0] <= wanted.start_offset:
        return
    if wanted.end_offset is not None and max(base, wanted.start_offset) >= wanted.end_offset:
        return
    aborted = _aborted(disk, directory) if wanted.only_aborted else []
    with_records = options.with_records or wanted.looks_into_records
    position = start_position(disk, directory, base, wanted.start_offset)
    records = FileRecords.open(disk, path)
    try:
        items = dump_log(
            records,
            base,
            with_records=with_records,
            decode=decoder_for(path, options.decoder) if with_records else None,
            position=position,
            wants=lambda batch: _wants(batch, wanted, aborted),
        )
        file: DumpedFile | None = DumpedFile(path, FileKind.LOG, base, records.size)
        for item in _chosen(items, wanted, aborted):
            if file is not None:
                yield file
                file = None
            yield item
    except CorruptDataError as error:
        yield DumpDamage.of(path, None, error)
    finally:
        records.close()


def _wants(batch: Batch, wanted: RecordFilter, aborted: list[AbortedTransaction]) -> bool:
    if not wanted.wants_batch(batch):
        return False
    return not wanted.only_aborted or is_aborted(batch, aborted)


def _chosen(
    items: Iterable[DumpItem], wanted: RecordFilter, aborted: list[AbortedTransaction]
) -> Iterator[DumpItem]:
    """Yield selected records, each after its batch; a batch without any is not shown if records
    decide."""
    waiting: DumpedBatch | None = None
    for item in items:
        if isinstance(item, DumpedBatch):
            waiting = None
            if wanted.is_behind(item.batch):
                return
            if _wants(item.batch, wanted, aborted):
                if wanted.looks_into_records:
                    waiting = item
                else:
                    yield item
        elif isinstance(item, DumpedRecord):
            if wanted.wants_record(item.record, item.decoded):
                if waiting is not None:
                    yield waiting
                    waiting = None
                yield item
        else:
            yield item


def _aborted(disk: Disk, directory: str) -> list[AbortedTransaction]:
    """Return the entries of the directory's transaction indexes; a damaged index has none."""
    found: list[AbortedTransaction] = []
    for base in segment_base_offsets(disk, directory):
        path = f"{directory}/{file_name(base, TXN_INDEX_SUFFIX)}"
        try:
            found += TransactionIndex(disk, path, base).entries()
        except CorruptDataError:
            continue
    return found
