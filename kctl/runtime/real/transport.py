"""RealTransport: one non-blocking socket, its queue of parts, and its turn in the loop.

`send` tries at once and uses the poller only after a short write. Small parts are sent in the call,
and at most HELD_BYTES as one part together with those of other connections, in the same turn of the
loop; large ones (more than INLINE_BYTES) are a bulk transfer and move QUANTUM_BYTES per bulk turn.
A connection whose reads are large reads in bulk turns too. A StreamedPart counts as large, whatever
its size: each turn does one step of its work. A FileSlice is sent by sendfile(2), its header held
back by MSG_MORE so that both leave together; if its file has no descriptor it is read and sent.

Invariants: parts leave in order; the Receiver is never called from within `send`, `close` or
`abort`; `connection_lost` comes exactly once, as the last call; reading is removed from the poller
only when unwanted bytes arrive (a short pause costs no system call).
"""

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from kctl.errors import KctlError
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import FileSlice
from kctl.runtime.network import EofReceiver, Part, Receiver, StreamedPart
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.poller import FAILED, HUNG_UP, READABLE, WRITABLE

# Bytes that one transport may move in one bulk turn, which bounds how long others wait.
QUANTUM_BYTES: Final = 256 * 1024
# Responses up to this size are sent in the call that creates them.
INLINE_BYTES: Final = 64 * 1024
# Responses up to this size wait for the others of their turn; see RealScheduler.send_soon.
HELD_BYTES: Final = 4 * 1024
# A read of at least this size makes the next one wait for a bulk turn.
BULK_READ_BYTES: Final = 64 * 1024
# Buffers passed to one sendmsg(2); Linux accepts 1024.
PARTS_PER_CALL: Final = 64
# The chunk size for reading FileSlices without a descriptor.
READ_BYTES: Final = 64 * 1024

MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
_HAS_SENDFILE: Final = sys.platform == "linux"


