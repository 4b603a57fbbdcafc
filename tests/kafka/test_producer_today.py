"""Producer against a broker of Kafka 2.7: blocking, in the background, and for asyncio."""

import asyncio
import logging
import threading
import warnings

import pytest

from kctl.errors import TimedOutError, UnreachableError, UsageError
from kctl.kafka import (
    CallbackHandler,
    KeyedMessage,
    Producer,
    ProducerConfig,
    ProducerData,
    QueueFullError,
    StringEncoder,
    aio,
)
from kctl.protocol.error_codes import ApiError
from kctl.records.compression import CODEC_NAMES
from kctl.records.memory_records import batches
from kctl.testing.kafka_broker import KafkaBroker

TEXT = "kafka.serializer.StringEncoder"


def settings(kafka, **others):
    """Settings of today; `a_b=1` stands for `a.b=1`."""
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"bootstrap.servers": kafka.bootstrap_servers, **named}


def sync_settings(kafka, **others):
    return settings(kafka, producer_type="sync", **others)


def values(kafka, topic):
    return [it.value for it in kafka.records(topic)]


def test_a_synchronous_send_returns_when_the_message_is_written(kafka):
    kafka.create_topic("sync", 2)
    with Producer(sync_settings(kafka)) as producer:
        delivery = producer.send(KeyedMessage("sync", b"tea", b"alice", partition=1))
        assert values(kafka, "sync") == [b"tea"]
    written = delivery.result()
    [record] = kafka.records("sync")
    assert (written.topic, written.partition, written.offset) == ("sync", 1, 0)
    assert (record.key, record.timestamp) == (b"alice", written.timestamp_ms)


def test_what_is_queued_is_written_in_the_background_and_at_the_end(kafka):
    kafka.create_topic("queued", 3)
    with Producer(settings(kafka, linger_ms=60_000)) as producer:
        deliveries = [producer.send(KeyedMessage("queued", b"%d" % n)) for n in range(2_000)]
        assert not deliveries[0].is_done
    assert sorted(map(int, values(kafka, "queued"))) == list(range(2_000))
    offsets = {(it.result().partition, it.result().offset) for it in deliveries}
    assert len(offsets) == 2_000


def test_messages_of_a_key_stay_in_order_and_on_the_partition_of_kafkas_clients(kafka):
    kafka.create_topic("keyed", 5)
    with Producer(settings(kafka)) as producer:
        for n in range(300):
            producer.send(KeyedMessage("keyed", b"%d" % n, b"key-%d" % (n % 7)))
    for key in {it.key for it in kafka.records("keyed")}:
        of_key = [it for it in kafka.records("keyed") if it.key == key]
        assert [int(it.value) % 7 for it in of_key] == [int(key[4:])] * len(of_key)
        assert [int(it.value) for it in of_key] == sorted(int(it.value) for it in of_key)
        expected = kafka.produce("keyed", "x", key=key).partition
        assert {it.partition for it in of_key} == {expected}


def test_a_producer_of_0_8_chooses_partitions_by_javas_hash(kafka):
    kafka.create_topic("hashed", 7)
    config = {"metadata.broker.list": kafka.bootstrap_servers, "request.required.acks": "1"}
    with Producer({**config, "serializer.class": TEXT}) as producer:
        found = producer.send(KeyedMessage("hashed", "tea", "orders")).result()
    # The absolute value of Java's hash of "orders".
    assert found.partition == 1008770331 % 7


def test_headers_timestamps_nulls_and_large_batches(kafka):
    kafka.create_topic("odd")
    with Producer(settings(kafka)) as producer:
        headers = (("h", b"1"), ("h", None))
        odd = producer.send(KeyedMessage("odd", None, b"k", headers=headers, timestamp_ms=77))
        for _ in range(30):
            producer.send(KeyedMessage("odd", b"x" * 100_000))
    assert odd.result().timestamp_ms == 77
    [first, *rest] = kafka.records("odd")
    assert (first.key, first.value, first.headers, first.timestamp) == (b"k", None, headers, 77)
    assert [len(it.value) for it in rest] == [100_000] * 30


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec(kafka, codec):
    topic = f"codec-{codec}"
    kafka.create_topic(topic)
    config = settings(kafka, compression_type=codec, compressed_topics=f"{topic},other")
    with Producer(config, encoder=StringEncoder()) as producer:
        producer.send(ProducerData(topic, ["tea" * 100] * 5))
    assert values(kafka, topic) == [b"tea" * 100] * 5
    [segment] = (kafka.log_directory / f"{topic}-0").glob("*.log")
    assert {CODEC_NAMES[it.compression_type] for it in batches(segment.read_bytes())} == {codec}


def test_compressed_topics_restricts_the_codec(kafka):
    kafka.create_topic("plain")
    config = settings(kafka, compression_type="gzip", compressed_topics="other")
    with Producer(config) as producer:
        producer.send(KeyedMessage("plain", b"tea" * 100)).result()
    [segment] = (kafka.log_directory / "plain-0").glob("*.log")
    assert [it.compression_type for it in batches(segment.read_bytes())] == [0]


