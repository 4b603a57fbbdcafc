"""Backlog: the bytes that clients have sent behind requests which are still in progress.

A connection serves one request at a time, and receives up to PIPELINED_BYTES_MAX meanwhile, which
saves a system call per request; a single read may bring SCRATCH_BYTES. Over all connections,
BACKLOG_BYTES_MAX are held. Beyond that, a connection reads FULL_READ_BYTES at a time, and stops
reading as soon as anything is behind its request: clients are still served, with more system calls,
and what they send ahead waits in the kernel.

Kafka 2.7: kafka.network.Processor, which reads nothing while a request is in progress
"""

from typing import Final

from kctl.protocol.framing import Scratch

# Bytes that one connection accepts while a request is in progress, before reading stops.
PIPELINED_BYTES_MAX: Final = 32 * 1024
# Of all connections; beyond it, each adds less than FULL_READ_BYTES.
BACKLOG_BYTES_MAX: Final = 32 * 1024 * 1024
FULL_READ_BYTES: Final = 512


class Backlog:
    """The bytes behind requests of all connections of a server."""

    def __init__(self, scratch: Scratch, bytes_max: int = BACKLOG_BYTES_MAX) -> None:
        """Limit what connections receive into `scratch` while the backlog is full."""
        self._scratch = scratch
        self._bytes_max = bytes_max
        self.bytes = 0
        # What one connection may hold before it stops reading.
        self.pipelined_bytes_max = PIPELINED_BYTES_MAX

    def change(self, count: int) -> None:
        """Count `count` more bytes, or fewer."""
        was_full = self.bytes >= self._bytes_max
        self.bytes += count
        is_full = self.bytes >= self._bytes_max
        if is_full != was_full:
            self.pipelined_bytes_max = 1 if is_full else PIPELINED_BYTES_MAX
            self._scratch.limit(FULL_READ_BYTES if is_full else None)
