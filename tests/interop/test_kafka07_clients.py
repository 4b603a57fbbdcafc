"""Clients of Kafka 0.7 for Node.js, from npm, with `kctl serve --kafka-0.7`.

`kafka` writes magic 0 and `franz-kafka` magic 1, plain or in gzip. `kafka` sends only the lowest 16
bits of an offset, so what it reads back is a short log.
"""

import subprocess

import pytest

from kctl.protocol.kafka07 import FetchRequest, decode_fetch_answer
from kctl.records.message07 import messages, valid_bytes
from tests.serve.test_kafka07 import Client07, broker07
from tests.support.other_consumers import npm_packages
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

LIMIT_S = 120
COUNT = 10_000
SHORT = 2_000

MAGIC_0 = """
const kafka = require("kafka");
const [port, count] = process.argv.slice(2, 4).map(Number);
const topic = "magic0-" + count;
let got = 0;
const consumer = new kafka.Consumer({ host: "127.0.0.1", port, pollInterval: 20 });
consumer.on("message", (_, message) => {
  if (String(message) !== "message " + got) { console.log(String(message)); process.exit(1); }
  if (++got === count) process.exit(0);
});
const producer = new kafka.Producer({ host: "127.0.0.1", port, topic });
producer.connect().on("connect", () => {
  for (let i = 0; i < count; i += 50) {
    producer.send([...Array(50).keys()].map((n) => "message " + (i + n)));
  }
  if (process.argv[4] === "read") {
    consumer.connect(() => consumer.subscribeTopic({ name: topic, partition: 0 }));
  } else {
    producer._connection.end(() => process.exit(0));
  }
});
"""
FRANZ = """
const Kafka = require("franz-kafka");
const [port, count] = process.argv.slice(2, 4).map(Number);
const compression = process.argv[4];
const kafka = new Kafka({
  brokers: [{ id: 0, host: "127.0.0.1", port }], compression, queueTime: 50, batchSize: 100,
  maxFetchDelay: 50, maxFetchSize: 100000,
});
kafka.connect(() => {
  const partitions = { consume: ["0-0"], produce: ["0:1"] };
  const topic = kafka.topic("franz-" + compression, { partitions });
  const got = new Set();
  let sent = 0;
  topic.on("error", (error) => { console.log(error); process.exit(1); });
  topic.on("data", (data) => {
    if (got.has(String(data))) { console.log("twice: " + data); process.exit(1); }
    if (got.add(String(data)).size === count) process.exit(0);
  });
  topic.resume();
  setInterval(() => {
    for (let n = 0; n < 100 && sent < count; n++) topic.write("message " + sent++);
  }, 2);
});
"""


@pytest.fixture(scope="module")
def node():
    """Runs a script with the packages."""
    folder = npm_packages("npm-kafka-0.7", "franz-kafka@0.7.5", "kafka@0.2.3")

    def run(script, *arguments):
        path = folder / f"script-{abs(hash(script))}.js"
        path.write_text(script)
        command = ["node", str(path), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=folder
        )
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2_000:]

    return run


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with_kctl = broker07(tmp_path_factory.mktemp("broker"), "--no-zookeeper").start()
    yield with_kctl
    with_kctl.process.terminate()
    assert with_kctl.process.wait(LIMIT_S) == 0
    assert with_kctl.errors == ""


def stored(broker, topic):
    """The payloads of partition 0."""
    offset, payloads = 0, []
    with Client07(broker.port) as client:
        while True:
            client.send(FetchRequest(topic, 0, offset, 1 << 20))
            found = decode_fetch_answer(client.receive()).message_set
            if not found:
                return payloads
            payloads += [bytes(it.message.payload) for it in messages(found, offset)]
            offset += valid_bytes(found)


def test_a_client_of_magic_0_loses_nothing(node, broker):
    node(MAGIC_0, broker.port, COUNT)
    # It ends before the broker has read everything: there is no answer to wait for.
    wait_for(lambda: len(stored(broker, f"magic0-{COUNT}")) == COUNT, lambda: "some are missing")
    assert stored(broker, f"magic0-{COUNT}") == [b"message %d" % n for n in range(COUNT)]


def test_a_client_of_magic_0_reads_what_it_wrote(node, broker):
    node(MAGIC_0, broker.port, SHORT, "read")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_client_of_magic_1_reads_what_it_wrote(node, broker, compression):
    node(FRANZ, broker.port, COUNT, compression)
    assert sorted(stored(broker, f"franz-{compression}")) == sorted(
        b"message %d" % n for n in range(COUNT)
    )
