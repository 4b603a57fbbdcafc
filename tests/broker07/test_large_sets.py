"""Sets so large that writing them would keep other clients of Kafka 0.7 waiting."""

import pytest

from kctl.broker07 import handlers
from kctl.broker07.config import MS_PER_HOUR
from kctl.broker07.log_manager import WRITTEN_ON_LOOP_BYTES_MAX
from kctl.errors import StorageError
from kctl.protocol.kafka07 import (
    FetchRequest,
    MultiFetchRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_multifetch_answer,
    encode_request,
)
from kctl.records.message07 import message_set
from kctl.storage.layout import CLEAN_SHUTDOWN_FILE
from tests.support.kafka07_world import LOG_DIR, Kafka07World

SMALL = message_set([b"small"])
PAYLOADS = [b"%d" % number * 100_000 for number in range(WRITTEN_ON_LOOP_BYTES_MAX // 100_000 + 1)]
LARGE = message_set(PAYLOADS)
PARTITION = "t-0/00000000000000000000.kafka"
CLEAN = f"{LOG_DIR}/{CLEAN_SHUTDOWN_FILE}"


class Background:
    """Holds what runs off the loop, until it is released."""

    def __init__(self, world):
        self._world = world
        self._scheduler = world.runtime.scheduler
        self._run = self._scheduler.background
        self._held = []
        self._scheduler.background = self._hold

    def _hold(self, job):
        future = self._scheduler.future()
        self._held.append((job, future))
        return future

    def release(self):
        self._scheduler.background = self._run
        for job, future in self._held:
            future.set_result(job())
        self._world.settle()

    def fail(self, error):
        self._scheduler.background = self._run
        for _, future in self._held:
            future.set_error(error)
        self._world.settle()


@pytest.fixture
def world():
    world = Kafka07World().start()
    world.produce("t", 0, SMALL)
    world.produce("other", 0, SMALL)
    return world


def produce(world, message_set):
    client = world.connect()
    client.write(encode_request(ProduceRequest("t", 0, message_set)))
    world.settle()
    return client


def test_others_are_served_while_a_large_set_is_written_and_the_order_is_kept(world):
    background = Background(world)
    produce(world, LARGE)
    produce(world, SMALL)
    assert world.files()[PARTITION] == SMALL
    assert world.read_all("t", 0) == world.read_all("other", 0) == [b"small"]
    background.release()
    assert world.read_all("t", 0) == [b"small", *PAYLOADS, b"small"]


def test_a_set_that_is_being_written_is_not_deleted_with_an_old_segment():
    world = Kafka07World({"log.retention.hours": "1", "log.cleanup.interval.mins": "1"}).start()
    world.produce("t", 0, SMALL)
    background = Background(world)
    produce(world, LARGE)
    world.advance(2 * MS_PER_HOUR)
    assert list(world.files()) == [PARTITION]
    background.release()
    assert world.read_all("t", 0) == [b"small", *PAYLOADS]


def test_a_stop_waits_for_a_large_set_and_nothing_follows_it(world):
    background = Background(world)
    produce(world, LARGE)
    stop = world.runtime.scheduler.spawn(world.logs.stop())
    late = produce(world, SMALL)
    assert CLEAN not in world.disk.contents()
    background.release()
    world.settle()
    assert stop.result() is None
    assert CLEAN in world.disk.contents()
    assert late.is_closed
    assert world.files()[PARTITION] == SMALL + LARGE


def test_a_large_set_for_which_the_disk_has_no_room_leaves_nothing(world):
    background = Background(world)
    client = produce(world, LARGE)
    produce(world, SMALL)
    background.fail(StorageError("No space left on device"))
    assert client.is_closed
    assert world.read_all("t", 0) == [b"small", b"small"]


def test_the_short_parts_of_a_multifetch_are_joined_in_pieces(world, monkeypatch):
    monkeypatch.setattr(handlers, "GATHERED_BYTES_MAX", 40)
    client = world.connect()
    client.write(encode_request(MultiFetchRequest([FetchRequest("t", 0, 0, 100)] * 9)))
    world.settle()
    assert len(client.parts) > 2
    assert max(map(len, client.parts)) <= 40 + 6 + len(SMALL)
    answers = decode_multifetch_answer(client.take()[4:])
    assert [it.message_set for it in answers] == [SMALL] * 9


def test_the_end_is_known_while_a_large_set_is_written(world):
    background = Background(world)
    produce(world, LARGE)
    end = len(SMALL)
    assert world.offsets("t", 0) == [end, 0]
    background.release()
    answer = world.exchange(encode_request(OffsetsRequest("t", 0, -1, 1)))
    assert int.from_bytes(answer[-8:], "big") == end + len(LARGE)
