"""Power cuts under `kctl serve --durable`: what the broker acknowledged is there afterwards.

The power of an ext4 or XFS file system is cut at random moments, while two producers with acks=all
send (one of them idempotent), segments roll, a group commits offsets and topics are created.
Commits and topics without a response may or may not survive; those with one must.
`KCTL_TEST_CUTS=100 KCTL_TEST_SEED=7` runs more.
"""

import os
import sys
import time
from random import Random  # noqa: TID251 - the seed enters here

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kctl_process import KctlBroker
from tests.support.power_cut import CutError, PowerCutFileSystem, why_not
from tests.support.segment_check import check_partition
from tests.support.steady_producer import SteadyProducer

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS = "survivors", 3
# Of a producer without idempotence: what is repeated may be there twice.
PLAIN_TOPIC, PLAIN_PARTITIONS = "plain", 2
CUTS = int(os.environ.get("KCTL_TEST_CUTS", "10"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
TIMEOUT_S = 30
SETTINGS = (
    "--durable",
    # Small segments, so that cuts meet rolls and their names too.
    "-c", "log.segment.bytes=200000",
    "-c", "log.index.interval.bytes=1024",
    "-c", "log.flush.offset.checkpoint.interval.ms=200",
    "-c", "offsets.topic.num.partitions=2",
    "--seed-topic", f"{TOPIC}:{PARTITIONS}",
    "--seed-topic", f"{PLAIN_TOPIC}:{PLAIN_PARTITIONS}",
)  # fmt: skip


class Witness:
    """Commits offsets and creates topics, and knows which the broker said it has."""

    def __init__(self, address):
        client = {
            "bootstrap.servers": address, "logger": _SILENT,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
        }  # fmt: skip
        self._admin = AdminClient(client)
        self._consumer = Consumer({**client, "group.id": "witness", "on_commit": self._committed})
        # The last offset that is there for certain, and the last that was asked for.
        self.committed = self.asked = -1
        # The last that was asked for in the background and got an answer, good or bad.
        self._answered = -1
        self.topics = set()
        self._creations = {}

    def act(self):
        """One commit and one topic, both acknowledged."""
        self.asked += 1
        (found,) = self._consumer.commit(offsets=[self._offset()], asynchronous=False)
        assert found.error is None, found.error
        self.committed = self.asked
        self._create()
        (name,) = self._creations
        self._await_creations()
        assert name in self.topics

    def ask(self):
        """Create a topic and commit an offset, during which the power may fail."""
        self.asked += 1
        self._consumer.commit(offsets=[self._offset()], asynchronous=True)
        self._create()

    def check(self):
        """Check that everything the broker acknowledged is still there."""
        self._await_creations()
        # A commit that is repeated late would undo a later one.
        deadline = time.monotonic() + 2 * TIMEOUT_S
        while self._answered < self.asked:
            assert time.monotonic() < deadline, "nothing became of a commit"
            self._consumer.poll(0.05)
        (found,) = self._consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        assert self.committed <= found.offset <= self.asked
        assert self.topics <= self._admin.list_topics(timeout=TIMEOUT_S).topics.keys()

    def close(self):
        self._consumer.close()

    def _offset(self):
        return TopicPartition(TOPIC, 0, self.asked)

    def _committed(self, error, offsets):
        self._answered = offsets[0].offset
        if error is None and offsets[0].error is None:
            self.committed = max(self.committed, offsets[0].offset)

    def _create(self):
        # librdkafka 2.16 cannot read metadata of many topics with short names.
        name = f"{'created-meanwhile-' * 5}{self.asked}"
        self._creations |= self._admin.create_topics([NewTopic(name, 1, 1)])

    def _await_creations(self):
        for name, creation in self._creations.items():
            error = creation.exception(2 * TIMEOUT_S)
            # It exists: created before, but the answer was lost.
            if error is None or error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self.topics.add(name)
        self._creations = {}


class _Silent:
    def log(self, *_):
        pass


_SILENT = _Silent()


@pytest.fixture(params=["ext4", "xfs"])
def file_system(request, tmp_path):
    """Mount a file system where the broker keeps its data."""
    reason = why_not(request.param)
    if reason is not None:
        pytest.skip(f"power cuts of {request.param}: {reason}")
    mount_point = tmp_path / "broker" / "data"
    system = PowerCutFileSystem(request.param, tmp_path / "image", mount_point)
    try:
        system.__enter__()
    except CutError as error:
        pytest.skip(f"power cuts of {request.param}: {error}")
    yield system
    system.__exit__()


def cut_the_power(file_system, broker):
    file_system.cut(broker.process)
    file_system.restore()


def cut_again_and_again(file_system, broker, witness, producers):
    moments = Random(SEED)
    for _ in range(CUTS):
        for producer in producers:
            producer.wait_for_more(moments.randrange(1, 1500))
        witness.act()
        witness.ask()
        time.sleep(moments.uniform(0, 0.05))
        cut_the_power(file_system, broker)
        if moments.random() < 0.3:
            # Once more while it recovers.
            broker.launch()
            time.sleep(moments.uniform(0.1, 0.6))
            cut_the_power(file_system, broker)
        broker.start()
        witness.check()


def test_nothing_acknowledged_is_lost_at_a_power_cut(file_system, tmp_path):
    with (
        KctlBroker(tmp_path / "broker", *SETTINGS) as broker,
        SteadyProducer(broker.address, TOPIC, PARTITIONS) as steady,
        SteadyProducer(
            broker.address, PLAIN_TOPIC, PLAIN_PARTITIONS, idempotent=False, rate_max=10_000
        ) as plain,
    ):
        witness = Witness(broker.address)
        cut_again_and_again(file_system, broker, witness, (steady, plain))
        for producer in (steady, plain):
            producer.finish()
            assert len(producer.acked) == producer.sent
        steady.check(broker.address)
        plain.check_acked(broker.address)
        witness.check()
        witness.close()
        assert broker.stop() == 0
        ends = {path.name: check_partition(path) for path in broker.log_dir.glob("*-*/")}
        assert sum(ends[f"{TOPIC}-{n}"] for n in range(PARTITIONS)) == steady.sent
        assert {f"{name}-0" for name in witness.topics} <= ends.keys()
        records = steady.sent + plain.sent
        sys.stdout.write(f"{file_system.kind}: {CUTS} cuts, {records} records, 0 lost\n")
    assert "Traceback" not in broker.errors
