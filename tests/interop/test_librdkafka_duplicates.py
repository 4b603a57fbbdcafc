"""librdkafka's idempotent producer may send duplicates when brokers fail, and no broker can prevent
it. The brokers here only follow a script. `docs/compatibility.md` describes the behaviour.

These tests fail when librdkafka changes: then revise the document and `tests/torture`.
"""

import pytest
from confluent_kafka import Producer

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.init_producer_id import InitProducerIdResponse
from kctl.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.record_batch import RecordBatch
from kctl.testing.scripted_broker import HANG_UP, ScriptedBroker
from tests.support.real_loop import real_loop

TOPIC = "orders"
PRODUCER_ID = 2001


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


class Client:
    """An idempotent producer whose batches have one record each, and what it reported."""

    def __init__(self, loop, broker):
        self._loop = loop
        self.delivered = {}
        self._producer = Producer(
            {
                "bootstrap.servers": f"{broker.host}:{broker.port}",
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 2,
            }
        )

    def produce(self, partition, *values):
        for value in values:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._report)

    def produce_at_once(self, broker, *values):
        """Each in a batch of its own to partition 0; all are under way before the first answer."""
        broker.hold(ApiKey.PRODUCE)
        self.produce(0, *values)
        self.until(lambda: len(broker.requests(ApiKey.PRODUCE)) == len(values))
        broker.release()

    def _report(self, error, message):
        self.delivered[message.value().decode()] = message.offset() if error is None else error

    def until(self, condition):
        """Run the brokers until `condition()` holds."""

        def holds():
            self._producer.poll(0)
            return condition()

        self._loop.until(holds)

    def until_delivered(self, *values):
        self.until(lambda: self.delivered.keys() >= set(values))


def start_broker(loop, broker_id, partitions):
    broker = ScriptedBroker(loop.runtime, broker_id=broker_id, topics={TOPIC: partitions}).start()
    answer = InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0)
    broker.answer(ApiKey.INIT_PRODUCER_ID, answer)
    return broker


def result(partition, *, code=ErrorCode.NONE, offset=-1):
    """The answer to a Produce request."""
    found = PartitionProduceResponse(
        partition_index=partition, error_code=int(code), base_offset=offset
    )
    return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partitions=[found])])


def sent_to(broker):
    """(producer epoch, sequence, value) of each batch that came."""
    found = []
    for request in broker.requests(ApiKey.PRODUCE):
        batch = RecordBatch(bytes(request.body.topics[0].partitions[0].records))
        value = next(iter(batch.records())).value
        found.append((batch.producer_epoch, batch.base_sequence, bytes(value).decode()))
    return found


def test_an_out_of_order_answer_for_one_partition_repeats_the_records_of_another(loop):
    calm, dying = start_broker(loop, 1, 2), start_broker(loop, 2, 2)
    for broker in (calm, dying):
        broker.others = {1: calm.address, 2: dying.address}
        broker.leaders = {(TOPIC, 0): 1, (TOPIC, 1): 2}
    # It may have appended the batch; its answer never arrives.
    dying.answer(ApiKey.PRODUCE, HANG_UP)
    client = Client(loop, calm)
    client.produce(1, "payment")
    client.until(lambda: sent_to(dying))
    dying.stop()
    # What every broker answers to a batch that follows one which it has just refused.
    calm.answer(
        ApiKey.PRODUCE,
        result(0, code=ErrorCode.NOT_ENOUGH_REPLICAS),
        result(0, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        result(0, offset=100),
        result(0, offset=101),
    )
    client.produce_at_once(calm, "first", "second")
    client.until_delivered("first", "second")
    dying.answer(ApiKey.PRODUCE, result(1, offset=1))
    dying.start(dying.port)
    client.until_delivered("payment")
    # The leader cannot see that these are the same: the epoch and the sequences are new.
    assert sent_to(dying) == [(0, 0, "payment"), (1, 0, "payment")]
    assert sent_to(calm) == [
        (0, 0, "first"), (0, 1, "second"), (1, 0, "first"), (1, 1, "second"),
    ]  # fmt: skip
    calm.stop()
    dying.stop()


def test_a_record_that_a_later_one_vouches_for_is_reported_without_an_offset(loop):
    broker = start_broker(loop, 1, 1)
    broker.answer(
        ApiKey.PRODUCE,
        result(0, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        result(0, offset=101),
    )
    client = Client(loop, broker)
    client.produce_at_once(broker, "first", "second")
    client.until_delivered("first", "second")
    # The first is not sent again: the second would not have been accepted without it.
    assert sent_to(broker) == [(0, 0, "first"), (0, 1, "second")]
    assert client.delivered["second"] == 101
    assert client.delivered["first"] is None
    broker.stop()


def test_a_first_record_that_is_refused_is_lost_if_the_second_is_accepted(loop):
    """Why a broker must not take any sequence from a producer that it has never heard of."""
    broker = start_broker(loop, 1, 1)
    broker.answer(
        ApiKey.PRODUCE,
        result(0, code=ErrorCode.NOT_ENOUGH_REPLICAS),
        result(0, offset=0),
    )
    client = Client(loop, broker)
    client.produce_at_once(broker, "first", "second")
    client.until_delivered("first", "second")
    assert sent_to(broker) == [(0, 0, "first"), (0, 1, "second")]
    # Reported as delivered, and never stored.
    assert client.delivered == {"first": None, "second": 0}
    broker.stop()
