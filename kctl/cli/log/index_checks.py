"""kctl dump-log --verify-index-only and --index-sanity-check: checks index files."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.errors import CorruptDataError

if TYPE_CHECKING:
    from kctl.cli.output import Output
    from kctl.dump.values import DumpItem
    from kctl.runtime.disk import Disk


def without_index_entries(items: "Iterable[DumpItem]") -> "Iterator[DumpItem]":
    """Yield all items except the entries of offset and time indexes."""
    from kctl.storage.offset_index import OffsetPosition
    from kctl.storage.time_index import TimestampOffset

    for item in items:
        if not isinstance(item, OffsetPosition | TimestampOffset):
            yield item


def check_indexes(output: "Output", paths: list[str]) -> int:
    """Compare the index files at or below `paths` with their segments; return FAILED if one is
    wrong."""
    from kctl.dump.dump import find_files
    from kctl.runtime.real.disk import RealDisk
    from kctl.verify.verification import plan, verify_unit

    disk = RealDisk()
    files = [file for path in paths for file in find_files(disk, path) if _is_index(file)]
    wrong = 0
    for unit in plan(disk, files, with_records=False).units:
        for finding in verify_unit(disk, unit).findings:
            if finding.severity == "damage" and finding.path == unit.only_file:
                output.say(f"error: {finding.path}: {finding.rule.value}: {finding.message}")
                wrong += 1
    return FAILED if wrong else DONE


def check_sanity(output: "Output", paths: list[str]) -> int:
    """Check each index file independently; return FAILED if one is invalid.

    As in Kafka 2.7, the entries of a .txnindex are printed, those of other indexes are not.
    """
    from kctl.dump.dump import find_files
    from kctl.runtime.real.disk import RealDisk
    from kctl.storage.layout import (
        INDEX_SUFFIXES,
        TIME_INDEX_SUFFIX,
        TXN_INDEX_SUFFIX,
        parse_file_name,
    )
    from kctl.storage.offset_index import OffsetIndex
    from kctl.storage.time_index import TimeIndex

    disk = RealDisk()
    status: int = DONE
    for path in paths:
        for file in find_files(disk, path):
            if not file.endswith(INDEX_SUFFIXES):
                continue
            if file.endswith(TXN_INDEX_SUFFIX):
                status = max(status, _print_transactions(output, disk, file))
                continue
            parsed = parse_file_name(file.rpartition("/")[2])
            kind = TimeIndex if file.endswith(TIME_INDEX_SUFFIX) else OffsetIndex
            output.write_buffered(f"Dumping {file}\n")
            try:
                kind(disk, file, parsed[0] if parsed is not None else 0).raw()
            except CorruptDataError as error:
                output.say(f"error: {error}")
                status = FAILED
            else:
                output.write_buffered(f"{file} passed sanity check.\n")
    output.flush()
    return status


def _print_transactions(output: "Output", disk: "Disk", file: str) -> int:
    from kctl.dump.dump import dump_file
    from kctl.dump.kafka_format import Contents, kafka_lines
    from kctl.dump.values import DumpDamage, DumpOptions

    items = list(dump_file(disk, file, DumpOptions()))
    damages = [item for item in items if isinstance(item, DumpDamage)]
    for text in kafka_lines((it for it in items if it not in damages), Contents.NOTHING):
        output.write_buffered(text)
    for damage in damages:
        output.say(f"error: {damage}")
    return FAILED if damages else DONE


def _is_index(path: str) -> bool:
    return path.endswith((".index", ".timeindex"))
