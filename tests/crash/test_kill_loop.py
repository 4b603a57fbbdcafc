"""Repeated `kill -9` under an idempotent producer with acks=all: every acknowledged record is there
after the next start, once and in order, and the files agree."""

import os
import time
from random import Random  # noqa: TID251 - the seed enters here

import pytest

from tests.support.kctl_process import KctlBroker
from tests.support.segment_check import check_partition
from tests.support.steady_producer import SteadyProducer
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.slow

TOPIC = "survivors"
PARTITIONS = 3
KILLS = int(os.environ.get("KCTL_TEST_KILLS", "10"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
# Small segments, so that kills meet rolls and indexes too.
SETTINGS = (
    "-c", "log.segment.bytes=300000",
    "-c", "log.index.interval.bytes=1024",
    "-c", "log.flush.offset.checkpoint.interval.ms=200",
    "--seed-topic", f"{TOPIC}:{PARTITIONS}",
)  # fmt: skip


def kill_and_start(broker, kills, seed):
    """The loop; every file of the stopped broker is looked at in the end."""
    moments = Random(seed)
    with broker, SteadyProducer(broker.address, TOPIC, PARTITIONS) as producer:
        for _ in range(kills):
            producer.wait_for_more(moments.randrange(1, 4000))
            broker.kill()
            if moments.random() < 0.3:
                # Once more while it recovers.
                broker.launch()
                time.sleep(moments.uniform(0.1, 0.6))
                broker.kill()
            broker.start()
        producer.wait_for_more(1)
        producer.finish()
        assert len(producer.acked) == producer.sent
        producer.check(broker.address)
        assert broker.stop() == 0
        ends = {
            number: check_partition(broker.log_dir / f"{TOPIC}-{number}")
            for number in range(PARTITIONS)
        }
        assert sum(ends.values()) == producer.sent
        # A clean start after that has nothing to recover.
        said = len(broker.errors)
        broker.start()
        producer.check(broker.address)
        assert broker.errors[said:] == ""
    assert "Traceback" not in broker.errors


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_acknowledged_records_survive_kill_minus_nine(tmp_path, durable):
    """`KCTL_TEST_KILLS=1000 KCTL_TEST_SEED=7` for more."""
    flags = ["--durable"] if durable else []
    kill_and_start(KctlBroker(tmp_path, *SETTINGS, *flags), KILLS, SEED)


@pytest.mark.kafka
def test_acknowledged_records_survive_kill_minus_nine_with_zookeeper(tmp_path):
    """Each start meets the registration of the process killed, whose session lives on."""
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        broker = KctlBroker(
            tmp_path / "broker", *SETTINGS,
            "--zookeeper", f"{zookeeper.address}/kctl",
            "-c", "broker.id=3",
            "-c", "zookeeper.session.timeout.ms=2000",
            "-c", "offsets.topic.replication.factor=1",
        )  # fmt: skip
        kill_and_start(broker, max(KILLS // 3, 1), SEED)
