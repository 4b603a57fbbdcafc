"""kctl's producer on kctl and on Apache Kafka 2.7.2: the epoch after a batch that is lost."""

import pytest

from kctl.kafka import Consumer, KeyedMessage, Producer, TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode


def test_a_new_epoch_is_accepted_where_the_numbers_were_out_of_step(bootstrap, topic):
    partition = TopicPartition(topic, 0)
    with Producer({"bootstrap.servers": bootstrap, "producer.type": "sync"}) as producer:
        for n in range(2):
            producer.send(KeyedMessage(topic, b"%d" % n, partition=0))
        numbers = producer._client.core._wire._topic(topic)._producer._numbers
        # As for a batch that ended without an acknowledgement, and was not written.
        numbers.take(partition, 1)
        with pytest.raises(ApiError) as refusal:
            producer.send(KeyedMessage(topic, b"refused", partition=0))
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for n in range(2, 5):
            producer.send(KeyedMessage(topic, b"%d" % n, partition=0))
        assert numbers.producer_epoch == 1
    given = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    with Consumer(given) as consumer:
        consumer.assign([partition])
        found = []
        while len(found) < 5:
            found += consumer.poll(10_000)
    assert [it.value for it in found] == [b"%d" % n for n in range(5)]
