"""Verification and statistics of log directories as Spark tasks, one per partition or file.

Executors read the files by path, so the paths must be valid on all machines.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kctl.dump.file_stats import add_file
from kctl.dump.stats import LogStats
from kctl.export.spark.runner import spark_map
from kctl.verify.partition_checks import VerifiedPartition
from kctl.verify.verification import VerifyUnit, verify_unit


def verify_on_spark(session: Any, units: Sequence[VerifyUnit]) -> list[VerifiedPartition]:
    """Return what `verify_unit` returns for each unit."""
    found: list[VerifiedPartition] = spark_map(session, _verify, units)
    return found


def stats_on_spark(session: Any, files: Iterable[tuple[str, int]]) -> LogStats:
    """Return the combined statistics of .log files, given as (path, base offset)."""
    stats = LogStats()
    for each in spark_map(session, _stats, list(files)):
        stats.add(each)
    return stats


def _verify(unit: VerifyUnit, progress: Callable[[int], object]) -> VerifiedPartition:
    from kctl.runtime.real.disk import RealDisk

    return verify_unit(RealDisk(), unit, progress)


def _stats(file: tuple[str, int], _progress: Callable[[int], object]) -> LogStats:
    from kctl.runtime.real.disk import RealDisk

    stats = LogStats()
    add_file(stats, RealDisk(), *file)
    return stats
