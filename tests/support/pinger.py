"""A pinger: sends a broker one small request after another, and reports the longest wait.

It is a process of its own, so that work of the test does not add to the waits.
"""

import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

# ApiVersions v0.
PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)
PAUSE_S = 0.001


class Pinger:
    """Sends the frame `ping` to `address`, and again once it is answered, until it is closed."""

    def __init__(self, address: str, ping: bytes = PING) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, ping.hex()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.worst_ms()

    def worst_ms(self) -> float:
        """Return the longest wait for a response since the last call, and reset it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise ConnectionError("the pinger lost its broker")
        return float(answer)

    def close(self) -> None:
        self._process.communicate()

    def __enter__(self) -> "Pinger":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Memory:
    """A process's resident memory, and its peak since this object was created."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)
        (self._folder / "clear_refs").write_text("5")
        self.before = self._bytes("VmRSS")

    def peak(self) -> int:
        """Return the peak in bytes."""
        return self._bytes("VmHWM")

    def growth(self) -> int:
        """Return the bytes between the start and the peak."""
        return self.peak() - self.before

    def _bytes(self, name: str) -> int:
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


def main(address: str, ping: bytes) -> None:
    host, _, port = address.rpartition(":")
    worst = 0.0
    with socket.create_connection((host, int(port))) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            started = time.perf_counter()
            peer.sendall(ping)
            left = 4 + struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0] - 4
            peer.recv(left, socket.MSG_WAITALL)
            worst = max(worst, time.perf_counter() - started)
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                if not sys.stdin.readline():
                    return
                sys.stdout.write(f"{worst * 1000}\n")
                sys.stdout.flush()
                worst = 0.0


if __name__ == "__main__":
    main(sys.argv[1], bytes.fromhex(sys.argv[2]))