class RealTransport:
    """The sending side of one TCP connection, and the pump of its receiving side."""

    __slots__ = (
        "_eof_receiver",
        "_fd",
        "_held",
        "_in_bulk_queue",
        "_interest",
        "_is_bulk_reader",
        "_is_closing",
        "_is_lost",
        "_is_reading",
        "_on_sent",
        "_piece",
        "_queue",
        "_receiver",
        "_recv_into",
        "_scheduler",
        "_sent_of_first",
        "_socket",
        "_socket_send",
        "peer",
    )

    def __init__(
        self, scheduler: RealScheduler, sock: socket.socket, peer: tuple[str, int]
    ) -> None:
        self.peer = peer
        self._scheduler = scheduler
        self._socket = sock
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._socket_send = sock.send
        self._receiver: Receiver | None = None
        self._eof_receiver: EofReceiver | None = None
        # A small response that leaves with the others of this turn.
        self._held: bytes | None = None
        self._queue: deque[Part] = deque()
        # Bytes of the first part in the queue that are sent already.
        self._sent_of_first = 0
        # Bytes that the StreamedPart at the front of the queue produced and the socket has not
        # accepted.
        self._piece: Buffer = b""
        # The mask that the poller currently watches for.
        self._interest = READABLE
        self._is_reading = True
        self._is_bulk_reader = False
        self._in_bulk_queue = False
        self._is_closing = False
        self._is_lost = False
        self._on_sent: Callable[[], object] | None = None

    def attach(self, receiver: Receiver) -> None:
        """Start to read for `receiver`."""
        self._receiver = receiver
        if hasattr(receiver, "eof_received"):
            self._eof_receiver = cast(EofReceiver, receiver)
        if self._is_lost:
            self._scheduler.call_soon(receiver.connection_lost, None)
        else:
            self._scheduler.watch(self._fd, self._interest, self._on_ready)

    # The sending side

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts` and send what the socket accepts now."""
        if self._held is not None:
            self._send_held()
        if self._is_lost or self._is_closing:
            return
        if self._queue:
            self._queue.extend(parts)
            return
        if len(parts) == 1:
            part = parts[0]
            if type(part) is bytes and len(part) <= HELD_BYTES:
                self._held = part
                self._scheduler.send_soon(self._send_held)
                return
        size = sum(map(len, parts))
        if size <= HELD_BYTES and self._hold(parts, size):
            return
        self._queue.extend(parts)
        if size <= INLINE_BYTES:
            self._flush(INLINE_BYTES)
        else:
            self._queue_bulk()

    def _hold(self, parts: Sequence[Part], size: int) -> bool:
        """Hold a few bytes as one part if possible, and return whether it was: reading a short
        FileSlice costs a third of a sendfile."""
        try:
            data = b"".join(map(_held_bytes, parts))
        except (KctlError, _IsStreamedError):
            return False
        if len(data) != size:
            # The file is shorter than announced: `_send_slice` reports it, after the bytes that
            # exist.
            return False
        self._held = data
        self._scheduler.send_soon(self._send_held)
        return True

    def _send_held(self) -> None:
        """Send the held response, unless it was sent or dropped before."""
        part, self._held = self._held, None
        if part is None:
            return
        try:
            sent = self._socket_send(part)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        if sent < len(part):
            self._sent_of_first = sent
            self._queue.append(part)
            self._set_interest(self._interest | WRITABLE)

    def unsent_bytes(self) -> int:
        """Return the queued bytes, without those in the socket's buffer and those that leave in
        this turn."""
        if not self._queue:
            return 0
        return sum(map(len, self._queue)) - self._sent_of_first

    def when_sent(self, callback: Callable[[], object]) -> None:
        """Call `callback()` once nothing is unsent."""
        if self._held is not None:
            self._send_held()
        if self._queue:
            self._on_sent = callback
        elif not self._is_lost:
            self._scheduler.call_soon(callback)

    def close(self) -> None:
        """Send what is queued, then close."""
        if self._held is not None:
            self._send_held()
        if self._is_lost or self._is_closing:
            return
        if not self._queue:
            self._lose(None)
            return
        self._is_closing = True
        self.pause_reading()

    def abort(self) -> None:
        """Close at once, dropping what is queued."""
        self._lose(None)

    def describe_work(self, *_: object) -> str:
        """Name the connection, and its receiver's last request, for the loop's watchdog."""
        describe = getattr(self._receiver, "describe_work", None)
        what = type(self._receiver).__name__ if describe is None else describe()
        return f"{what} of {self.peer[0]}:{self.peer[1]}"

    # The receiving side

    def pause_reading(self) -> None:
        """Stop delivering bytes; the poller changes only when some arrive."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        if self._is_lost or self._is_closing or self._is_reading:
            return
        self._is_reading = True
        if self._receiver is not None and not self._interest & READABLE:
            self._set_interest(self._interest | READABLE)

    def _on_ready(self, mask: int) -> None:
        if mask == READABLE and self._is_reading and not self._is_bulk_reader:
            self._read()
        else:
            self._on_other(mask)

    def _on_other(self, mask: int) -> None:
        if mask & WRITABLE and self._queue:
            self._queue_bulk()
        if self._is_lost or not mask & ~WRITABLE:
            return
        if self._is_reading:
            if self._is_bulk_reader:
                self._queue_bulk()
            else:
                self._read()
        elif mask & (FAILED | HUNG_UP):
            # Nothing is read, so only the poller can detect that the connection is dead.
            self._lose(self._socket_error())
        else:
            self._set_interest(self._interest & ~READABLE)

    def _read(self) -> None:
        receiver = self._receiver
        try:
            assert receiver is not None
            buffer = receiver.get_buffer()
            try:
                count = self._recv_into(buffer, min(len(buffer), QUANTUM_BYTES))
            except (BlockingIOError, InterruptedError):
                self._is_bulk_reader = False
                return
            except OSError as failure:
                self._lose(failure)
                return
            self._is_bulk_reader = count >= BULK_READ_BYTES
            if count:
                receiver.buffer_updated(count)
            else:
                self._end_of_bytes()
        except Exception as error:  # noqa: BLE001 - this ends the connection, not the loop
            self._scheduler.report(f"the connection of {self.peer[0]}:{self.peer[1]}")
            self._lose(error)

    def _end_of_bytes(self) -> None:
        if self._eof_receiver is not None and self._eof_receiver.eof_received():
            self._is_reading = False
            if not self._is_lost:
                self._set_interest(self._interest & ~READABLE)
        else:
            self._lose(None)

    # Turns in the loop

    def _queue_bulk(self) -> None:
        if not self._in_bulk_queue:
            self._in_bulk_queue = True
            self._scheduler.queue_bulk(self._bulk_turn)

    def _bulk_turn(self) -> None:
        self._in_bulk_queue = False
        if self._is_lost:
            return
        if self._queue:
            self._flush(QUANTUM_BYTES)
        if self._is_bulk_reader and self._is_reading and not self._is_lost:
            self._is_bulk_reader = False
            self._read()

    def _flush(self, budget: int) -> None:
        """Send up to about `budget` bytes, then update the poller or the queue."""
        queue = self._queue
        is_blocked = False
        try:
            while queue and budget > 0:
                sent, wanted = self._send_first(budget)
                # A StreamedPart has done its work for this turn.
                budget = budget - sent if wanted else 0
                if sent < wanted:
                    is_blocked = bool(queue)
                    break
        except (BlockingIOError, InterruptedError):
            is_blocked = True
        except (OSError, KctlError) as error:
            # KctlError: a part that cannot be read or produced. The peer expects its bytes.
            self._lose(error)
            return
        if is_blocked:
            self._set_interest(self._interest | WRITABLE)
        elif queue:
            self._queue_bulk()
        elif self._is_closing:
            self._lose(None)
        else:
            self._set_interest(self._interest & ~WRITABLE)
            if self._on_sent is not None:
                self._scheduler.call_soon(self._on_sent)
                self._on_sent = None

    def _send_first(self, budget: int) -> tuple[int, int]:
        """Send from the front of the queue; return bytes sent and bytes tried."""
        first = self._queue[0]
        if isinstance(first, FileSlice):
            sent, wanted = self._send_slice(first, budget)
        elif isinstance(first, bytes | bytearray | memoryview):
            sent, wanted = self._send_buffers(budget)
        else:
            sent, wanted = self._send_piece(first, budget)
        self._sent_of_first += sent
        self._drop_sent_parts()
        return sent, wanted

    def _send_buffers(self, budget: int) -> tuple[int, int]:
        buffers: list[Buffer] = []
        wanted = -self._sent_of_first
        flags = 0
        for part in self._queue:
            if not isinstance(part, bytes | bytearray | memoryview):
                flags = MSG_MORE if isinstance(part, FileSlice) else 0
                break
            buffers.append(part)
            wanted += len(part)
            if wanted >= budget or len(buffers) == PARTS_PER_CALL:
                break
        if self._sent_of_first:
            buffers[0] = memoryview(buffers[0])[self._sent_of_first :]
        if wanted > budget:
            # One large buffer must not hold up the loop either.
            last = memoryview(buffers[-1])
            buffers[-1] = last[: len(last) - (wanted - budget)]
            wanted = budget
        if len(buffers) == 1:
            return self._socket_send(buffers[0], flags), wanted
        return self._socket.sendmsg(buffers, (), flags), wanted

    def _send_piece(self, part: StreamedPart, budget: int) -> tuple[int, int]:
        """Send what `part` has produced; if none of that is left, do a step of its work."""
        if not self._piece:
            self._piece = part.step()
            return 0, 0
        wanted = min(len(self._piece), budget)
        piece = memoryview(self._piece)
        sent = self._socket_send(piece[:wanted])
        self._piece = piece[sent:]
        return sent, wanted

    def _send_slice(self, part: FileSlice, budget: int) -> tuple[int, int]:
        position = part.position + self._sent_of_first
        wanted = min(part.length - self._sent_of_first, budget)
        if wanted == 0:
            return 0, 0
        fd = part.file.fileno() if _HAS_SENDFILE else -1
        if fd >= 0:
            sent = os.sendfile(self._fd, fd, position, wanted)
        else:
            wanted = min(wanted, READ_BYTES)
            data = part.file.pread(wanted, position)
            sent = self._socket_send(data) if data else 0
        if sent == 0:
            # The peer expects these bytes; only closing shows it that they are missing.
            raise OSError(f"{part.file.path} ends before byte {position + wanted}")
        return sent, wanted

    def _drop_sent_parts(self) -> None:
        queue = self._queue
        sent = self._sent_of_first
        while queue and sent >= len(queue[0]):
            sent -= len(queue.popleft())
        self._sent_of_first = sent

    def _set_interest(self, mask: int) -> None:
        if mask != self._interest:
            self._interest = mask
            if self._receiver is not None:
                self._scheduler.rewatch(self._fd, mask)

    # The end

    def _socket_error(self) -> OSError | None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(number, os.strerror(number)) if number else None

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._held = None
        self._piece = b""
        self._queue.clear()
        self._scheduler.unwatch(self._fd)
        self._socket.close()
        if self._receiver is not None:
            self._scheduler.call_soon(self._receiver.connection_lost, error)
        # Transport and receiver refer to each other: neither would go before the next search for
        # cycles.
        self._receiver = self._eof_receiver = self._on_sent = None


class _IsStreamedError(Exception):
    """A part is not produced yet."""


def _held_bytes(part: Part) -> Buffer:
    if isinstance(part, FileSlice):
        return part.file.pread(part.length, part.position)
    if isinstance(part, bytes | bytearray | memoryview):
        return part
    raise _IsStreamedError
