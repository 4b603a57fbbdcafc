"""Intake: what a connection has received and not yet served, and when it stops to receive.

It owns the connection's FrameBuffer, charges RequestMemory with the request that is being received
or awaits its response, and the Backlog with what was sent behind a request in progress.

Invariants: a request's bytes are charged to RequestMemory from its first byte to its response; a
large frame grows only as RequestMemory allows; nothing is charged once the connection is closed.

Kafka 2.7: org.apache.kafka.common.network.KafkaChannel (`mute`, `unmute`)
"""

from kctl.broker.network.backlog import Backlog
from kctl.broker.network.request_memory import Holder, RequestMemory
from kctl.protocol.framing import SMALL_FRAME_MAX, FrameBuffer
from kctl.runtime.network import Transport


class Intake:
    """The receiving half of a server's connection."""

    __slots__ = (
        "_backlog", "_behind_bytes", "_charged_bytes", "_holder", "_is_small", "_memory",
        "_transport", "frames", "has_begun_frame", "is_paused",
    )  # fmt: skip

    def __init__(
        self,
        frames: FrameBuffer,
        holder: Holder,
        transport: Transport,
        memory: RequestMemory,
        backlog: Backlog,
    ) -> None:
        self.frames = frames
        # Whether a frame is being received.
        self.has_begun_frame = False
        # Whether reading has stopped.
        self.is_paused = False
        # None once the connection is closed: the two must not refer to each other then.
        self._holder: Holder | None = holder
        self._transport = transport
        self._memory = memory
        self._backlog = backlog
        self._charged_bytes = 0
        # Whether these are those of a small request that arrived whole and alone.
        self._is_small = False
        self._behind_bytes = 0

    @property
    def unfinished_small_bytes(self) -> int:
        """Return the bytes held of a small request that is not complete."""
        frames = self.frames
        if not self.has_begun_frame or frames.announced_bytes > SMALL_FRAME_MAX:
            return 0
        return frames.buffered_bytes

    def may_begin_request(self) -> bool:
        """Return whether there is memory for the next request; if not, reading stops."""
        memory, holder = self._memory, self._holder
        if holder is None:
            return False
        if memory.is_short() and self.frames.wants_memory() and not memory.grant(holder):
            self.pause()
            return False
        return True

    def wait_for_bytes(self) -> None:
        """Receive more, because no request is complete."""
        self.has_begun_frame = self.frames.buffered_bytes > 0
        if self.is_paused:
            self.is_paused = False
            self._transport.resume_reading()

    def settle(self, current_bytes: int, *, is_behind: bool) -> None:
        """Save the rest of the scratch buffer, and update what is charged.

        `current_bytes` is the size of the request that awaits its response. With `is_behind`, the
        bytes in the buffer wait for a request in progress, for the client to read a response, or
        for this connection's turn.
        """
        if self._holder is None:
            return
        frames = self.frames
        held = frames.buffered_bytes
        if held:
            frames.release()
        behind = held if is_behind else 0
        if behind != self._behind_bytes:
            self._count_behind(behind)
        if behind and behind >= self._backlog.pipelined_bytes_max:
            self.pause()
        # Requests that wait for their turn are not charged: they would keep each other waiting.
        charged = held if self.has_begun_frame else 0
        if charged and not self.is_paused:
            charged += frames.growth_bytes
        charged += current_bytes
        if charged == self._charged_bytes:
            return
        if charged == current_bytes <= SMALL_FRAME_MAX and not self._charged_bytes:
            self._is_small = True
            self._charged_bytes = charged
            self._memory.charge_small(charged)
        else:
            self._charge(charged)

    def discharge(self) -> None:
        """Charge nothing to RequestMemory, because the request has its response."""
        if self._charged_bytes:
            self._charge(0)

    def close(self, *, is_frame_in_use: bool) -> None:
        """Release everything. `is_frame_in_use`: a handler may still read the last frame, whose
        buffer must not return to the pool."""
        if not is_frame_in_use:
            self.frames.close()
        self._count_behind(0)
        self._charge(0)
        if self._holder is not None:
            self._memory.forget(self._holder)
            self._holder = None

    def pause(self) -> None:
        """Stop reading."""
        if not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def _count_behind(self, behind: int) -> None:
        change, self._behind_bytes = behind - self._behind_bytes, behind
        if change:
            self._backlog.change(change)

    def _charge(self, held: int) -> None:
        change, self._charged_bytes = held - self._charged_bytes, held
        if self._holder is None:
            return
        if self._is_small and not held:
            self._memory.charge_small(change)
        else:
            self._memory.charge(self._holder, change)
        self._is_small = False
