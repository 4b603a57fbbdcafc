"""Replicas are compared over the network, on real brokers."""

import pytest

from kctl.admin.replica_verification import compare_replicas
from kctl.admin.topics import NewTopic
from kctl.client.producer import NewRecord, Producer
from kctl.model import TopicPartition
from kctl.records.record_batch import RecordBatch
from tests.support.broker_cluster import running_brokers

TP = TopicPartition("t", 0)
BATCHES = 25


@pytest.fixture
def cluster(tmp_path):
    """Start two brokers that hold the same batches of two records each."""
    with running_brokers(tmp_path) as found:
        found.start(1, 2)
        found.run(found.admin().topics.create([NewTopic("t", assignment={0: [1, 2]})]))
        found.until(lambda: all(found.partition(it, "t") for it in (1, 2)), "both replicas")
        for _ in range(BATCHES):
            found.run(Producer(found.router(), "t").send([NewRecord(value=b"a")] * 2))
        end = found.end(1, "t")
        found.until(lambda: found.partition(2, "t").log.high_watermark == end, "2 knows of all")
        yield found


def compared(cluster):
    router = cluster.router()

    async def work():
        await router.refresh(["t"])
        brokers = [router.view.brokers[broker_id] for broker_id in (1, 2)]
        return await compare_replicas(router, TP, brokers, 0)

    return cluster.run(work())


def test_replicas_that_agree(cluster):
    found = compared(cluster)
    end = cluster.end(1, "t")
    assert (found.batches, found.end_offset, found.differences) == (BATCHES, end, [])


def test_the_first_batch_that_differs_is_reported(cluster):
    (path,) = (cluster.directory / "broker-2/t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(17):
        position += RecordBatch(data, position).size
    damaged = RecordBatch(data, position)
    data[position + damaged.size - 1] ^= 1
    with path.open("r+b") as file:
        file.write(data)

    found = compared(cluster)
    assert [(it.offset, it.brokers) for it in found.differences] == [(damaged.base_offset, (1, 2))]
    mine, theirs = found.differences[0].batches
    assert mine.is_crc_valid
    assert not theirs.is_crc_valid
