"""A synchronous producer sends one message after the other by single requests.

Whatever does not go as expected is dealt with as for any batch: retries, numbers, time limits.
"""

import threading

import pytest

from kctl.client.producer import Producer as TopicProducer
from kctl.errors import KctlError, TimedOutError, UsageError
from kctl.kafka import KeyedMessage, Producer, StringEncoder
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.memory_records import batches
from kctl.testing.kafka_broker import KafkaBroker

END_S = 60


@pytest.fixture
def singles(monkeypatch):
    """The partitions of records that were sent by a request of their own."""
    sent = []
    general = TopicProducer.post_one

    def post_one(self, number, *fields):
        posted = general(self, number, *fields)
        if posted is not None:
            sent.append(number)
        return posted

    monkeypatch.setattr(TopicProducer, "post_one", post_one)
    return sent


def sync(kafka, **others):
    named = {name.replace("_", "."): value for name, value in others.items()}
    return Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "producer.type": "sync", **named}
    )


def values(kafka, topic):
    return [it.value for it in kafka.records(topic)]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_messages_after_the_first_are_sent_by_single_requests(kafka, singles, acks):
    kafka.create_topic(f"single-{acks}", 2)
    with sync(kafka, acks=acks) as producer:
        written = [
            producer.send(KeyedMessage(f"single-{acks}", b"%d" % n, b"k", partition=n % 2)).result()
            for n in range(6)
        ]
    assert singles == [1, 0, 1, 0, 1]
    assert [(it.partition, it.offset) for it in written] == [
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2),
    ]  # fmt: skip
    found = kafka.records(f"single-{acks}")
    assert sorted(it.value for it in found) == [b"%d" % n for n in range(6)]
    assert {it.timestamp for it in found} == {it.timestamp_ms for it in written}


@pytest.mark.parametrize(
    "settings", [{"acks": "0"}, {"compression.type": "gzip"}], ids=["acks=0", "gzip"]
)
def test_other_messages_take_the_general_way(kafka, singles, settings):
    kafka.create_topic(topic := f"general-{next(iter(settings.values()))}")
    with sync(kafka, **settings) as producer:
        for n in range(3):
            producer.send(KeyedMessage(topic, b"%d" % n))
    assert kafka.wait_for_records(topic, {}, 3, END_S)
    assert (singles, values(kafka, topic)) == ([], [b"0", b"1", b"2"])


def test_headers_and_times_of_messages_are_kept(kafka, singles):
    kafka.create_topic("details")
    with sync(kafka) as producer:
        producer.send(KeyedMessage("details", b"0"))
        producer.send(KeyedMessage("details", b"1", headers=[("h", b"x")]))
        producer.send(KeyedMessage("details", b"2", timestamp_ms=1_790_000_000_000))
    assert singles == []
    found = kafka.records("details")
    assert (found[1].headers, found[2].timestamp) == ((("h", b"x"),), 1_790_000_000_000)


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"])
def test_a_refusal_that_may_pass_is_retried(kafka, singles, error):
    kafka.create_topic(topic := f"again-{error}")
    with sync(kafka) as producer:
        producer.send(KeyedMessage(topic, b"0"))
        with kafka.inject_error("Produce", error, times=2) as fault:
            assert producer.send(KeyedMessage(topic, b"1")).result().offset == 1
            assert fault.hits == 2
        producer.send(KeyedMessage(topic, b"2"))
    assert singles
    assert values(kafka, topic) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("handled", [False, True], ids=["lost request", "lost response"])
def test_a_connection_that_ends_while_a_message_waits_repeats_and_loses_nothing(
    kafka, singles, handled
):
    kafka.create_topic(topic := f"lost-{handled}")
    with sync(kafka) as producer:
        producer.send(KeyedMessage(topic, b"0"))
        for n in range(1, 4):
            with kafka.inject_disconnect("Produce", handled=handled):
                producer.send(KeyedMessage(topic, b"%d" % n))
    assert singles
    assert values(kafka, topic) == [b"0", b"1", b"2", b"3"]
    # The broker accepts only consecutive numbers; a repeated message has the one of its first try.
    assert [it.offset for it in kafka.records(topic)] == [0, 1, 2, 3]


