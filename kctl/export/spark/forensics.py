"""Checks and statistics of log directories as tasks on a cluster, one a partition or a file.

Executors read the files by their paths, so these must be the same on all machines.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kctl.dump.stats import LogStats
from kctl.dump.verify import VerifyUnit, verify_unit
from kctl.dump.verify_partition import VerifiedPartition
from kctl.export.spark.runner import spark_map


def verify_on_spark(session: Any, units: Sequence[VerifyUnit]) -> list[VerifiedPartition]:
    """What `verify_unit` says of each."""
    found: list[VerifiedPartition] = spark_map(session, _verify, units)
    return found


def stats_on_spark(session: Any, files: Iterable[tuple[str, int]]) -> LogStats:
    """The statistics of .log files (path, base offset) together."""
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
    stats.add_file(RealDisk(), *file)
    return stats
