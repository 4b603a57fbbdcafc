"""`kill -9` while replicas move between the log directories of a broker, under a producer: every
acknowledged record is there after the next start, once and in order."""

import os
import time
from random import Random  # noqa: TID251 - the seed enters here

import pytest

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.segment_check import check_partition
from tests.support.steady_producer import SteadyProducer

pytestmark = pytest.mark.slow

TOPIC = "movers"
PARTITIONS = 3
KILLS = int(os.environ.get("KCTL_TEST_KILLS", "10"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
PATIENCE_S = 60


def send_to(broker, log_dir, number):
    """Have a partition lie in `log_dir`."""
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[number])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=log_dir, topics=[topic])])
    with BrokerClient(broker.address) as client:
        [answered] = client.ask(request).results
    assert answered.partitions[0].error_code == ErrorCode.NONE


def places(broker):
    """(partition, whether it is on its way there, log directory) of each replica, in order."""
    with BrokerClient(broker.address) as client:
        results = client.ask(DescribeLogDirsRequest(topics=None)).results
    return sorted(
        (partition.partition_index, bool(partition.is_future_key), found.log_dir)
        for found in results
        for topic in found.topics
        for partition in topic.partitions
    )


def settle(broker):
    """Until nothing moves; where each partition is."""
    deadline = time.monotonic() + PATIENCE_S
    while any(is_future for _, is_future, _ in places(broker)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found = places(broker)
    assert [number for number, _, _ in found] == list(range(PARTITIONS)), "each is there once"
    return {number: log_dir for number, _, log_dir in found}


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_acknowledged_records_survive_kill_minus_nine_while_replicas_move(tmp_path, durable):
    """`KCTL_TEST_KILLS=1000 KCTL_TEST_SEED=7` for more."""
    dirs = [str(tmp_path / name) for name in ("one", "two")]
    moments = Random(SEED)
    broker = KctlBroker(
        tmp_path / "broker",
        *("-c", f"log.dirs={','.join(dirs)}", "-c", "log.segment.bytes=2000000"),
        *("-c", "log.flush.offset.checkpoint.interval.ms=200"),
        *("--seed-topic", f"{TOPIC}:{PARTITIONS}", *(["--durable"] if durable else [])),
    )
    with broker, SteadyProducer(broker.address, TOPIC, PARTITIONS) as producer:
        for _ in range(KILLS):
            for _ in range(moments.randrange(1, 5)):
                producer.wait_for_more(moments.randrange(1, 1000))
                for number in range(PARTITIONS):
                    send_to(broker, moments.choice(dirs), number)
            time.sleep(moments.uniform(0, 0.1))
            broker.kill()
            broker.start()
        for log_dir in dirs:
            for number in range(PARTITIONS):
                send_to(broker, log_dir, number)
            assert set(settle(broker).values()) == {log_dir}
        producer.wait_for_more(1)
        producer.finish()
        assert len(producer.acked) == producer.sent
        producer.check(broker.address)
        assert broker.stop() == 0
        ends = [
            check_partition(tmp_path / "two" / f"{TOPIC}-{number}") for number in range(PARTITIONS)
        ]
        assert sum(ends) == producer.sent
    assert "Traceback" not in broker.errors
