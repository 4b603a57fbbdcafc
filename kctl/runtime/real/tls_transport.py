"""TlsTransport: TLS over one connection, as a Receiver below and a Transport above.

    HANDSHAKING -> OPEN -> CLOSING -> CLOSED
    any state ------------------------> CLOSED

Bytes of the socket go through OpenSSL in memory (ssl.MemoryBIO), a bounded number of records per
turn of the loop, straight into the buffer of the Receiver above. Each step of a handshake runs on
another thread, since a signature takes a millisecond or more; while it runs, nothing is read from
the socket, and nothing else touches the SSL object. A peer must complete its handshake in
HANDSHAKE_MS_MAX.

What is sent is encrypted one quantum per turn of the loop, and the next quantum only once the
socket has taken the last one: a slow reader costs the memory of its plaintext and one quantum.

A peer whose first byte begins no handshake does not speak TLS. It receives three bytes of an alert:
kctl's client recognizes them, and Java's does not take them for the length of a response of 352 MB
(KAFKA-4090).

Invariants: as for RealTransport; the Receiver above gets no byte before `when_secured`; an illegal
move raises. The end of the peer's bytes without a close_notify is treated like one: frames have
lengths.

Kafka 2.7: org.apache.kafka.common.network.SslTransportLayer
"""

import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from kctl.errors import KctlError
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import FileSlice
from kctl.runtime.future import Future
from kctl.runtime.network import (
    EofReceiver,
    Part,
    Receiver,
    SecuredReceiver,
    StreamedPart,
    TlsSession,
)
from kctl.runtime.real.handshakes import Handshakes
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.tls_records import ReceivedRecords
from kctl.runtime.real.tls_states import NEXT_STATES, TlsState
from kctl.runtime.real.transport import INLINE_BYTES, QUANTUM_BYTES, RealTransport
from kctl.runtime.scheduler import Timer

# How long a peer may take for its handshake.
HANDSHAKE_MS_MAX = 10_000
# What a peer may send before its handshake is complete: chains of certificates are long.
HANDSHAKE_BYTES_MAX = 256 * 1024
# Parts of a few bytes are encrypted together, up to one record of TLS.
RECORD_BYTES = 16 * 1024
# What one turn encrypts: 15 records. A socket's buffer takes a little less than 256 KiB at once,
# and a rest of a few bytes costs a turn, two changes of the poller and a system call.
ENCRYPTED_BYTES = 15 * RECORD_BYTES
# The chunk size for reading FileSlices.
READ_BYTES = 64 * 1024
# The answers of TLS itself (new keys, warnings) that a peer may leave unread.
ANSWER_BYTES_MAX = 64 * 1024

_HANDSHAKE_RECORD = 0x16
_TRUNCATED_ALERT = b"\x15\x03\x03"

_S = TlsState

# (error or None for a closed connection, whether in the handshake) -> the error to report.
Explain = Callable[[Exception | None, bool], Exception]


