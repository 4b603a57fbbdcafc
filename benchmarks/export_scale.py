"""Measures how an export's cost grows with segments, and a task's memory with the log.

    python -m benchmarks.export_scale [--segments 10,100,1000,10000] [--plan 100000] [--mb 100,1000]

Each figure comes from a process of its own; times are the processor's. Records of 100 bytes, lz4;
the memory is the most that the process had at any moment, of its own, without the mapped log.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.export import write_topic
from kctl.arrow_files.log_discovery import find_logs
from kctl.export.export import ExportRequest, export_logs, plan_export, run_here
from kctl.export.manifest import Manifest
from kctl.export.options import ExportOptions
from kctl.runtime.real.background import repeated
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment

RECORDS = 1_000_000
_BATCH_RECORDS = 10
_PARTITIONS = 10
_LOOK_SECONDS = 0.002


def write_segments(directory: Path, segments: int, records: int) -> None:
    """Write a topic with this number of segments, whose batches hold ten records each."""
    batch = batch_of(0, _BATCH_RECORDS)
    disk = RealDisk()
    each = records // segments // _BATCH_RECORDS
    for partition in range(_PARTITIONS):
        offset = 0
        for _ in range(segments // _PARTITIONS):
            base = offset
            batches = []
            for _ in range(each):
                # The checksum does not cover the base offset.
                batches.append(offset.to_bytes(8, "big") + batch[8:])
                offset += _BATCH_RECORDS
            write_segment(disk, directory / f"orders-{partition}", base, batches)


def plan(logs: Path) -> int:
    """Plan an export; return the number of splits."""
    with tempfile.TemporaryDirectory() as out:
        request = ExportRequest([str(logs)], out, ExportOptions())
        manifest = Manifest.open(out, request.options, request.run)
        splits = len(plan_export(request, find_logs([str(logs)], ()), manifest).splits)
        manifest.close()
    return splits


def export(logs: Path) -> int:
    """Export everything in this process; return the number of rows."""
    with tempfile.TemporaryDirectory() as out:
        return export_logs(ExportRequest([str(logs)], out, ExportOptions()), run_here).rows


def take_memory(logs: Path) -> int:
    """Export a partition with one task; return the peak memory in KiB."""
    most = 0

    def look() -> None:
        nonlocal most
        figures = Path("/proc/self/status").read_text().split()
        most = max(most, int(figures[figures.index("RssAnon:") + 1]))

    with tempfile.TemporaryDirectory() as out, repeated(look, _LOOK_SECONDS):
        options = ExportOptions(file_bytes=10**12)
        export_logs(ExportRequest([str(logs)], out, options), run_here)
    return most


WORKS = {"plan": plan, "export": export, "memory": take_memory}


def measured(what: str, logs: Path) -> tuple[float, int]:
    """Return (processor seconds, count) of work in a separate process."""
    figures = [sys.executable, "-m", "benchmarks.export_scale", "--work", what, "--logs", str(logs)]
    said = subprocess.run(figures, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(said[0]), int(said[1])


def show_segments(segments: int) -> None:
    """Measure one million records in this number of segments."""
    with tempfile.TemporaryDirectory() as root:
        logs = Path(root)
        write_segments(logs, segments, RECORDS)
        planned, splits = measured("plan", logs)
        exported, rows = measured("export", logs)
        if rows != RECORDS:
            raise SystemExit(f"{rows} rows were exported")
    figures = f"plan {planned:6.3f} s ({splits} splits), export {exported:6.2f} s"
    sys.stdout.write(f"{segments:7} segments: {figures}\n")


def show_plan(segments: int) -> None:
    """Measure planning of small segments."""
    with tempfile.TemporaryDirectory() as root:
        write_segments(Path(root), segments, _BATCH_RECORDS * segments)
        planned, splits = measured("plan", Path(root))
    sys.stdout.write(f"{segments:7} segments: plan {planned:6.3f} s ({splits} splits)\n")


def show_memory(megabytes: int) -> None:
    """Measure two consecutive tasks over half of a log of this size each."""
    with tempfile.TemporaryDirectory() as root:
        write_topic(Path(root), "orders", 100, megabytes * 10**6)
        seconds, kibibytes = measured("memory", Path(root))
    sys.stdout.write(f"{megabytes:7} MB: {kibibytes / 1024:6.0f} MiB, {seconds:6.2f} s\n")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--segments", default="10,100,1000,10000")
    parser.add_argument("--plan", default="100000")
    parser.add_argument("--mb", default="1,100,1000")
    parser.add_argument("--work", choices=WORKS, help=argparse.SUPPRESS)
    parser.add_argument("--logs", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        before = time.process_time()
        count = WORKS[given.work](given.logs)
        sys.stdout.write(f"{time.process_time() - before} {count}\n")
        return
    for tell, text in (
        (show_segments, given.segments), (show_plan, given.plan), (show_memory, given.mb)
    ):  # fmt: skip
        for number in filter(None, text.split(",")):
            tell(int(number))


if __name__ == "__main__":
    main()
