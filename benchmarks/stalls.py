"""How long one peer's heavy requests keep another one waiting, and what they cost in memory.

PYTHONPATH=. python benchmarks/stalls.py [--only TEXT] [--large-messages]

It starts a `kctl serve` of its own. The wait is the longest that another process saw which
produces one record after the other, the memory is the broker's resident peak above what it had
before. Rows beyond a goal are marked. `--large-messages` lets topics take batches of 100 MiB.
The requests are single ones, each over connections of its own; `benchmarks.attacks` has attacks of
several requests: down-conversion, searches by time, wide topics, thousands of members.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.serve import bad_frames
from tests.support.heavy_requests import (
    MIB,
    WIDE_TOPIC_CREATION,
    Heavy,
    produced,
    requests,
    send_heavy,
)
from tests.support.kctl_process import KctlBroker
from tests.support.pinger import Memory, Pinger

# The goals of the project.
WAIT_MS_MAX = 100
MEMORY_FACTOR_MAX = 2
# What small requests may take of the allocator's rounding.
MEMORY_BYTES_MIN = 8 * MIB


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a row misses a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="requests with this in their name")
    parser.add_argument("--large-messages", action="store_true")
    options = parser.parse_args(arguments)
    settings = ["-c", "message.max.bytes=104857600"] if options.large_messages else []
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        with KctlBroker(Path(directory), *settings) as broker:
            for case in (bad_frames.TOPIC_CREATION, WIDE_TOPIC_CREATION):
                bad_frames.visible(broker.address, case)
            print(f"{'request':64} {'MB sent':>8} {'wait ms':>8} {'+RSS MB':>8}")  # noqa: T201
            for heavy in requests():
                if options.only in heavy.name:
                    missed += _measure(broker, heavy)
        print(broker.errors[-2000:], file=sys.stderr)  # noqa: T201
        print(f"{missed} beyond a goal")  # noqa: T201
    return 1 if missed else 0


def _measure(broker: KctlBroker, heavy: Heavy) -> bool:
    """Send it, print its row; whether it misses a goal."""
    assert broker.process is not None
    data = heavy.data()
    with Pinger(broker.address, produced(bytes(bad_frames.batch()))) as pinger:
        pinger.worst_ms()
        memory = Memory(broker.process.pid)
        try:
            send_heavy(broker.address, heavy, data)
            failure = ""
        except TimeoutError:
            failure = "  no answer"
        wait_ms = pinger.worst_ms()
        growth = memory.growth()
    sent = len(data) * heavy.connections
    is_slow = wait_ms > WAIT_MS_MAX
    is_fat = growth > max(MEMORY_FACTOR_MAX * sent, MEMORY_BYTES_MIN)
    marks = "  slow" * is_slow + "  fat" * is_fat + failure
    print(  # noqa: T201 - a benchmark prints
        f"{heavy.name:64} {sent / 1e6:8.1f} {wait_ms:8.1f} {growth / 1e6:8.1f}{marks}", flush=True
    )
    return bool(marks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
