"""kctl repair-log --extract: copies readable records to a new directory."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.log.log_filters import FilterFactory, FilterOptions
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.cli.output import Output

COLUMNS = ("partition", "batches", "records", "bytes", "offsets", "damaged_places")


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
    from kctl.records.compression import CODEC_NAMES
    from kctl.repair.extract import extract
    from kctl.runtime.real.clock import RealClock
    from kctl.runtime.real.disk import RealDisk
    from kctl.runtime.real.paths import with_directory_names
    from kctl.verify.verification import partition_directories

    if codec is not None and codec not in CODEC_NAMES:
        raise UsageError(f"--codec {codec}: no such codec", hint=", ".join(CODEC_NAMES))
    disk = RealDisk()
    options = FilterOptions(offset=offsets, key=keys, key_pattern=key_pattern)
    filters = FilterFactory(disk, options, RealClock().wall_ms())
    rows = []
    for directory in partition_directories(disk, with_directory_names(paths)):
        name = directory.rpartition("/")[2]
        found = extract(
            disk, directory, f"{target.rstrip('/')}/{name}", filters.filter_for(directory),
            None if codec is None else CODEC_NAMES.index(codec),
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