class TlsTransport:
    """One connection; `attach` begins its handshake."""

    __slots__ = (
        "_answer_bytes",
        "_context",
        "_done_of_first",
        "_explain",
        "_failure",
        "_handshakes",
        "_has_eof",
        "_host",
        "_incoming",
        "_is_paused",
        "_is_pump_queued",
        "_is_send_queued",
        "_is_stepping",
        "_lower",
        "_on_secured",
        "_on_sent",
        "_outgoing",
        "_parts",
        "_received_bytes",
        "_receiver",
        "_scheduler",
        "_scratch",
        "_ssl",
        "_timer",
        "_unsent_bytes",
        "peer",
        "state",
    )

    def __init__(
        self,
        scheduler: RealScheduler,
        lower: RealTransport,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        explain: Explain,
        *,
        host: str | None = None,
        on_secured: Callable[[Exception | None], object] | None = None,
    ) -> None:
        """Speak TLS over `lower`, as the client of `host`, or as a server if that is None.

        `explain` makes the errors that leave here. `on_secured(error)` is called once, at the end
        of the handshake.
        """
        self.peer = lower.peer
        self.state = _S.HANDSHAKING
        self._scheduler = scheduler
        self._lower = lower
        self._context = context
        self._host = host
        self._handshakes = handshakes
        self._explain = explain
        self._on_secured = on_secured
        self._scratch = handshakes.scratch
        self._receiver: Receiver | None = None
        self._incoming = ReceivedRecords()
        self._outgoing = ssl.MemoryBIO()
        # None before the first bytes: a silent peer costs nothing.
        self._ssl: ssl.SSLObject | None = None
        self._is_stepping = False
        self._received_bytes = 0
        self._failure: Exception | None = None
        # The receiving side.
        self._is_paused = False
        self._is_pump_queued = False
        self._has_eof = False
        self._answer_bytes = 0
        # The sending side: parts in order, and the bytes of them that are not encrypted yet.
        self._parts: deque[Part] = deque()
        self._unsent_bytes = 0
        # Bytes of a FileSlice or StreamedPart at the front that are encrypted.
        self._done_of_first = 0
        self._is_send_queued = False
        self._on_sent: Callable[[], object] | None = None
        self._timer: Timer | None = None

    def attach(self, receiver: Receiver) -> None:
        """Begin the handshake for `receiver`."""
        self._receiver = receiver
        self._timer = self._scheduler.call_later(HANDSHAKE_MS_MAX, self._timed_out)
        self._handshakes.begin(self)
        self._lower.attach(self)
        if self._host is not None and self.state is _S.HANDSHAKING:
            self._step()

    # Receiver of the bytes below

    def get_buffer(self) -> memoryview:
        """Return the scratch buffer that all connections share."""
        return self._scratch

    def buffer_updated(self, count: int) -> None:
        """Decrypt what arrived, or continue the handshake with it."""
        received = self._scratch[:count]
        if self.state is _S.HANDSHAKING:
            self._received_bytes += count
            if self._ssl is None and received[0] != _HANDSHAKE_RECORD:
                self._lower.send((_TRUNCATED_ALERT,))
                self.give_up("the peer does not speak TLS")
                return
            if self._received_bytes > HANDSHAKE_BYTES_MAX:
                self.give_up("the handshake is too large")
                return
            self._incoming.feed(received)
            self._step()
        elif self.state is _S.OPEN and not self._has_eof:
            self._incoming.feed(received)
            self._pump()

    def eof_received(self) -> bool:
        """Return whether to stay open for what the Receiver above still sends."""
        if self.state is not _S.OPEN:
            return self.state is _S.CLOSING
        self._has_eof = True
        if self._is_paused:
            # What was received before it comes first.
            return True
        return self._stays_open()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end to the Receiver above."""
        if self.state is _S.HANDSHAKING:
            self._failure = self._explain(error, True)  # noqa: FBT003
        if self.state is not _S.CLOSED:
            self._end(self._failure)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.connection_lost(self._failure or error)

    def describe_work(self, *_: object) -> str:
        """Name the last request of the Receiver above, for the loop's watchdog."""
        describe = getattr(self._receiver, "describe_work", None)
        return f"TLS of {type(self._receiver).__name__ if describe is None else describe()}"

    # The handshake

    @property
    def is_waiting_for_peer(self) -> bool:
        """Return whether the handshake waits for bytes of the peer."""
        return self.state is _S.HANDSHAKING and not self._is_stepping

    def give_up(self, reason: str) -> None:
        """End a handshake that is not complete."""
        if self.state is _S.HANDSHAKING:
            self._fail(OSError(0, reason))

    def _step(self) -> None:
        """Run a step of the handshake on another thread."""
        if self._ssl is None:
            is_server = self._host is None
            try:
                self._ssl = self._context.wrap_bio(
                    self._incoming.bio, self._outgoing, is_server, self._host
                )
            except ValueError as error:
                self.give_up(f"{self._host} is not a host name: {error}")
                return
        self._is_stepping = True
        self._lower.pause_reading()
        step = self._scheduler.compute(self._ssl.do_handshake)
        step.add_done_callback(self._step_done)

    def _step_done(self, step: Future[None]) -> None:
        self._is_stepping = False
        error = step.error()
        if self.state is not _S.HANDSHAKING:
            self._ssl = None
            return
        self._flush()
        if error is None:
            self._secured()
        elif isinstance(error, ssl.SSLWantReadError):
            if self._incoming.feed_more():
                self._step()
            else:
                self._lower.resume_reading()
        else:
            assert isinstance(error, Exception)
            self._fail(error)

    def _secured(self) -> None:
        assert self._ssl is not None
        self._move(_S.OPEN)
        cipher = self._ssl.cipher()
        session = TlsSession(
            self._ssl.version() or "",
            cipher[0] if cipher is not None else "",
            self._ssl.getpeercert(binary_form=True),
        )
        self._end_handshake(None)
        if hasattr(self._receiver, "when_secured"):
            cast(SecuredReceiver, self._receiver).when_secured(session)
        if self._parts:
            self._queue_send()
        self._pump_and_read()

    def _end_handshake(self, error: Exception | None) -> None:
        self._handshakes.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        on_secured, self._on_secured = self._on_secured, None
        if on_secured is not None:
            on_secured(error)

    def _timed_out(self) -> None:
        self._timer = None
        self.give_up(f"no TLS handshake within {HANDSHAKE_MS_MAX // 1000} s")

    def _fail(self, error: Exception) -> None:
        """Close, after the alert that OpenSSL has for the peer."""
        self._failure = self._explain(error, self.state is _S.HANDSHAKING)
        if not self._is_stepping:
            self._flush()
        self._end(self._failure)
        self._lower.close()

    def _end(self, error: Exception | None) -> None:
        """Release what a closed connection does not need."""
        is_handshake = self.state is _S.HANDSHAKING
        self._move(_S.CLOSED)
        if is_handshake:
            self._end_handshake(error)
        self._parts.clear()
        self._incoming.drop_unfed()
        self._unsent_bytes = 0
        self._on_sent = None
        if not self._is_stepping:
            self._ssl = None

    # The receiving side

    def pause_reading(self) -> None:
        """Deliver no more bytes."""
        self._is_paused = True
        if self.state is _S.OPEN:
            self._lower.pause_reading()

    def resume_reading(self) -> None:
        """Deliver bytes again, those that are decrypted already first."""
        if not self._is_paused:
            return
        self._is_paused = False
        if self.state is _S.OPEN:
            if self._has_pending or self._has_eof:
                self._queue_pump()
            else:
                self._lower.resume_reading()

    @property
    def _has_pending(self) -> bool:
        is_decrypted = self._ssl is not None and self._ssl.pending() > 0
        return is_decrypted or self._incoming.bio.pending > 0 or len(self._incoming.unfed) > 0

    def _queue_pump(self) -> None:
        if not self._is_pump_queued:
            self._is_pump_queued = True
            self._scheduler.queue_bulk(self._pump_turn)

    def _pump_turn(self) -> None:
        self._is_pump_queued = False
        self._pump_and_read()

    def _pump_and_read(self) -> None:
        """Deliver what was received, then read on."""
        if self._may_deliver:
            self._incoming.feed_more()
            self._pump()
        if not self._may_deliver or self._is_pump_queued:
            return
        if not self._has_eof:
            self._lower.resume_reading()
        elif not self._stays_open():
            self.close()

    @property
    def _may_deliver(self) -> bool:
        return self.state is _S.OPEN and not self._is_paused

    def _pump(self) -> None:
        """Decrypt what was received, one quantum at most, into the buffers of the Receiver."""
        budget = QUANTUM_BYTES
        try:
            while budget > 0 and self._may_deliver:
                receiver = self._receiver
                assert receiver is not None
                count = self._decrypt(receiver.get_buffer())
                if count == 0:
                    break
                budget -= count
                receiver.buffer_updated(count)
        except Exception as error:  # noqa: BLE001 - this ends the connection, not the loop
            self._broken(error)
            return
        if self._outgoing.pending:
            self._answer()
        if self._may_deliver and (budget <= 0 or self._incoming.unfed):
            self._lower.pause_reading()
            self._queue_pump()

    def _answer(self) -> None:
        """Send an answer of TLS itself, such as new keys."""
        if not self._lower.unsent_bytes():
            self._answer_bytes = 0
        self._answer_bytes += self._outgoing.pending
        if self._answer_bytes > ANSWER_BYTES_MAX:
            self._abort(OSError(0, "the peer does not read what TLS answers to it"))
        else:
            self._flush()

    def _decrypt(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as the received records go; return the number of bytes."""
        tls = cast(ssl.SSLObject, self._ssl)
        filled, size = 0, min(len(buffer), QUANTUM_BYTES)
        try:
            while filled < size:
                count = cast(int, tls.read(size - filled, buffer[filled:]))
                if count == 0:
                    self._received_close_notify()
                    break
                filled += count
                if not self._incoming.bio.pending and not tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._received_close_notify()
        return filled

    def _received_close_notify(self) -> None:
        # OpenSSL takes nothing more, and what it is given would grow by all that the peer sends.
        self._lower.pause_reading()
        self._incoming.drop_unfed()
        self._has_eof = True
        self._scheduler.call_soon(self._after_close_notify)

    def _after_close_notify(self) -> None:
        if self._may_deliver and not self._stays_open():
            self.close()

    def _stays_open(self) -> bool:
        receiver = self._receiver
        return hasattr(receiver, "eof_received") and cast(EofReceiver, receiver).eof_received()

    def _broken(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLError):
            self._fail(error)
        else:
            self._scheduler.report(f"the connection of {self.peer[0]}:{self.peer[1]}")
            self._abort(error)

    # The sending side

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts`, and encrypt and send what is little at once."""
        if self.state is _S.CLOSED or self.state is _S.CLOSING:
            return
        size = sum(map(len, parts))
        is_idle = not self._parts and self.state is _S.OPEN
        self._parts.extend(parts)
        self._unsent_bytes += size
        if not is_idle:
            return
        if size <= INLINE_BYTES and not self._lower.unsent_bytes():
            self._encrypt_some(INLINE_BYTES)
        else:
            self._queue_send()

    def unsent_bytes(self) -> int:
        """Return the bytes that are not encrypted yet, and those that the socket has not taken."""
        return self._unsent_bytes + self._lower.unsent_bytes()

    def when_sent(self, callback: Callable[[], object]) -> None:
        """Call `callback()` once nothing is unsent."""
        self._on_sent = callback
        if not self._parts:
            self._lower.when_sent(self._lower_sent)

    def close(self) -> None:
        """Send what is queued and a close_notify, then close."""
        if self.state is _S.HANDSHAKING:
            self.abort()
        elif self.state is _S.OPEN:
            self._move(_S.CLOSING)
            if not self._parts:
                self._close_now()

    def abort(self) -> None:
        """Close at once, dropping what is queued."""
        self._abort(None)

    def _abort(self, error: Exception | None) -> None:
        if self.state is not _S.CLOSED:
            self._failure = error
            self._end(error or OSError(0, "the connection was closed"))
        self._lower.abort()

    def _queue_send(self) -> None:
        if not self._is_send_queued:
            self._is_send_queued = True
            self._scheduler.queue_bulk(self._send_turn)

    def _send_turn(self) -> None:
        self._is_send_queued = False
        if self.state is _S.CLOSED or not self._parts:
            return
        if self._lower.unsent_bytes():
            self._lower.when_sent(self._lower_sent)
        else:
            self._encrypt_some(ENCRYPTED_BYTES)

    def _encrypt_some(self, budget: int) -> None:
        """Encrypt about `budget` bytes and pass them on."""
        try:
            while self._parts and budget > 0:
                budget -= self._encrypt_first(budget)
        except (OSError, KctlError) as error:
            # A file that ends early or cannot be read: only closing shows the peer what is missing.
            self._abort(error)
            return
        self._flush()
        if self._parts:
            self._queue_send()
            return
        if self.state is _S.CLOSING:
            self._close_now()
        elif self._on_sent is not None:
            self._lower.when_sent(self._lower_sent)

    def _lower_sent(self) -> None:
        """Continue once the socket has taken everything."""
        if self._parts:
            self._queue_send()
        elif self._on_sent is not None:
            on_sent, self._on_sent = self._on_sent, None
            on_sent()

    def _encrypt_first(self, budget: int) -> int:
        """Encrypt from the front of the queue; return what it takes from the budget."""
        first = self._parts[0]
        if isinstance(first, FileSlice):
            return self._encrypt_slice(first, budget)
        if not isinstance(first, bytes | bytearray | memoryview):
            return self._encrypt_piece(first, budget)
        if len(first) < RECORD_BYTES:
            return self._encrypt_together(first, budget)
        view = memoryview(first)
        count = min(len(view), budget)
        self._write(view[:count])
        if count < len(view):
            self._parts[0] = view[count:]
        else:
            self._parts.popleft()
        return count

    def _encrypt_together(self, first: Buffer, budget: int) -> int:
        """Encrypt small parts and the first bytes of the next one as one record."""
        self._parts.popleft()
        pieces, size = [first], len(first)
        while self._parts and size < RECORD_BYTES:
            part = self._parts[0]
            if not isinstance(part, bytes | bytearray | memoryview):
                break
            room = RECORD_BYTES - size
            view = memoryview(part)
            pieces.append(view[:room])
            size += min(len(view), room)
            if len(view) > room:
                self._parts[0] = view[room:]
                break
            self._parts.popleft()
        self._write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return min(size, budget) or 1

    def _encrypt_slice(self, part: FileSlice, budget: int) -> int:
        done = self._done_of_first
        wanted = min(part.length - done, budget, READ_BYTES)
        data = part.file.pread(wanted, part.position + done)
        if len(data) < wanted:
            raise OSError(f"{part.file.path} ends before byte {part.position + done + wanted}")
        self._write(data)
        self._done_of_first += wanted
        if self._done_of_first == part.length:
            self._parts.popleft()
            self._done_of_first = 0
        return wanted or 1

    def _encrypt_piece(self, part: StreamedPart, budget: int) -> int:
        """Encrypt the next piece of a StreamedPart, whose step is a turn's work."""
        piece = part.step()
        self._write(piece)
        self._done_of_first += len(piece)
        if self._done_of_first == len(part):
            self._parts.popleft()
            self._done_of_first = 0
        return budget

    def _write(self, data: Buffer) -> None:
        if data:
            cast(ssl.SSLObject, self._ssl).write(data)
            self._unsent_bytes -= len(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._lower.send((self._outgoing.read(),))

    def _close_now(self) -> None:
        # It wants the peer's close_notify, which is not waited for.
        with contextlib.suppress(ssl.SSLError):
            cast(ssl.SSLObject, self._ssl).unwrap()
        self._flush()
        self._lower.close()

    def _move(self, state: TlsState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise RuntimeError(f"a TLS connection cannot go from {self.state} to {state}")
        self.state = state
