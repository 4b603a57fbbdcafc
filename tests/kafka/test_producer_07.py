"""Producer on the wire of Kafka 0.7: what its own producers sent, and brokers that come and go."""

import json

import pytest

from kctl.errors import UnreachableError, UsageError
from kctl.kafka import KeyedMessage, Producer, ProducerData
from kctl.protocol.kafka07 import decode_request
from kctl.records.message07 import shallow_messages
from tests.support.golden import golden_files

TEXT = {"serializer.class": "kafka.serializer.StringEncoder"}


def golden_frames(connection):
    """The requests on a connection of Apache Kafka 0.7's producers, without their sizes."""
    files = golden_files("g07/g07.tar.xz")
    steps = json.loads(files["g07/clients.json"])["connections"][connection]
    return [bytes.fromhex(frame)[4:] for frame in steps[0]["frames"]]


def producer_for(*listeners, **others):
    named = {name.replace("_", "."): value for name, value in others.items()}
    return Producer({"broker.list": ",".join(it.address for it in listeners), **TEXT, **named})


def parts_of(frame):
    """{(topic, partition): message set} of a MULTIPRODUCE."""
    return {(it.topic, it.partition): bytes(it.message_set) for it in decode_request(frame).parts}


def test_a_synchronous_producer_sends_what_the_one_of_0_7_sent(listen):
    listener = listen()
    with producer_for(listener) as producer:
        producer.send(ProducerData("talk", "single"))
        producer.send(ProducerData("talk", ["a", "b", "c"]))
        producer.send([ProducerData("talk", "m1"), ProducerData("talk2", ["m2", "m3"])])
    assert len(listener.wait_for(7)) == 7
    assert listener.frames == golden_frames(0)


def test_a_compressed_set_is_the_one_of_0_7(listen):
    listener = listen()
    with producer_for(listener, compression_codec=2) as producer:
        producer.send(ProducerData("talk", ["sn1", "sn2", "sn3"]))
    listener.wait_for(3)
    assert listener.frames == golden_frames(2)


def test_a_gzipped_set_is_the_one_of_0_7_but_for_the_name_of_the_operating_system(listen):
    listener = listen()
    with producer_for(listener, compression_codec="gzip", compressed_topics="other") as producer:
        # compressed.topics has no effect on a synchronous producer, as in 0.7.
        producer.send(ProducerData("talk", ["gz1", "gz2", "gz3"]))
    listener.wait_for(3)
    [ours], [theirs] = [
        list(shallow_messages(decode_request(frame).message_set))
        for frame in (*listener.frames, *golden_frames(1))
    ]
    assert (ours.message.attributes, ours.offset) == (theirs.message.attributes, theirs.offset)
    ours_gzip, theirs_gzip = bytearray(ours.message.payload), bytearray(theirs.message.payload)
    ours_gzip[9] = theirs_gzip[9] = 0
    assert ours_gzip == theirs_gzip


def test_an_asynchronous_producer_groups_its_batches_as_the_one_of_0_7(listen):
    listener = listen()
    with producer_for(listener, producer_type="async", batch_size=3) as producer:
        for n in range(7):
            producer.send(ProducerData(f"talk{n % 2}", f"async{n}"))
    listener.wait_for(7)
    # The order of the topics in a request is that of a hash map in 0.7.
    assert list(map(parts_of, listener.frames)) == list(map(parts_of, golden_frames(3)))


def test_compressed_topics_counts_for_an_asynchronous_producer(listen):
    listener = listen()
    config = {"producer_type": "async", "compression_codec": 1, "compressed_topics": "a"}
    with producer_for(listener, **config) as producer:
        producer.send([ProducerData("a", "1"), ProducerData("b", "2")])
    listener.wait_for(2)
    codecs = {}
    for frame in listener.frames:
        for (topic, _), data in parts_of(frame).items():
            codecs[topic] = [it.message.codec for it in shallow_messages(data)]
    assert codecs == {"a": [1], "b": [0]}


def test_brokers_of_a_list_share_the_load_and_choose_partitions(listen):
    listeners = [listen(0), listen(1)]
    with producer_for(*listeners) as producer:
        for n in range(60):
            producer.send(KeyedMessage("t", str(n)))
        explicit = producer.send(KeyedMessage("t", "explicit", partition=3))
    assert explicit.result() == ("t", 3, -1, -1)
    total = sum(len(it.wait_for(10)) for it in listeners)
    assert total <= 61
    assert {partition for it in listeners for _, partition, _ in it.received} <= {-1, 3}


def test_a_broker_that_is_down_fails_what_is_sent_to_it(listen):
    listener = listen()
    with producer_for(listener) as producer:
        producer.send(KeyedMessage("t", "1"))
        listener.wait_for(1)
        listener.close()
        with pytest.raises(UnreachableError, match="broker 0"):  # noqa: PT012 - not the first
            for _ in range(100):
                producer.send(KeyedMessage("t", "2" * 1_000))


def test_a_connection_is_replaced_after_a_number_of_requests(listen):
    listener = listen()
    with producer_for(listener, reconnect_interval=4) as producer:
        for n in range(10):
            producer.send(KeyedMessage("t", str(n)))
    assert [payload for _, _, payload in sorted(listener.wait_for(10))] == [
        b"%d" % n for n in range(10)
    ]
    assert len(listener.connections) == 3


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (KeyedMessage("t", None), "no null"),
        (KeyedMessage("t", "1", headers=[("h", b"1")]), "no headers"),
        (KeyedMessage("t", "x" * 1_000_001), "max.message.size is"),
    ],
)
def test_what_0_7_cannot_store_is_refused(listen, message, words):
    listener = listen()
    with producer_for(listener) as producer:
        with pytest.raises(UsageError, match=words):
            producer.send(message)
        producer.send(KeyedMessage("t", "good"))
    assert listener.wait_for(1) == [("t", -1, b"good")]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_codecs_that_0_7_does_not_have_are_refused(listen, codec):
    with pytest.raises(UsageError, match="none, gzip and snappy"):
        producer_for(listen(), compression_codec=codec)


@pytest.mark.parametrize("text", ["localhost:9092", "0:a", "x:a:1", "0:a:1,0:b:1", ","])
def test_a_list_of_brokers_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match=r"broker\.list|Not an address"):
        Producer({"broker.list": text})
