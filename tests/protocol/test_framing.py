"""Frames: whatever the chunks, the same frames; memory follows what arrived, not what was said."""

import random  # noqa: TID251 - only ever seeded
import tracemalloc

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.framing import (
    FIRST_BUFFER_BYTES,
    POOLED_BUFFER_BYTES_MAX,
    RECLAIMED_BYTES_MAX,
    RECLAIMED_BYTES_MIN,
    SCRATCH_BYTES_MIN,
    SMALL_FRAME_MAX,
    BufferPool,
    FrameBuffer,
    ReclaimedBuffers,
    Scratch,
)


def framed(*bodies):
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def receive(frames, data, chunk=1 << 30, *, only_frames=False):
    """Feed `data` as a socket would, at most `chunk` bytes a read; the frames, copied."""
    received = []
    position = 0
    while position < len(data):
        buffer = frames.get_buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(data) - position, chunk)
        buffer[:count] = data[position : position + count]
        position += count
        if only_frames and (frame := frames.only_frame(count)) is not None:
            received.append(frame)
            continue
        frames.buffer_updated(count)
        while (frame := frames.next_frame()) is not None:
            received.append(bytes(frame))
        frames.release()
    return received


SIZES = (0, 1, 4, 100, SMALL_FRAME_MAX, SMALL_FRAME_MAX + 1, FIRST_BUFFER_BYTES + 1, 300_000)
BODIES = [bytes([number]) * size for number, size in enumerate((*SIZES, *reversed(SIZES)))]


@pytest.mark.parametrize("pool", [None, BufferPool()], ids=["unpooled", "pooled"])
@pytest.mark.parametrize("chunk", [7, 1_000, 20_000, 1 << 30])
@pytest.mark.parametrize("only_frames", [False, True])
def test_the_same_frames_come_out_of_any_chunks(chunk, pool, only_frames):
    frames = FrameBuffer(pool=pool)
    assert receive(frames, framed(*BODIES), chunk, only_frames=only_frames) == BODIES
    assert frames.buffered_bytes == 0


def test_chunks_of_random_sizes():
    rng = random.Random(7)
    data = framed(*BODIES)
    for _ in range(20):
        frames = FrameBuffer(Scratch(SCRATCH_BYTES_MIN), BufferPool())
        received, position = [], 0
        while position < len(data):
            count = rng.choice((1, 3, 500, 70_000))
            received += receive(frames, data[position : position + count])
            position += count
        assert received == BODIES


def test_a_frame_that_comes_alone_is_taken_in_one_step():
    frames = FrameBuffer(pool=BufferPool())
    for body in BODIES:
        data = framed(body)
        frames.get_buffer()[: min(len(data), SCRATCH_BYTES_MIN)] = data[:SCRATCH_BYTES_MIN]
        taken = frames.only_frame(min(len(data), SCRATCH_BYTES_MIN))
        assert taken == (body if len(body) <= SMALL_FRAME_MAX else None)


@pytest.mark.parametrize("data", [framed(b"a", b"b"), framed(b"ab")[:-1], b"\0\0", b"\xff" * 9])
def test_what_is_not_one_frame_is_not_taken_as_one(data):
    frames = FrameBuffer()
    # What an earlier read has left behind does not count.
    frames.get_buffer()[: len(framed(b"long ago"))] = framed(b"long ago")
    frames.get_buffer()[: len(data)] = data
    assert frames.only_frame(len(data)) is None


def test_connections_share_a_scratch_buffer_without_mixing_bytes():
    scratch = Scratch(SCRATCH_BYTES_MIN)
    one, other = FrameBuffer(scratch), FrameBuffer(scratch)
    first, second = framed(b"first" * 100), framed(b"second" * 100)
    for position in range(0, 495, 9):
        assert receive(one, first[position : position + 9]) == []
        assert receive(other, second[position : position + 9]) == []
    assert receive(one, first[495:]) == [b"first" * 100]
    assert receive(other, second[495:]) == [b"second" * 100]


def test_small_frames_keep_their_bytes_for_as_long_as_they_are_held():
    frames = FrameBuffer(pool=BufferPool())
    buffer = frames.get_buffer()
    data = framed(b"one", b"two")
    buffer[: len(data)] = data
    frames.buffer_updated(len(data))
    one = frames.next_frame()
    frames.release()
    buffer[:] = bytes(len(buffer))
    assert (one, frames.next_frame(), frames.next_frame()) == (b"one", b"two", None)


def test_a_large_frame_is_received_straight_into_the_buffer_it_is_read_from():
    frames = FrameBuffer(pool=BufferPool())
    body = bytes(range(256)) * 256
    receive(frames, framed(body)[:1_000])
    place = frames.get_buffer()
    place[:] = body[996:]
    frames.buffer_updated(len(place))
    frame = frames.next_frame()
    assert frame == body
    assert frame.obj is place.obj


def test_a_pooled_buffer_comes_back_with_the_next_frame():
    pool = BufferPool()
    frames = FrameBuffer(pool=pool)
    large = framed(b"x" * 50_000)
    buffers = []
    for _ in range(3):
        for part in (large[:100], large[100:]):
            place = frames.get_buffer()
            place[: len(part)] = part
            frames.buffer_updated(len(part))
            frame = frames.next_frame()
            frames.release()
        buffers.append(id(frame.obj))
        assert pool.free_bytes == 0
    assert len(set(buffers)) == 1
    assert frames.next_frame() is None
    assert pool.free_bytes == FIRST_BUFFER_BYTES


