"""Compares a filtered read of one percent of a topic with a full one, and checks the goal.

    python -m benchmarks.export_filter [--mb 1000] [--rounds 3]

A log directory of 100-byte records is queried in one Spark session (local[2]) by offsets, by
`format("kctl")` with Spark's filter and by `kctl.export.spark.read(where=...)`, in turns. Times are
medians, elapsed and of the processor (the driver, its JVM and Python's processes). The last line is
the verdict; the exit status is 1 if the goal is missed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.export import PARTITIONS, processor_seconds, write_topic
from kctl.export.spark import read
from kctl.export.spark.runner import make_session
from kctl.export.spark.source import KctlDataSource
from kctl.runtime.real.spark_gateway import start_spark_gateway

GOAL = 20.0
# A query's planning is the JVM's, and takes long until it is compiled.
_WARM_UPS = 10
CONF = [
    ("spark.master", "local[2]"), ("spark.ui.enabled", "false"), ("spark.log.level", "ERROR"),
    ("spark.driver.memory", "2g"), ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=4"),
]  # fmt: skip


def queries(session: Any, logs: Path, rows: int) -> dict[str, Callable[[], Any]]:
    """Return both ways to read one percent: the same offsets of one partition."""
    first = rows // PARTITIONS // 2
    where = f"partition = 1 and offset >= {first} and offset < {first + rows // 100}"

    def summed(frame: Any) -> int:
        found: int = frame.selectExpr("sum(offset + length(value))").collect()[0][0]
        return found

    full = session.read.format("kctl").option("subscribe", "rows").load(str(logs))
    return {
        "full": lambda: summed(full.where(where)),
        "filtered": lambda: summed(read(session, str(logs), where=where, subscribe="rows")),
    }


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {"full": [], "filtered": []}
    used: dict[str, list[float]] = {"full": [], "filtered": []}
    gateway = start_spark_gateway(CONF)
    try:
        with tempfile.TemporaryDirectory(prefix="kctl-bench-") as name:
            rows = write_topic(Path(name), "rows", 100, given.mb * 10**6)
            session = make_session(CONF)
            session.dataSource.register(KctlDataSource)
            works = queries(session, Path(name), rows)
            for _ in range(_WARM_UPS):
                works["filtered"]()
            for number in range(given.rounds + 1):
                sums = []
                for kind, work in works.items():
                    start, before = time.perf_counter(), processor_seconds(gateway.pid)
                    sums.append(work())
                    if number:
                        seconds[kind].append(time.perf_counter() - start)
                        used[kind].append(processor_seconds(gateway.pid) - before)
                if len(set(sums)) != 1:
                    raise SystemExit(f"different results: {sums}")
            session.stop()
    finally:
        gateway.close()
    for kind in works:
        elapsed, processor = statistics.median(seconds[kind]), statistics.median(used[kind])
        sys.stdout.write(f"{kind:8} {elapsed:.2f} s, processor {processor:.2f} s\n")
    ratio = statistics.median(seconds["full"]) / statistics.median(seconds["filtered"])
    processor = statistics.median(used["full"]) / statistics.median(used["filtered"])
    verdict = "reached" if ratio >= GOAL else "MISSED"
    sys.stdout.write(f"{verdict}: {GOAL:g} times: {ratio:.1f}, processor {processor:.1f}\n")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
