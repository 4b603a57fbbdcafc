"""FrameBuffer: arbitrary chunks of bytes in, complete size-prefixed frames out.

The owner receives into `get_buffer()`, calls `buffer_updated(count)`, takes frames from
`next_frame()` until it returns None, and calls `release()` before it yields to the loop:

- Chunks arrive in a scratch buffer that all connections of a loop share. A complete frame of at
  most SMALL_FRAME_MAX bytes is returned as separate `bytes` (a copy of that size costs less than
  reading its fields through a view would).
- A larger frame gets its own buffer from a BufferPool, and the missing bytes are received directly
  into it. The buffer starts at FIRST_BUFFER_BYTES and doubles as bytes arrive; from STEP_FROM_BYTES
  on it grows in place by STEP_BYTES, as copying would delay all other connections. Memory is
  allocated for what a peer has sent, never for what it announces.
- `release()` saves the rest of the scratch buffer: the next connection overwrites it.

Invariants: `_data[_start:_end]` are the bytes not yet taken; there are none while `_large` is set.
A large frame of a pooled FrameBuffer is valid until `next_frame()` is called again; without a pool,
with ReclaimedBuffers, and for small frames, as long as it is referenced. The owner requests a
buffer only after `next_frame()` returned None, so the scratch buffer must hold at most one
unfinished small frame.
Kafka 2.7: NetworkReceive.
"""

from struct import Struct
from typing import Final

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer

# Kafka's default of socket.request.max.bytes.
FRAME_BYTES_MAX: Final = 104_857_600
# Two of a producer's default batch.size.
SMALL_FRAME_MAX: Final = 32_768
FIRST_BUFFER_BYTES: Final = 65_536
STEP_FROM_BYTES: Final = 8 * 1024 * 1024
STEP_BYTES: Final = 4 * 1024 * 1024
# Room for an unfinished small frame and a read of useful size after it.
SCRATCH_BYTES_MIN: Final = 2 * SMALL_FRAME_MAX
SCRATCH_BYTES: Final = 131_072
# The largest buffer kept in a pool: touched pages are several times faster than new ones.
POOLED_BUFFER_BYTES_MAX: Final = 8 * 1024 * 1024
POOL_BYTES_MAX: Final = 32 * 1024 * 1024
# Buffers of ReclaimedBuffers, each and all together: new pages of a small one cost little.
RECLAIMED_BYTES_MIN: Final = 256 * 1024
RECLAIMED_BYTES_MAX: Final = 16 * 1024 * 1024

SIZE_BYTES: Final = 4
_unpack_size: Final = Struct(">i").unpack_from


