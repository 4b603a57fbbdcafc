"""process_facts: asks the system what this process uses; outside Linux it knows less."""

import contextlib
import os
import resource
import time

from kctl.runtime.process_facts import ProcessFacts

# Seconds, for measuring what takes microseconds.
precise_seconds = time.perf_counter

_STARTED_SECONDS = time.time_ns() / 1e9


def process_facts() -> ProcessFacts:
    """Return what this process uses now; costs a few system calls."""
    io = _disk_io()
    return ProcessFacts(
        cpu_seconds=time.process_time(),
        start_seconds=_STARTED_SECONDS,
        resident_bytes=_resident_bytes(),
        open_files=_open_files(),
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        disk_read_bytes=io.get("read_bytes"),
        disk_write_bytes=io.get("write_bytes"),
    )


def _resident_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(_read("/proc/self/statm").split()[1])
        return pages * resource.getpagesize()
    return None


def _open_files() -> int | None:
    with contextlib.suppress(OSError):
        # Without the descriptor that lists them.
        return len(os.listdir("/proc/self/fd")) - 1
    return None


def _disk_io() -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split(": ") for line in _read("/proc/self/io").splitlines())
        return {name: int(value) for name, value in lines}
    return {}


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
