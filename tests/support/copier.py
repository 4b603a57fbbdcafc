"""A copier in the manner of Kafka's TransactionalMessageCopier: consumes, transforms and produces
in transactions, offsets included (KIP-447), until it is killed.

python -m tests.support.copier ADDRESS INPUT OUTPUT GROUP TRANSACTIONAL_ID
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException, Producer

RECORDS_PER_TRANSACTION = 20
TIMEOUT_S = 10
# When all brokers are down librdkafka starts again with its bootstrap servers (KIP-899) and forgets
# the brokers it knew, but not that one of them was the group's coordinator: a call to
# send_offsets_to_transaction then waits for it whatever the time limit, while nothing is sent
# (librdkafka's issues 5456 and 5511). A lone broker that is killed is all brokers. Where there are
# three it still waits: a transaction that takes so long ends the process.
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}
STUCK_S = 20


def copy(address, source, target, group, transactional_id):
    """Copy without end; raise KafkaException when the process must start again."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 300,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 300,
            **KEEP_BROKERS,
        }
    )
    try:
        producer.init_transactions(TIMEOUT_S)
        consumer.subscribe([source])
        while True:
            messages = consumer.consume(RECORDS_PER_TRANSACTION, 0.2)
            good = [it for it in messages if it.error() is None]
            if good:
                signal.alarm(STUCK_S)
                copy_some(consumer, producer, good, target)
                signal.alarm(0)
    finally:
        consumer.close()


def copy_some(consumer, producer, messages, target):
    """Run one transaction; after an abort, continue from the committed offsets."""
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(target, b"copy of " + message.value(), message.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            TIMEOUT_S,
        )
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(TIMEOUT_S)
        # Its positions are ahead of what counts: a new consumer starts from the commits.
        raise


def main():
    while True:
        try:
            copy(*sys.argv[1:])
        except KafkaException as error:
            signal.alarm(0)
            sys.stderr.write(f"starts again: {error}\n")


if __name__ == "__main__":
    main()