class BufferPool:
    """Buffers of large frames, kept for reuse; shared by the connections of a loop."""

    def __init__(self, bytes_max: int = POOL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._free: list[bytearray] = []
        self._free_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Return the bytes in unused buffers."""
        return self._free_bytes

    def take(self, wanted: int, needed: int) -> bytearray:
        """Return a kept buffer that holds `wanted` bytes, or a new one for `needed`."""
        fitting = [buffer for buffer in self._free if len(buffer) >= wanted]
        if not fitting:
            return bytearray(needed)
        best = min(fitting, key=len)
        # By identity: equal contents are not the same buffer, and comparing them is slow.
        self._free = [buffer for buffer in self._free if buffer is not best]
        self._free_bytes -= len(best)
        return best

    def give(self, buffer: bytearray) -> None:
        """Keep `buffer` if it is not too large and there is room; its bytes will change."""
        size = len(buffer)
        if size <= POOLED_BUFFER_BYTES_MAX and self._free_bytes + size <= self._bytes_max:
            self._free.append(buffer)
            self._free_bytes += size

    def lend(self, buffer: bytearray) -> bytearray | None:
        """Return a whole frame's buffer if its reader gives it back; None if it does not."""
        return buffer


class ReclaimedBuffers(BufferPool):
    """Buffers of large frames that are not given back: one is used again when nothing refers to its
    bytes any longer. Readers may keep views of them for as long as they want."""

    def __init__(self, bytes_max: int = RECLAIMED_BYTES_MAX) -> None:
        super().__init__(0)
        self._lent_bytes_max = bytes_max
        # The latest ones, referenced or not; the oldest first.
        self._lent: list[bytearray] = []

    def take(self, wanted: int, needed: int) -> bytearray:
        """Return a buffer for `wanted` bytes that nothing refers to, or a new one for `needed`."""
        for number, buffer in enumerate(self._lent):
            if len(buffer) >= wanted and _is_unreferenced(buffer):
                return self._lent.pop(number)
        return bytearray(needed)

    def lend(self, buffer: bytearray) -> bytearray | None:
        """Remember a whole frame's buffer instead of the oldest ones, if it is worth it."""
        if RECLAIMED_BYTES_MIN <= len(buffer) <= self._lent_bytes_max:
            self._lent.append(buffer)
            while sum(map(len, self._lent)) > self._lent_bytes_max:
                del self._lent[0]
        return None


def _is_unreferenced(buffer: bytearray) -> bool:
    """Return whether there is no view of a buffer: Python changes its size only then."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


class Scratch:
    """The buffer that the connections of a loop receive into, and how much of it one may fill."""

    __slots__ = ("view", "window")

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        if size < SCRATCH_BYTES_MIN:
            raise ValueError(f"a scratch buffer has at least {SCRATCH_BYTES_MIN} bytes")
        self.view = memoryview(bytearray(size))
        # What the next connection without unfinished frames receives into.
        self.window = self.view

    def limit(self, bytes_max: int | None) -> None:
        """Let each connection receive at most `bytes_max` at a time; None: all that has room."""
        self.window = self.view[:bytes_max]


class FrameBuffer:
    """The receiving half of one connection."""

    __slots__ = (
        "_data",
        "_end",
        "_filled",
        "_large",
        "_large_size",
        "_lent",
        "_pool",
        "_scratch",
        "_shared",
        "_start",
        "frame_bytes_max",
    )  # fmt: skip

    def __init__(
        self,
        scratch: Scratch | None = None,
        pool: BufferPool | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Create its own buffer without `scratch`; without `pool` large frames are not reused."""
        self._shared = scratch or Scratch()
        self._scratch = self._shared.view
        self._pool = pool
        # May change during the connection: before authentication the limit is lower.
        self.frame_bytes_max = frame_bytes_max
        self._data: Buffer = b""
        self._start = 0
        self._end = 0
        # The unfinished large frame: its buffer, bytes received, bytes announced.
        self._large: bytearray | None = None
        self._filled = 0
        self._large_size = 0
        # The buffer of the large frame returned last.
        self._lent: bytearray | None = None

    @property
    def buffered_bytes(self) -> int:
        """Return the memory held for frames that are unfinished or not yet taken."""
        return self._end - self._start if self._large is None else len(self._large)

    @property
    def has_whole_frame(self) -> bool:
        """Return whether all bytes of the next frame are there, or its size is invalid."""
        if self._large is not None:
            return self._filled >= self._large_size
        there = self._end - self._start - SIZE_BYTES
        if there < 0:
            return False
        size: int = _unpack_size(self._data, self._start)[0]
        return there >= size

    @property
    def announced_bytes(self) -> int:
        """Return the size of the large frame that is unfinished or not begun; 0 without one."""
        if self._large is not None:
            return self._large_size
        if self._end - self._start < SIZE_BYTES:
            return 0
        size: int = _unpack_size(self._data, self._start)[0]
        return size

    @property
    def first_bytes(self) -> bytes:
        """Return at most four bytes of what is not taken yet: a size, unless the peer speaks
        another protocol."""
        return bytes(self._data[self._start : min(self._start + SIZE_BYTES, self._end)])

    @property
    def received_bytes(self) -> int:
        """Return the bytes received of the unfinished large frame."""
        return self._filled if self._large is not None else 0

    def wants_memory(self) -> bool:
        """Return whether a large frame waits to begin, or for a larger buffer."""
        if self._large is not None:
            return self._filled == len(self._large) < self._large_size
        if self._end - self._start < SIZE_BYTES:
            return False
        size: int = _unpack_size(self._data, self._start)[0]
        return SMALL_FRAME_MAX < size <= self.frame_bytes_max

    @property
    def growth_bytes(self) -> int:
        """Return by how many bytes the next `get_buffer()` grows the buffer of a large frame."""
        large = self._large
        if large is None or self._filled < len(large):
            return 0
        there = len(large)
        return min(STEP_BYTES if there >= STEP_FROM_BYTES else there, self._large_size - there)

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._large is not None:
            if self._filled == len(self._large):
                self._grow()
            return memoryview(self._large)[self._filled : self._large_size]
        left = self._end - self._start
        if not left:
            return self._shared.window
        if left >= len(self._scratch):
            raise RuntimeError("take the whole frames before you receive more")
        self._scratch[:left] = self._data[self._start : self._end]
        return self._scratch[left : left + len(self._shared.window)]

    def buffer_updated(self, count: int) -> None:
        """Accept the first `count` bytes of the last `get_buffer()`."""
        if self._large is not None:
            self._filled += count
            return
        self._end = self._end - self._start + count
        self._start = 0
        self._data = self._scratch

    def only_frame(self, count: int) -> bytes | None:
        """Return the small frame that consists of exactly the first `count` bytes of the last
        `get_buffer()`, the most frequent case: call it instead of `buffer_updated`. Otherwise
        return None and take nothing."""
        if self._start != self._end or self._large is not None or self._lent is not None:
            return None
        size = count - SIZE_BYTES
        scratch = self._scratch
        if not 0 <= size <= SMALL_FRAME_MAX or _unpack_size(scratch, 0)[0] != size:
            return None
        return bytes(scratch[SIZE_BYTES:count])

    def next_frame(self) -> bytes | memoryview | None:
        """Return the next complete frame without its size, or None; CorruptDataError for an invalid
        size."""
        if self._lent is not None:
            self._take_back()
        if self._large is not None:
            return self._finished_large()
        start = self._start
        body = start + SIZE_BYTES
        if body > self._end:
            return None
        (size,) = _unpack_size(self._data, start)
        end = body + size
        if end <= self._end and 0 <= size <= SMALL_FRAME_MAX:
            self._start = end
            return bytes(self._data[body:end])
        if not 0 <= size <= self.frame_bytes_max:
            raise CorruptDataError(f"a frame of {size} bytes; the limit is {self.frame_bytes_max}")
        if size > SMALL_FRAME_MAX:
            self._begin_large(body, size)
        return self._finished_large()

    def give_back(self) -> None:
        """Return the buffer of the last large frame to the pool: nothing reads that any longer."""
        if self._lent is not None:
            self._take_back()

    def release(self) -> None:
        """Save the rest of the scratch buffer, which other connections will overwrite."""
        if self._data is self._scratch:
            self._data = bytes(self._scratch[self._start : self._end])
            self._end -= self._start
            self._start = 0

    def close(self) -> None:
        """Release every buffer; nothing may be received or taken afterwards."""
        if self._lent is not None:
            self._take_back()
        if self._large is not None and self._pool is not None:
            self._pool.give(self._large)
        self._large = None
        self._start = self._end = 0
        self._data = b""

    def _begin_large(self, body: int, size: int) -> None:
        """Move the received bytes of the large frame that begins at `body` to its own buffer."""
        there = min(self._end - body, size)
        large = self._new_buffer(size, max(there, min(size, FIRST_BUFFER_BYTES)))
        large[:there] = self._data[body : body + there]
        self._large, self._filled, self._large_size = large, there, size
        self._start = body + there

    def _finished_large(self) -> memoryview | None:
        large = self._large
        if large is None or self._filled < self._large_size:
            return None
        self._large = None
        if self._pool is not None:
            self._lent = self._pool.lend(large)
        return memoryview(large)[: self._large_size]

    def _grow(self) -> None:
        old = self._large
        assert old is not None
        growth = self.growth_bytes
        if len(old) >= STEP_FROM_BYTES:
            # The allocator moves pages, not bytes.
            old += bytes(growth)
            return
        new = self._new_buffer(self._large_size, len(old) + growth)
        new[: self._filled] = old
        self._large = new
        if self._pool is not None:
            self._pool.give(old)

    def _new_buffer(self, wanted: int, needed: int) -> bytearray:
        if self._pool is None:
            return bytearray(needed)
        # Powers of two, so that the pool's buffers fit many frames.
        return self._pool.take(wanted, 1 << (needed - 1).bit_length())

    def _take_back(self) -> None:
        lent, self._lent = self._lent, None
        assert lent is not None
        assert self._pool is not None
        self._pool.give(lent)
