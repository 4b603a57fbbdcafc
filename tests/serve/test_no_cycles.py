"""What a broker holds for long leaves no cycle when it goes: no search would find it (decision
0070)."""

import gc
import time
import weakref

import pytest

from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.testing.kafka_broker import KafkaBroker
from tests.serve import bad_frames
from tests.serve.costliest_turn import send

pytestmark = pytest.mark.slow

PATIENCE_S = 60


@pytest.fixture
def without_searches():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_deleted_topic_leaves_no_cycle(without_searches):
    with KafkaBroker(topics=["t:5"]) as broker:
        for number in range(5):
            broker.produce("t", b"value", partition=number)

        def held(services):
            partitions = services.replica_manager.partitions
            mine = [it for key, it in partitions.items() if key[0] == "t"]
            return [weakref.ref(it) for partition in mine for it in (partition, partition.log)]

        held_before = broker._call(held, broker._services())
        assert len(held_before) == 10
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=9_999)
        send(broker.port, bad_frames.asked(request, 4))
        end_s = time.monotonic() + PATIENCE_S
        while any(it() is not None for it in held_before) and time.monotonic() < end_s:
            time.sleep(0.05)
        assert [it() for it in held_before if it() is not None] == []