def test_without_a_pool_large_frames_belong_to_their_holder():
    frames = FrameBuffer()
    kept = []
    for number in range(3):
        data = framed(bytes([number]) * 50_000)
        buffer = frames.get_buffer()
        buffer[: len(data)] = data
        frames.buffer_updated(len(data))
        kept.append(frames.next_frame())
    assert [frame[0] for frame in kept] == [0, 1, 2]


def large_frame(frames, byte, size=RECLAIMED_BYTES_MIN):
    """Receive a frame of equal bytes, and return its view."""
    data = memoryview(framed(bytes([byte]) * size))
    while data:
        place = frames.get_buffer()
        count = min(len(place), len(data))
        place[:count], data = data[:count], data[count:]
        del place
        frames.buffer_updated(count)
        frame = frames.next_frame()
        frames.release()
    return frame


def test_a_reclaimed_buffer_is_used_again_when_nothing_refers_to_it():
    frames = FrameBuffer(pool=ReclaimedBuffers())
    first = large_frame(frames, 1)
    place = id(first.obj)
    record = first[10:20]
    del first
    second = large_frame(frames, 2)
    assert bytes(record) == b"\x01" * 10
    assert id(second.obj) != place
    del record
    assert id(large_frame(frames, 3).obj) == place
    assert bytes(second[:2]) == b"\x02\x02"


def test_reclaimed_buffers_are_shared_by_connections_and_have_a_limit():
    buffers = ReclaimedBuffers(2 * RECLAIMED_BYTES_MIN)
    one, other = FrameBuffer(pool=buffers), FrameBuffer(pool=buffers)
    place = id(large_frame(one, 1).obj)
    assert id(large_frame(other, 2).obj) == place
    held = [large_frame(one, number) for number in range(5)]
    assert [frame[0] for frame in held] == [0, 1, 2, 3, 4]
    # The latest two are remembered.
    places = [frame.obj for frame in held]
    held.clear()
    again = [large_frame(other, 0) for _ in range(3)]
    assert [[frame.obj is place for place in places].count(True) for frame in again] == [1, 1, 0]
    assert again[0].obj is places[3]
    assert again[1].obj is places[4]


def test_no_buffer_is_reclaimed_that_is_small_or_huge():
    for size in (RECLAIMED_BYTES_MIN // 4, RECLAIMED_BYTES_MAX + 1):
        frames = FrameBuffer(pool=ReclaimedBuffers())
        before = large_frame(frames, 1, size)
        kept = before.obj
        del before
        after = large_frame(frames, 2, size)
        assert after.obj is not kept
        assert kept[0] == 1


def test_what_a_peer_announces_is_not_allocated():
    """100 MB announced and ten bytes sent cost Apache Kafka 200 MB for as long as it waits."""
    frames = FrameBuffer(pool=BufferPool())
    tracemalloc.start()
    try:
        receive(frames, (100_000_000).to_bytes(4, "big") + bytes(10))
        assert frames.get_buffer()
        assert tracemalloc.get_traced_memory()[1] < 2 * FIRST_BUFFER_BYTES
        receive(frames, bytes(1_000_000))
        assert frames.buffered_bytes <= 2 * 1_048_576
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [-1, -(2**31), 1_001, 2**31 - 1])
def test_a_mad_size_is_corrupt(size):
    frames = FrameBuffer(frame_bytes_max=1_000)
    with pytest.raises(CorruptDataError, match=f"{size} bytes; the limit is 1000"):
        receive(frames, size.to_bytes(4, "big", signed=True))


def test_the_largest_size_allowed_is_taken():
    assert receive(FrameBuffer(frame_bytes_max=1_000), framed(b"x" * 1_000)) == [b"x" * 1_000]


def test_frames_that_are_not_taken_stop_the_receiving():
    frames = FrameBuffer()
    buffer = frames.get_buffer()
    data = framed(*[b"x" * 96] * 2_000)[: len(buffer)]
    buffer[:] = data
    frames.buffer_updated(len(buffer))
    frames.release()
    with pytest.raises(RuntimeError, match="take the whole frames"):
        frames.get_buffer()
    assert frames.next_frame() == b"x" * 96
    assert len(frames.get_buffer()) == 100


def test_closing_gives_unfinished_and_lent_buffers_back():
    pool = BufferPool()
    frames = FrameBuffer(pool=pool)
    receive(frames, framed(b"x" * 50_000)[:-1])
    frames.close()
    assert pool.free_bytes == FIRST_BUFFER_BYTES
    assert frames.buffered_bytes == 0


def test_a_pool_keeps_neither_huge_buffers_nor_too_many():
    pool = BufferPool(bytes_max=200_000)
    pool.give(bytearray(POOLED_BUFFER_BYTES_MAX + 1))
    assert pool.free_bytes == 0
    for _ in range(3):
        pool.give(bytearray(90_000))
    assert pool.free_bytes == 180_000
    assert len(pool.take(50_000, 60_000)) == 90_000
    assert len(pool.take(95_000, 60_000)) == 60_000
    assert pool.free_bytes == 90_000
