"""ProcessFacts: what a process uses of its machine: CPU, memory, descriptors, disks."""

from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """None: unknown."""

    cpu_seconds: float
    start_seconds: float
    resident_bytes: int | None
    open_files: int | None
    max_files: int
    disk_read_bytes: int | None
    disk_write_bytes: int | None
