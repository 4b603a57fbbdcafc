"""`kctl serve --kafka-0.7` as a process: started, killed and stopped."""

import signal
import socket

import pytest

from kctl.kafka import EARLIEST_TIME, LATEST_TIME, KeyedMessage, Producer, SimpleConsumer
from kctl.kafka import FetchRequest as KafkaFetch
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.kafka07 import (
    FetchRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_fetch_answer,
    decode_offsets_answer,
    encode_request,
)
from kctl.records.message07 import message_set, messages
from kctl.store.broker07_znodes import decode_broker
from tests.support.golden07 import PAYLOADS07, copy07
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

LIMIT_S = 60


class Client07:
    """A blocking client."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, request):
        self.socket.sendall(encode_request(request))

    def receive(self):
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def end(self, topic, partition=0):
        self.send(OffsetsRequest(topic, partition, -1, 1))
        return decode_offsets_answer(self.receive()).offsets[0]

    def payloads(self, topic, partition=0):
        self.send(FetchRequest(topic, partition, 0, 1 << 20))
        found = decode_fetch_answer(self.receive()).message_set
        return [bytes(it.message.payload) for it in messages(found)]


def broker07(directory, *arguments):
    return KctlBroker(directory, "--kafka-0.7", *arguments)


def stop(broker):
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(LIMIT_S) == 0


def test_a_broker_serves_apache_kafkas_directory_and_survives_kills(tmp_path):
    copy07("logs-clean", tmp_path / "data")
    broker = broker07(tmp_path, "--no-zookeeper", "-c", "num.partitions=2").start()
    with Client07(broker.port) as client:
        assert client.payloads("none") == PAYLOADS07["none-0"]
    sent = []
    for number in range(3):
        payload = b"%d" % number * 20_000
        sent.append(payload)
        with Client07(broker.port) as client:
            client.send(ProduceRequest("new", 1, message_set([payload])))
            assert client.end("new", 1) == 20_010 * (number + 1)
            broker.process.kill()
            broker.process.wait()
        broker.start()
        with Client07(broker.port) as client:
            assert client.payloads("new", 1) == sent
    stop(broker)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert broker.errors == ""


def test_kctls_clients_write_and_read(tmp_path):
    """Messages of every codec, one that is larger than a fetch, offsets, and an offset that no
    message has."""
    broker = broker07(tmp_path, "--no-zookeeper").start()
    large = b"x" * 40_000
    expected = []
    with SimpleConsumer("127.0.0.1", broker.port, kafka_07=True) as consumer:
        for codec in ("none", "gzip", "snappy"):
            payloads = [*(f"{codec} {number}".encode() for number in range(20)), large]
            settings = {"broker.list": f"0:127.0.0.1:{broker.port}", "compression.codec": codec}
            with Producer(settings) as producer:
                for payload in payloads:
                    producer.send(KeyedMessage("t", payload))
            expected += payloads
            count = len(expected)
            # Nothing is acknowledged, and connections are served side by side.
            wait_for(
                lambda count=count: len(everything(consumer)) == count,
                lambda: "messages are missing",
            )
        assert everything(consumer) == expected
        end = consumer.get_offsets_before("t", 0, LATEST_TIME, 1)[0]
        assert consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1) == [0]
        first, nothing, beyond = consumer.multifetch(
            [KafkaFetch("t", 0, 0, 200), KafkaFetch("t", 0, end), KafkaFetch("t", 0, end + 1)]
        )
        assert next(iter(first)).message == expected[0]
        assert list(nothing) == []
        with pytest.raises(ApiError) as caught:
            list(beyond)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    stop(broker)


def everything(consumer):
    """The payloads of t-0, by fetches that are smaller than some messages."""
    found, offset, last = [], 0, -1
    while offset != last:
        messages = consumer.fetch(KafkaFetch("t", 0, offset, 1_000))
        found += [it.message for it in messages]
        last, offset = offset, messages.next_offset
    return found


def test_a_broker_registers_in_its_own_zookeeper_also_after_a_kill(tmp_path):
    kazoo_client = pytest.importorskip("kazoo.client")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = broker07(tmp_path, "--zookeeper-port", str(port)).start()
    for _ in range(2):
        reader = kazoo_client.KazooClient(f"127.0.0.1:{port}", timeout=LIMIT_S)
        reader.start(LIMIT_S)
        with Client07(broker.port) as client:
            client.send(ProduceRequest("t", 0, message_set([b"x"])))
            wait_for(lambda r=reader: r.exists("/brokers/topics/t/0"), lambda: "t is unknown")
        data, stat = reader.get("/brokers/ids/0")
        assert decode_broker(0, data)[:3] == (0, "127.0.0.1", broker.port)
        assert stat.ephemeralOwner
        assert reader.get("/brokers/topics/t/0")[0] == b"1"
        reader.create("/consumers/g/offsets/t/0-0", b"11", makepath=True)
        reader.delete("/consumers/g/offsets/t/0-0")
        reader.stop()
        reader.close()
        broker.process.kill()
        broker.process.wait()
        broker.start()
    stop(broker)
    assert (tmp_path / "data.metadata").is_dir(), "beside the log directory"


def test_apache_kafkas_settings_file_is_read(tmp_path):
    (tmp_path / "server.properties").write_text(
        "# of 0.7\nbrokerid=3\nport=0\nnum.threads=8\nenable.zookeeper=false\n"
        f"log.dir={tmp_path / 'logs'}\nlog.flush.interval=10000\nwhat.is.this=1\n"
        "log.default.flush.scheduler.interval.ms=200\n"
    )
    broker = broker07(tmp_path, "--config", str(tmp_path / "server.properties"), "--port", "0")
    broker._arguments = (*broker._arguments, "--data-dir", str(tmp_path / "logs"))
    broker.start()
    with Client07(broker.port) as client:
        client.send(ProduceRequest("t", 0, message_set([b"x"])))
        wait_for(lambda: client.end("t") == 11, lambda: "the message is never flushed")
    stop(broker)
    assert "unknown setting what.is.this" in broker.errors
    assert "settings without effect (docs/compatibility.md): num.threads" in broker.errors
