"""kctl repair-log --extract: what is readable, copied to a new directory."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.log_filters import FilterFactory, FilterOptions
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.cli.output import Output

COLUMNS = ("partition", "batches", "records", "bytes", "offsets", "damaged_places")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def extract_log(
    output: "Output",
    paths: list[str],
    target: str,
    *,
    offsets: str | None,
    keys: list[str] | None,
    key_pattern: str | None,
    codec: str | None,
) -> int:
    """Copy each partition below `paths` to `target`/<its name>; FAILED if something was lost."""
    from kctl.cli.repair_log import partition_directories
    from kctl.dump.extract import extract
    from kctl.runtime.real.clock import RealClock
    from kctl.runtime.real.disk import RealDisk

    if codec is not None and codec not in CODECS:
        raise UsageError(f"--codec {codec}: there is no such codec", hint=", ".join(CODECS))
    disk = RealDisk()
    options = FilterOptions(offsets=offsets, keys=tuple(keys or ()), key_pattern=key_pattern)
    filters = FilterFactory(disk, options, RealClock().wall_ms())
    rows = []
    for directory in partition_directories(disk, paths):
        name = directory.rpartition("/")[2]
        found = extract(
            disk, directory, f"{target.rstrip('/')}/{name}", filters.filter_for(directory),
            None if codec is None else CODECS.index(codec),
        )  # fmt: skip
        shown = None if found.first_offset is None else f"{found.first_offset}..{found.last_offset}"
        rows.append(
            {
                "partition": name,
                "batches": found.batches,
                "records": found.records,
                "bytes": found.size,
                "offsets": shown,
                "damaged_places": found.damaged_places,
            }
        )
    output.show(rows, COLUMNS, name="partition")
    return FAILED if any(row["damaged_places"] for row in rows) else DONE