def test_a_refused_message_leaves_its_number_to_the_next(kafka, singles):
    kafka.create_topic("refused", configs={"max.message.bytes": 1000})
    with sync(kafka) as producer:
        producer.send(KeyedMessage("refused", b"0"))
        with pytest.raises(ApiError) as refusal:
            producer.send(KeyedMessage("refused", bytes(2_000)))
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        producer.send(KeyedMessage("refused", b"2"))
    assert len(singles) == 2
    assert values(kafka, "refused") == [b"0", b"2"]


def test_a_broker_that_does_not_answer_ends_a_message_at_its_limit(kafka, singles):
    kafka.create_topic("slow")
    with sync(kafka) as producer:
        producer.send(KeyedMessage("slow", b"0"))
        producer._client.core._wire._topic("slow")._producer._timeout_ms = 50
        with (
            kafka.inject_latency("Produce", 60_000),
            pytest.raises(TimedOutError, match=r"did not answer Produce in time \(tried for"),
        ):
            producer.send(KeyedMessage("slow", b"1"))
    assert len(singles) == 1


@pytest.mark.parametrize("handled", [False, True], ids=["not written", "written"])
def test_messages_after_one_of_unknown_outcome_are_written(kafka, singles, handled):
    kafka.create_topic(topic := f"unknown-{handled}")
    with sync(kafka) as producer:
        producer.send(KeyedMessage(topic, b"0"))
        inner = producer._client.core._wire._topic(topic)._producer
        limit_ms, inner._timeout_ms = inner._timeout_ms, 300
        with (
            kafka.inject_disconnect("Produce", handled=handled, times=None) as fault,
            pytest.raises(KctlError),
        ):
            producer.send(KeyedMessage(topic, b"1"))
        assert fault.hits
        inner._timeout_ms = limit_ms
        for n in range(2, 5):
            producer.send(KeyedMessage(topic, b"%d" % n))
    assert singles
    assert values(kafka, topic) == [b"0", *[b"1"] * handled, b"2", b"3", b"4"]


def test_a_message_that_cannot_be_encoded_fails_alone(kafka, singles):
    kafka.create_topic("bad")
    with sync(kafka) as producer:
        producer.send(KeyedMessage("bad", b"0"))
        with pytest.raises(KctlError, match="is not bytes"):
            producer.send(KeyedMessage("bad", 17))
        with pytest.raises(UsageError, match="which has 1"):
            producer.send(KeyedMessage("bad", b"1", partition=5))
        producer.send(KeyedMessage("bad", b"2"))
    assert values(kafka, "bad") == [b"0", b"2"]
    assert singles == [0]


def test_threads_that_share_a_producer_keep_their_orders(kafka, singles):
    kafka.create_topic("shared")
    with Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "producer.type": "sync"},
        encoder=StringEncoder(),
    ) as producer:

        def write(name):
            for n in range(60):
                producer.send(KeyedMessage("shared", f"{name} {n}"))

        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for it in threads:
            it.start()
        for it in threads:
            it.join(END_S)
    found = [it.decode().split() for it in values(kafka, "shared")]
    for name in "abc":
        assert [int(n) for who, n in found if who == name] == list(range(60))
    assert singles


def test_restarts_of_the_broker_lose_and_repeat_nothing(singles):
    with KafkaBroker(topics=["lasting"]) as broker:
        with sync(broker) as producer:
            for n in range(30):
                producer.send(KeyedMessage("lasting", b"%d" % n))
                if n % 10 == 5:
                    broker.restart()
        assert values(broker, "lasting") == [b"%d" % n for n in range(30)]
        (first, *_) = batches(b"".join(_stored(broker)))
    assert first.producer_id >= 0
    assert singles


def _stored(broker):
    return [it.read_bytes() for it in sorted((broker.log_directory / "lasting-0").glob("*.log"))]
