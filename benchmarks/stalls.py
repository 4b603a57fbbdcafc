"""How long one peer's heavy requests keep another one waiting, and what they cost in memory.

PYTHONPATH=. python benchmarks/stalls.py [address pid]

Without an address it starts a `kctl serve` of its own. The wait is the longest that a pinger of
its own process saw, the memory is the broker's resident peak above what it had before.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.serve import bad_frames
from tests.support.heavy_requests import MIB, requests, send_heavy
from tests.support.kctl_process import KctlBroker
from tests.support.pinger import Memory, Pinger

# The goals of the project.
WAIT_MS_MAX = 100
MEMORY_FACTOR_MAX = 2


def main(arguments: list[str]) -> None:
    """Print the table."""
    with ExitStack() as stack:
        if arguments:
            address, pid = arguments[0], int(arguments[1])
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            broker = KctlBroker(directory, "-c", "message.max.bytes=104857600")
            stack.enter_context(broker)
            assert broker.process is not None
            address, pid = broker.address, broker.process.pid
        bad_frames.visible(address, bad_frames.TOPIC_CREATION)
        print(f"{'request':44} {'MB sent':>8} {'wait ms':>8} {'+RSS MB':>8}")  # noqa: T201
        for heavy in requests():
            data = heavy.data()
            with Pinger(address) as pinger:
                pinger.worst_ms()
                memory = Memory(pid)
                send_heavy(address, heavy, data)
                wait_ms = pinger.worst_ms()
                growth = memory.growth()
            sent = len(data) * heavy.connections
            mark = (
                " !"
                if wait_ms > WAIT_MS_MAX or growth > max(MEMORY_FACTOR_MAX * sent, 8 * MIB)
                else ""
            )
            print(  # noqa: T201 - a benchmark prints
                f"{heavy.name:44} {sent / 1e6:8.1f} {wait_ms:8.1f} {growth / 1e6:8.1f}{mark}",
                flush=True,
            )
        if not arguments:
            print(broker.errors[-2000:])  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
