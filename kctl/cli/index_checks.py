"""kctl dump-log --verify-index-only and --index-sanity-check: index files, checked."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.errors import CorruptDataError

if TYPE_CHECKING:
    from kctl.cli.output import Output
    from kctl.dump.values import DumpItem


def without_index_entries(items: "Iterable[DumpItem]") -> "Iterator[DumpItem]":
    """All but the entries of offset and time indexes."""
    from kctl.storage.offset_index import OffsetPosition
    from kctl.storage.time_index import TimestampOffset

    for item in items:
        if not isinstance(item, OffsetPosition | TimestampOffset):
            yield item


def check_indexes(output: "Output", paths: list[str]) -> int:
    """Hold the index files at or below `paths` against their segments; FAILED if one is wrong."""
    from kctl.dump.dump import find_files
    from kctl.dump.verify import plan, verify_unit
    from kctl.runtime.real.disk import RealDisk

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
    """Say of each index file whether it makes sense by itself; FAILED if one does not."""
    from kctl.dump.dump import find_files
    from kctl.runtime.real.disk import RealDisk
    from kctl.storage.layout import TIME_INDEX_SUFFIX, parse_file_name
    from kctl.storage.offset_index import OffsetIndex
    from kctl.storage.time_index import TimeIndex

    disk = RealDisk()
    status = DONE
    for path in paths:
        for file in filter(_is_index, find_files(disk, path)):
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


def _is_index(path: str) -> bool:
    return path.endswith((".index", ".timeindex"))
