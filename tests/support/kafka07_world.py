"""A broker of Kafka 0.7 on a simulated disk, whose clients are fake transports."""

from dataclasses import replace

from kctl.broker07.config import Broker07Config, parse_config
from kctl.broker07.handlers import Handlers07
from kctl.broker07.log_manager import LogManager07
from kctl.broker07.server import Server07
from kctl.protocol.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_fetch_answer,
    decode_offsets_answer,
    encode_request,
)
from kctl.records.message07 import messages, valid_bytes
from kctl.runtime.network import part_bytes
from kctl.simulation.disk import SimDisk
from tests.support.virtual_runtime import virtual_runtime

LOG_DIR = "/logs"


class FakeClient:
    """One connection: its transport, and what arrived at the other side."""

    def __init__(self, world, number):
        self.peer = (f"10.0.0.{number}", 1000 + number)
        self.received = b""
        # What was sent, part by part.
        self.parts = []
        self.is_closed = False
        self.is_paused = False
        self.is_slow = False
        self._on_sent = None
        self._scheduler = world.runtime.scheduler
        self.receiver = world.server._accept(self)

    # The transport, as the server sees it.

    def send(self, parts):
        if not self.is_closed:
            self.parts.extend(parts)
            self.received += b"".join(bytes(part_bytes(part)) for part in parts)

    def unsent_bytes(self):
        return 1 if self.is_slow else 0

    def when_sent(self, callback):
        self._on_sent = callback

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def close(self):
        if not self.is_closed:
            self.is_closed = True
            self._scheduler.call_soon(self.receiver.connection_lost, None)

    abort = close

    # The peer.

    def write(self, data):
        """Send bytes, in chunks as large as the receiver takes."""
        while data and not self.is_closed:
            buffer = self.receiver.get_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.receiver.buffer_updated(count)
            data = data[count:]

    def read_slowly(self):
        self.is_slow = True

    def read_all(self):
        self.is_slow = False
        callback, self._on_sent = self._on_sent, None
        if callback is not None:
            self._scheduler.call_soon(callback)

    def take(self):
        received, self.received = self.received, b""
        return received


class Kafka07World:
    """The broker; `disk` may be one that another broker left."""

    def __init__(self, properties=None, disk=None, seed=1, wall_ms=None):
        self.disk = disk or SimDisk()
        self.runtime = replace(virtual_runtime(seed), disk=self.disk)
        self.clock = self.runtime.clock
        if wall_ms is not None:
            self.clock.now_ms = wall_ms - self.clock.WALL_AHEAD_MS
        self.disk.now_ms = self.clock.wall_ms()
        given = {"brokerid": "0", "log.dir": LOG_DIR, "log.flush.interval": "1"}
        self.config: Broker07Config = parse_config({**given, **(properties or {})}).config
        self.logs = LogManager07(self.runtime, self.config)
        handlers = Handlers07(self.runtime, self.config, self.logs)
        self.server = Server07(self.runtime, handlers, self.config.request_bytes_max)
        self._clients = 0

    def run(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine)
        self.runtime.scheduler.settle()
        return task.result()

    def start(self):
        self.run(self.logs.start())
        return self

    def stop(self):
        self.run(self.logs.stop())
        return self.disk

    def connect(self):
        self._clients += 1
        return FakeClient(self, self._clients)

    def exchange(self, data, client=None):
        """What a client gets for bytes that it sends."""
        client = client or self.connect()
        client.write(data)
        self.settle()
        return client.take()

    def settle(self):
        self.disk.now_ms = self.clock.wall_ms()
        self.runtime.scheduler.settle()

    def advance(self, delay_ms):
        self.runtime.scheduler.advance(delay_ms)
        self.disk.now_ms = self.clock.wall_ms()

    # Requests.

    def produce(self, topic, partition, message_set, client=None):
        answer = self.exchange(
            encode_request(ProduceRequest(topic, partition, message_set)), client
        )
        assert answer == b""

    def fetch(self, topic, partition, offset, bytes_max=1 << 20):
        request = FetchRequest(topic, partition, offset, bytes_max)
        return decode_fetch_answer(self.exchange(encode_request(request))[4:])

    def offsets(self, topic, partition, time_ms=LATEST_TIME, count_max=100):
        request = OffsetsRequest(topic, partition, time_ms, count_max)
        return list(decode_offsets_answer(self.exchange(encode_request(request))[4:]).offsets)

    def read_all(self, topic, partition):
        """The payloads of a partition, fetched from its earliest offset on."""
        offset = self.offsets(topic, partition, EARLIEST_TIME)[0]
        payloads = []
        while found := self.fetch(topic, partition, offset).message_set:
            payloads += [bytes(it.message.payload) for it in messages(found, offset)]
            offset += valid_bytes(found)
        return payloads

    @property
    def warnings(self):
        return self.runtime.trace.warnings

    def files(self):
        """The `.kafka` files: path below the log directory -> contents."""
        return {
            path.removeprefix(f"{LOG_DIR}/"): data
            for path, data in self.disk.contents().items()
            if path.endswith(".kafka")
        }


def disk_of(directory):
    """A simulated disk with the files of a real `directory` as its log directory."""
    disk = SimDisk()
    disk.make_directory(LOG_DIR)
    for path in sorted(directory.rglob("*")):
        target = f"{LOG_DIR}/{path.relative_to(directory)}"
        if path.is_dir():
            disk.make_directory(target)
        else:
            disk.write_file(target, path.read_bytes())
    return disk
