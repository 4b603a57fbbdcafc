"""aiokafka: the same story as with confluent-kafka, by another client's code."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

COUNT = 200
TIMEOUT_S = 120

# aiokafka 0.14 leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def run(story):
    """Run a coroutine, within a bound."""
    asyncio.run(asyncio.wait_for(story, TIMEOUT_S * 3))


async def make_topic(bootstrap, topic, partitions=1):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


async def take(consumer, count):
    found = []
    while len(found) < count:
        batches = await consumer.getmany(timeout_ms=500)
        found += [record for records in batches.values() for record in records]
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_what_is_produced_is_consumed(bootstrap, topic, codec, idempotent):
    async def story():
        await make_topic(bootstrap, topic)
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=idempotent
        )
        await producer.start()
        sent = [
            await producer.send(
                topic, b"value-%d" % n, key=b"k%d" % n, headers=[("h", b"%d" % n)], partition=0
            )
            for n in range(COUNT)
        ]
        offsets = [(await future).offset for future in sent]
        await producer.stop()
        assert offsets == list(range(COUNT))

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        found = await take(consumer, COUNT)
        await consumer.stop()
        assert [(r.key, r.value, list(r.headers)) for r in found] == [
            (b"k%d" % n, b"value-%d" % n, [("h", b"%d" % n)]) for n in range(COUNT)
        ]

    run(story())


def test_two_members_share_a_group_and_one_takes_over(bootstrap, topic):
    async def story():
        await make_topic(bootstrap, topic, partitions=4)
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": topic,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
        }
        first = AIOKafkaConsumer(topic, **settings)
        second = AIOKafkaConsumer(topic, **settings)
        await first.start()
        await second.start()

        async def until(condition):
            while not condition():
                await first.getmany(timeout_ms=100)
                await second.getmany(timeout_ms=100)

        await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        mine = next(iter(second.assignment()))
        await second.commit({mine: 7})
        await first.stop()
        while len(second.assignment()) != 4:
            await second.getmany(timeout_ms=100)
        assert await second.committed(mine) == 7
        await second.stop()

    run(story())


def test_offsets_by_time(bootstrap, topic):
    async def story():
        await make_topic(bootstrap, topic)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        for n in range(50):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=1000 + 10 * n)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        part = TopicPartition(topic, 0)
        consumer.assign([part])
        found = await consumer.offsets_for_times({part: 1205})
        assert (found[part].offset, found[part].timestamp) == (21, 1210)
        assert await consumer.end_offsets([part]) == {part: 50}
        await consumer.stop()

    run(story())
