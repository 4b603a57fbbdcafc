"""The sockets of kazoo's thread, wrapped so that many requests and answers share a system call.

kazoo wakes its thread by a byte for each request, takes the byte out again, asks whether the
connection is writable, and reads each answer in two parts, each after asking whether there is one:
nine system calls for reading one znode. Here one byte stands for all requests that wait, and one
read takes all answers that have arrived.

Invariants: there is a byte in the pair exactly while wake-ups have not been taken, so the loop
never blocks at a full socket. What has been read and not been taken counts as readable; see
`InlineHandler.select`.
"""

from typing import Any

# Bytes that are read from the connection at once.
READ_BYTES = 64 * 1024


class Wakeups:
    """Both ends of kazoo's pair: `send` is called on the loop, the rest on kazoo's thread."""

    def __init__(self, reader: Any, writer: Any, lock: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._count = 0

    @property
    def is_ready(self) -> bool:
        """Return whether there is a wake-up to take."""
        return self._count > 0

    def send(self, data: bytes) -> int:
        """Add a wake-up; OSError once the pair is closed."""
        with self._lock:
            if not self._count:
                self._writer.send(data)
            self._count += 1
        return len(data)

    def recv(self, _size: int) -> bytes:
        """Take a wake-up, for which `is_ready` holds."""
        with self._lock:
            if self._count == 1:
                self._reader.recv(1)
            self._count -= 1
        return b"\0"

    def fileno(self) -> int:
        """Return the descriptor that is readable while there are wake-ups."""
        descriptor: int = self._reader.fileno()
        return descriptor

    def close(self) -> None:
        """Close both ends; kazoo closes each."""
        self._reader.close()
        self._writer.close()


class BufferedConnection:
    """A connection to a ZooKeeper server that reads READ_BYTES ahead."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._read = b""
        self._position = 0

    def __getattr__(self, name: str) -> Any:
        """Return what the socket has."""
        return getattr(self._socket, name)

    @property
    def is_ready(self) -> bool:
        """Return whether bytes have been read, or decrypted, and not been taken."""
        return self.pending() > 0

    def pending(self) -> int:
        """Return the number of bytes that can be taken without waiting; kazoo asks for it."""
        decrypted = getattr(self._socket, "pending", None)
        return len(self._read) - self._position + (decrypted() if decrypted else 0)

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end of the connection."""
        if self._position == len(self._read):
            self._read, self._position = self._socket.recv(max(size, READ_BYTES)), 0
        taken = self._read[self._position : self._position + size]
        self._position += len(taken)
        return taken