@pytest.mark.parametrize("acks", ["0", "1", "-1", "all"])
def test_every_kind_of_acknowledgement(kafka, acks):
    topic = f"acks{acks}"
    kafka.create_topic(topic)
    with kafka.assert_produces(topic, 1), Producer(sync_settings(kafka, acks=acks)) as producer:
        written = producer.send(KeyedMessage(topic, b"tea")).result()
    assert written.offset == (-1 if acks == "0" else 0)


def test_a_topic_that_brokers_create_is_waited_for(kafka):
    with Producer(settings(kafka)) as producer:
        assert producer.send(KeyedMessage("created", b"tea")).result().offset == 0


def test_messages_of_a_producer_data_share_a_partition(kafka):
    kafka.create_topic("together", 8)
    with Producer(sync_settings(kafka)) as producer:
        for _ in range(5):
            deliveries = producer.send(ProducerData("together", [b"1", b"2", b"3"]))
            assert len({it.result().partition for it in deliveries}) == 1


def test_a_message_that_fails_fails_alone(kafka, caplog):
    kafka.create_topic("alone")
    with Producer(settings(kafka, max_request_size=1_000)) as producer:
        good = producer.send(KeyedMessage("alone", b"tea"))
        large = producer.send(KeyedMessage("alone", b"x" * 1_001))
        text = producer.send(KeyedMessage("alone", "tea"))
        lost = producer.send(KeyedMessage("alone", b"tea", partition=1))
        producer.flush()
    assert good.result().offset == 0
    for delivery, words in (
        (large, "max.request.size is 1000"), (text, "not bytes"), (lost, "which has 1"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            delivery.result()
    assert [it.levelname for it in caplog.records] == ["WARNING"] * 3


def test_a_synchronous_send_raises_the_first_error(kafka):
    kafka.create_topic("raises", configs={"max.message.bytes": 500})
    with Producer(sync_settings(kafka)) as producer:
        with pytest.raises(ApiError, match="maximum configured value of 500"):
            producer.send(KeyedMessage("raises", b"x" * 1_000))
        assert producer.send(KeyedMessage("raises", b"tea")).result().offset == 0


def test_a_batch_that_is_too_large_for_its_topic_is_split(kafka):
    kafka.create_topic("split", configs={"max.message.bytes": 1_000})
    with Producer(settings(kafka, linger_ms=60_000)) as producer:
        sent = [producer.send(KeyedMessage("split", b"x" * (100 + n))) for n in range(40)]
        large = producer.send(KeyedMessage("split", b"x" * 1_000))
    assert len(values(kafka, "split")) == 40
    assert {it.result().offset for it in sent} == set(range(40))
    with pytest.raises(ApiError, match="maximum configured value"):
        large.result()


def test_a_full_queue_raises_or_waits_as_the_settings_say(kafka):
    kafka.create_topic("full")
    config = settings(
        kafka,
        queue_buffering_max_messages=2,
        batch_num_messages=2,
        max_block_ms=0,
        linger_ms=60_000,
    )
    hooks = Enqueued()
    producer = Producer(config, callback_handler=hooks)
    with kafka.inject_latency("Produce", 300), producer:  # noqa: SIM117
        with pytest.raises(QueueFullError, match="2 messages"):  # noqa: PT012 - one of them
            for n in range(1_000):
                producer.send(KeyedMessage("full", b"%d" % n))
    added = [value for value, was_added in hooks.seen if was_added]
    assert [was_added for _, was_added in hooks.seen][-1] is False
    assert values(kafka, "full") == added

    with Producer({**config, "max.block.ms": -1, "linger.ms": 1}) as producer:
        for n in range(50):
            producer.send(KeyedMessage("full", b"%d" % n))
    assert len(values(kafka, "full")) == len(added) + 50


class Enqueued(CallbackHandler):
    """Notes what was enqueued."""

    def __init__(self):
        self.seen = []

    def before_enqueue(self, item):
        return None if item.message.message == b"secret" else item

    def after_enqueue(self, item, *, added):
        self.seen.append((item.message.message, added))


def test_a_hook_may_keep_a_message_out_of_the_queue(kafka):
    kafka.create_topic("kept")
    with Producer(settings(kafka), callback_handler=Enqueued()) as producer:
        secret = producer.send(KeyedMessage("kept", b"secret"))
        producer.send(KeyedMessage("kept", b"tea"))
    assert values(kafka, "kept") == [b"tea"]
    with pytest.raises(Exception, match="dropped"):
        secret.result()


def test_a_restart_of_the_broker_loses_and_repeats_nothing():
    with KafkaBroker(topics=["lasting:2"]) as broker:
        with Producer(settings(broker, acks="all")) as producer:
            for n in range(3_000):
                producer.send(KeyedMessage("lasting", b"%d" % n))
                if n == 1_500:
                    broker.restart()
        assert sorted(map(int, values(broker, "lasting"))) == list(range(3_000))


def test_the_end_waits_no_longer_than_it_may(kafka, caplog):
    kafka.create_topic("late")
    with kafka.inject_latency("Produce", 60_000):
        producer = Producer(settings(kafka))
        delivery = producer.send(KeyedMessage("late", b"tea"))
        with pytest.raises(TimedOutError):
            delivery.result(0.01)
        with caplog.at_level(logging.WARNING, "kctl.kafka"):
            producer.close(0.01)
    producer.close()
    with pytest.raises(UsageError, match="closed"):
        producer.send(KeyedMessage("late", b"tea"))


def test_asyncio(kafka):
    kafka.create_topic("aio", 2)

    async def main():
        async with aio.Producer(settings(kafka)) as producer:
            deliveries = [await producer.send(KeyedMessage("aio", b"%d" % n)) for n in range(100)]
            return [await it for it in deliveries]

    written = asyncio.run(main())
    assert sorted(values(kafka, "aio")) == sorted(b"%d" % n for n in range(100))
    assert all(it.offset >= 0 for it in written)


def test_asyncio_with_a_synchronous_producer_and_a_full_queue(kafka):
    kafka.create_topic("aio-sync")

    async def main():
        async with aio.Producer(sync_settings(kafka)) as producer:
            [first] = await producer.send(ProducerData("aio-sync", b"1"))
            assert first.result().offset == 0
        small = settings(kafka, queue_buffering_max_messages=2, batch_num_messages=2)
        async with aio.Producer(small) as producer:
            for n in range(20):
                await producer.send(KeyedMessage("aio-sync", b"%d" % n))
            await producer.flush()

    asyncio.run(main())
    assert len(values(kafka, "aio-sync")) == 21


def test_an_address_where_no_broker_is_is_reported_at_once(listen):
    listener = listen()
    listener.close()
    with pytest.raises(UnreachableError):
        Producer({"bootstrap.servers": f"127.0.0.1:{listener.port}"})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "not set where the brokers are"),
        ({"bootstrap.servers": "a", "zk.connect": "b"}, "exclude each other"),
        ({"metadata.broker.list": "a", "bootstrap.servers": "b"}, "are the same setting"),
        ({"bootstrap.servers": "a", "batch.size": 16384}, "of bytes today"),
        ({"bootstrap.servers": "a", "acks": "0", "enable.idempotence": "true"}, "needs acks=all"),
        ({"broker.list": "0:a:1", "partitioner.class": object()}, "no effect with broker.list"),
        ({"bootstrap.servers": "a", "producer.type": "later"}, "producer.type=later"),
        ({"broker.list": "0:a:1", "batch.size": 5, "queue.size": 4}, "larger than queue.size"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config, words):
    with pytest.raises(UsageError, match=words):
        ProducerConfig(config)


@pytest.mark.parametrize("make", [Producer, aio.Producer])
def test_an_argument_that_does_not_exist_is_refused(make):
    with pytest.raises(TypeError, match="'encodr'"):
        make({"bootstrap.servers": "h:1"}, encodr=None)


def test_handlers_need_a_queue(kafka):
    with pytest.raises(UsageError, match="belong to the queue"):
        Producer(sync_settings(kafka), callback_handler=CallbackHandler())


def test_an_unknown_setting_is_logged(kafka, caplog):
    Producer(settings(kafka, linger_msec=5)).close()
    assert "unknown setting linger.msec: did you mean linger.ms?" in caplog.text


def test_a_producer_that_is_not_closed_warns(kafka):
    producer = Producer(settings(kafka))
    client = producer._client
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    with warnings.catch_warnings():
        client.is_open = False
        client.end()


@pytest.mark.parametrize("item", ["tea", b"tea", 5, [5], None])
def test_what_is_not_a_message_is_refused(kafka, item):
    async def main():
        async with aio.Producer(settings(kafka)) as producer:
            await producer.send(item)

    with Producer(settings(kafka)) as producer:
        with pytest.raises(UsageError, match="cannot be sent"):
            producer.send(item)
        assert producer.send([]) == []
    with pytest.raises(UsageError, match="cannot be sent"):
        asyncio.run(main())


def test_several_threads_share_a_producer_with_a_small_queue(kafka):
    kafka.create_topic("threads", 2)
    config = settings(kafka, queue_buffering_max_messages=50, batch_num_messages=20)
    with Producer(config) as producer:

        def run(name):
            for n in range(500):
                producer.send(KeyedMessage("threads", b"%d-%d" % (name, n)))

        threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
    expected = {b"%d-%d" % (name, n) for name in range(4) for n in range(500)}
    assert sorted(values(kafka, "threads")) == sorted(expected)
