"""KafkaBroker as its users see it, through real clients."""

import asyncio
import threading
import time
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import IncompatibleBrokerVersion

from kctl.cli.app import run as kctl
from kctl.errors import KctlError, UsageError
from kctl.protocol.error_codes import ApiError
from kctl.runtime.real.loop_thread import LoopThread
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker

TIMEOUT_S = 120

orders = pytest.mark.kafka_topics("orders:3")


def producer(broker, **settings):
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **names})


def send(broker, value, topic="orders", **settings):
    """Send one record and return the producer's error, or None if it was delivered."""
    outcomes = []
    client = producer(broker, **settings)
    client.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    client.flush(TIMEOUT_S)
    [outcome] = outcomes
    return outcome


def reader(broker, **settings):
    """A consumer of kafka-python, closed at the end of its block."""
    return closing(
        KafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            **settings,
        )
    )


def values(broker, topic="orders"):
    return [record.value for record in broker.records(topic)]


# --- records --------------------------------------------------------------------------------


@orders
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_any_compression_are_read(kafka_broker, codec):
    client = producer(kafka_broker, compression_type=codec, linger_ms=50)
    for number in range(50):
        client.produce("orders", b"v%d" % number, key=b"k", headers={"n": b"%d" % number})
    client.flush(TIMEOUT_S)
    found = kafka_broker.records("orders")
    assert [(it.value, it.headers) for it in found] == [
        (b"v%d" % n, (("n", b"%d" % n),)) for n in range(50)
    ]
    assert [it.offset for it in found] == list(range(50))
    assert {it.partition for it in found} == {found[0].partition}
    assert kafka_broker.records("orders", partition=found[0].partition) == found
    assert kafka_broker.records("orders", partition=(found[0].partition + 1) % 3) == []


@orders
def test_the_partition_of_a_key_is_the_one_that_clients_choose(kafka_broker):
    client = producer(kafka_broker, partitioner="murmur2_random")
    for number in range(20):
        client.produce("orders", b"theirs", key=b"%d" % number)
    client.flush(TIMEOUT_S)
    theirs = {it.key: it.partition for it in kafka_broker.records("orders")}
    ours = {key: kafka_broker.produce("orders", "ours", key=key).partition for key in theirs}
    assert ours == theirs


@orders
def test_a_written_record_is_returned_as_stored(kafka_broker):
    written = kafka_broker.produce(
        "orders", None, key="k", partition=1, headers=[("h", None)], timestamp=1_000
    )
    assert kafka_broker.records("orders") == [written]
    assert (written.partition, written.timestamp, written.value) == (1, 1_000, None)


def test_missing_topics_are_named(kafka_broker):
    for ask in (kafka_broker.records, lambda topic: kafka_broker.produce(topic, "v")):
        with pytest.raises(UsageError, match="topic nowhere does not exist"):
            ask("nowhere")
    kafka_broker.create_topic("orders", 3)
    with pytest.raises(UsageError, match="no partition 7"):
        kafka_broker.produce("orders", "v", partition=7)
    with pytest.raises(ApiError, match="already exists"):
        kafka_broker.create_topic("orders")


def test_a_topic_takes_its_configs(kafka_broker):
    kafka_broker.create_topic("small", configs={"max.message.bytes": 100})
    assert send(kafka_broker, b"x" * 200, "small").code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert kafka_broker.topics == {"small": 1}


# --- assert_produces ------------------------------------------------------------------------


@orders
def test_records_that_come_late_are_waited_for(kafka_broker):
    kafka_broker.produce("orders", "before")
    come = threading.Event()

    def produce_later():
        come.wait()
        kafka_broker.produce("orders", "after")

    thread = threading.Thread(target=produce_later)
    thread.start()
    with kafka_broker.assert_produces("orders", count=1) as records:
        kafka_broker.inject_latency("Produce", 0)
        come.set()
    thread.join()
    assert [it.value for it in records] == [b"after"]


@orders
@pytest.mark.parametrize(
    ("count", "sent", "words"),
    [
        (2, 1, r"expected 2 records in 'orders' within 0.05 s, found 1\n.*value=b'0'"),
        (1, 2, r"expected 1 record in 'orders', found 2\n"),
        (0, 1, r"expected 0 records in 'orders', found 1\n"),
        (None, 0, r"expected records in 'orders' within 0.05 s, found 0$"),
    ],
)
def test_the_wrong_number_of_records_fails_with_what_was_found(kafka_broker, count, sent, words):
    def story():
        with kafka_broker.assert_produces("orders", count=count, timeout=0.05):
            for number in range(sent):
                kafka_broker.produce("orders", str(number))

    with pytest.raises(AssertionError, match=words):
        story()


def test_a_topic_that_the_block_creates_counts(kafka_broker):
    with kafka_broker.assert_produces("new", count=1) as records:
        assert send(kafka_broker, b"first", "new") is None
    assert records[0].value == b"first"


@orders
def test_an_error_of_the_block_takes_precedence(kafka_broker):
    with pytest.raises(ZeroDivisionError), kafka_broker.assert_produces("orders", timeout=60):
        raise ZeroDivisionError


@orders
def test_in_a_coroutine_the_loop_keeps_running(kafka_broker):
    async def story():
        async with AIOKafkaProducer(
            bootstrap_servers=kafka_broker.bootstrap_servers, linger_ms=100
        ) as client:
            async with kafka_broker.assert_produces("orders", count=1) as records:
                await client.send("orders", b"tea")
            assert records[0].value == b"tea"
            with pytest.raises(AssertionError, match="found 0"):
                async with kafka_broker.assert_produces("orders", timeout=0.05):
                    pass

    asyncio.run(story())


@orders
def test_blocking_a_coroutine_is_rejected(kafka_broker):
    async def story():
        with (
            pytest.raises(UsageError, match="would block the event loop") as refused,
            kafka_broker.assert_produces("orders"),
        ):
            pass
        # Notes are shown in tracebacks.
        assert refused.value.__notes__[0].startswith("use async with")

    asyncio.run(story())


# --- faults ---------------------------------------------------------------------------------


@orders
def test_a_retriable_error_is_retried_by_the_client(kafka_broker):
    with kafka_broker.inject_error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as injected:
        assert send(kafka_broker, b"tea", retry_backoff_ms=10) is None
    assert injected.hits == 2
    assert kafka_broker.request_count("Produce") == 3
    assert values(kafka_broker) == [b"tea"]


@orders
def test_a_fault_ends_with_its_block(kafka_broker):
    with kafka_broker.inject_error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None):
        for _ in range(2):
            refused = send(kafka_broker, b"tea")
            assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert send(kafka_broker, b"tea") is None


@orders
def test_clear_faults_ends_all(kafka_broker):
    kafka_broker.inject_error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
    kafka_broker.inject_disconnect("Metadata", times=None)
    kafka_broker.clear_faults()
    assert send(kafka_broker, b"tea") is None


def test_other_apis_are_not_affected(kafka_broker):
    injected = kafka_broker.inject_error("CreateTopics", "POLICY_VIOLATION")
    assert send(kafka_broker, b"tea", "auto") is None
    assert injected.hits == 0


@orders
def test_a_rejected_fetch_is_rejected_for_every_partition(kafka_broker):
    kafka_broker.produce("orders", "tea", partition=0)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": "shop",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(TIMEOUT_S).value() == b"tea"
    kafka_broker.inject_error("Fetch", "TOPIC_AUTHORIZATION_FAILED")
    message = consumer.poll(TIMEOUT_S)
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


@orders
def test_a_fetch_within_a_session_is_rejected_too(kafka_broker):
    with reader(kafka_broker, fetch_max_wait_ms=50) as consumer:
        kafka_broker.produce("orders", "tea", partition=0)
        assert next(consumer).value == b"tea"
        consumer.poll(timeout_ms=200)
        injected = kafka_broker.inject_error("Fetch", "NOT_LEADER_OR_FOLLOWER")
        deadline = time.monotonic() + TIMEOUT_S
        while not injected.hits and time.monotonic() < deadline:
            # The fetch that is already waiting does not meet the fault.
            consumer.poll(timeout_ms=50)
        kafka_broker.produce("orders", "milk", partition=0)
        assert next(consumer).value == b"milk"
        assert injected.hits == 1


@orders
def test_rejected_metadata_still_name_the_broker(kafka_broker):
    kafka_broker.inject_error("Metadata", "TOPIC_AUTHORIZATION_FAILED", times=None)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0})
    metadata = admin.list_topics("orders", timeout=TIMEOUT_S)
    assert len(metadata.brokers) == 1
    assert metadata.topics["orders"].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.slow
@orders
def test_latency_makes_the_client_time_out_but_the_record_arrives(kafka_broker):
    outcomes = []
    client = producer(kafka_broker, message_timeout_ms=1_000)
    # It is connected before the time limit matters.
    while outcomes[-1:] != [None]:
        client.produce("orders", b"milk", on_delivery=lambda error, _: outcomes.append(error))
        client.flush(TIMEOUT_S)
    kafka_broker.inject_latency("Produce", 2_500)
    with kafka_broker.assert_produces("orders", count=1, timeout=TIMEOUT_S):
        client.produce("orders", b"tea", on_delivery=lambda error, _: outcomes.append(error))
        client.flush(TIMEOUT_S)
    assert outcomes[-1].code() == KafkaError._MSG_TIMED_OUT


@orders
def test_latency_and_an_error_meet_the_same_request(kafka_broker):
    late = kafka_broker.inject_latency("Produce", 10)
    refused = kafka_broker.inject_error("Produce", "TOPIC_AUTHORIZATION_FAILED")
    outcome = send(kafka_broker, b"tea")
    assert outcome.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert (late.hits, refused.hits) == (1, 1)


@orders
def test_a_broker_that_stops_closes_delayed_requests(kafka_broker):
    kafka_broker.inject_latency("Produce", 600_000, times=1)
    client = producer(kafka_broker, retry_backoff_ms=10, reconnect_backoff_ms=10)
    client.produce("orders", b"tea")
    while not kafka_broker.request_count("Produce"):
        client.poll(0.01)
    kafka_broker.restart()
    assert client.flush(TIMEOUT_S) == 0
    assert kafka_broker.request_count("Produce") == 2
    # How long the loop was busy depends on what else the machine does.
    lines = [line for line in kafka_broker.log_lines if "The event loop was busy" not in line]
    assert lines == []


@orders
@pytest.mark.parametrize(("handled", "left"), [(False, 1), (True, 2)])
def test_a_disconnect_before_or_after_the_record_is_written(kafka_broker, handled, left):
    injected = kafka_broker.inject_disconnect("Produce", handled=handled)
    assert send(kafka_broker, b"tea", retry_backoff_ms=10) is None
    assert injected.hits == 1
    assert len(values(kafka_broker)) == left, "without idempotence a retry is a duplicate"


def test_names_that_kafka_does_not_have_are_rejected(kafka_broker):
    with pytest.raises(UsageError, match="no API named Prodce"):
        kafka_broker.inject_error("Prodce", 1)
    with pytest.raises(UsageError, match="no error named NOT_A_LEADER"):
        kafka_broker.inject_error("Produce", "NOT_A_LEADER")
    with pytest.raises(UsageError, match="times=0"):
        kafka_broker.inject_disconnect("LIST_OFFSETS", times=0)
    with pytest.raises(UsageError, match="latency_ms=-5"):
        kafka_broker.inject_latency("listoffsets", -5)


# --- life -----------------------------------------------------------------------------------


@orders
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_restart_keeps_port_records_and_clients(kafka_broker, clean):
    address = kafka_broker.bootstrap_servers
    client = producer(kafka_broker, retry_backoff_ms=10, reconnect_backoff_ms=10)
    client.produce("orders", b"before")
    client.flush(TIMEOUT_S)
    kafka_broker.restart(clean=clean)
    client.produce("orders", b"after")
    assert client.flush(TIMEOUT_S) == 0
    assert kafka_broker.bootstrap_servers == address
    assert sorted(values(kafka_broker)) == [b"after", b"before"]


@orders
def test_a_killed_broker_recovers(kafka_broker):
    kafka_broker.produce("orders", "tea")
    marker = ".kafka_cleanshutdown"
    seen = []
    copy_of_data = kafka_broker._copy_of_data

    def look():
        image = copy_of_data()
        seen.append((image / "logs" / marker).exists())
        return image

    kafka_broker._copy_of_data = look
    kafka_broker.restart(clean=False)
    assert seen == [False]
    assert values(kafka_broker) == [b"tea"]


@orders
def test_a_killed_broker_acknowledges_only_what_it_recovers(kafka_broker, monkeypatch):
    """A client and the test itself write when the data are copied and the broker still runs."""
    send(kafka_broker, b"before")
    acknowledged = []
    client = producer(kafka_broker, **{"message.timeout.ms": 500})
    stop = kafka_broker._stop

    def write_and_stop():
        client.produce(
            "orders", b"late", on_delivery=lambda error, _: acknowledged.append(error is None)
        )
        client.flush(TIMEOUT_S)
        with pytest.raises(UsageError, match="not running"):
            kafka_broker.produce("orders", "later")
        stop()

    with monkeypatch.context() as patched:
        patched.setattr(kafka_broker, "_stop", write_and_stop)
        kafka_broker.restart(clean=False)
    assert acknowledged == [False]
    kafka_broker.produce("orders", "after")
    assert sorted(values(kafka_broker)) == [b"after", b"before"]


@orders
def test_restore_brings_back_records_topics_and_offsets(kafka_broker):
    kafka_broker.produce("orders", "tea")

    def group(**settings):
        return Consumer(
            {
                "bootstrap.servers": kafka_broker.bootstrap_servers,
                "group.id": "shop",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )

    consumer = group()
    consumer.subscribe(["orders"])
    message = consumer.poll(TIMEOUT_S)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    snapshot = kafka_broker.snapshot()
    kafka_broker.produce("orders", "milk")
    kafka_broker.create_topic("later")
    for _ in range(2):
        kafka_broker.restore(snapshot)
        assert values(kafka_broker) == [b"tea"]
        assert kafka_broker.topics == {"orders": 3}
        kafka_broker.produce("orders", "sugar", partition=message.partition())
        consumer = group()
        consumer.subscribe(["orders"])
        assert consumer.poll(TIMEOUT_S).value() == b"sugar"
        consumer.close()


def test_a_snapshot_is_removed_with_its_broker(kafka_broker):
    with KafkaBroker(topics=["theirs"]) as other:
        snapshot = other.snapshot()
        kafka_broker.restore(snapshot)
        assert kafka_broker.topics == {"theirs": 1}
    with pytest.raises(UsageError, match="snapshot no longer exists"):
        kafka_broker.restore(snapshot)


def test_nothing_is_left_behind():
    threads = threading.active_count()
    broker = KafkaBroker(topics=["orders"]).start()
    home = broker.log_directory.parents[1]
    broker.produce("orders", "tea")
    assert (broker.log_directory / "orders-0").is_dir()
    broker.stop()
    broker.stop()
    assert not home.exists()
    assert threading.active_count() == threads
    for ask in (lambda: broker.bootstrap_servers, broker.restart, lambda: broker.records("x")):
        with pytest.raises(UsageError, match="is not running"):
            ask()


def test_a_broker_that_cannot_start_leaves_nothing_behind():
    threads = threading.active_count()
    with pytest.raises(KctlError):
        KafkaBroker(topics=["not/a/name"]).start()
    assert threading.active_count() == threads


def test_invalid_arguments_are_rejected_before_anything_starts():
    for settings, words in [
        ({"listeners": "PLAINTEXT://:9092"}, "listeners is set by KafkaBroker"),
        ({"no.such.setting": 1}, "no.such.setting"),
        ({"num.partitions": "many"}, "num.partitions"),
    ]:
        with pytest.raises(UsageError, match=words):
            KafkaBroker(settings=settings)
    for topics, words in [("orders:3", "is a string"), (["orders:0"], "orders:0"), ([":1"], ":1")]:
        with pytest.raises(UsageError, match=words):
            KafkaBroker(topics=topics)


def test_a_running_broker_is_not_started_again(kafka_broker):
    with pytest.raises(UsageError, match="is already running"):
        kafka_broker.start()


# --- older releases -------------------------------------------------------------------------


@orders
@pytest.mark.parametrize("release", ["0.10.2", "1.1", "2.0", "2.4", "2.7"])
def test_clients_work_with_a_broker_that_serves_as_another_release(request, release):
    with KafkaBroker(topics=["orders:3"], kctl_as_version=release) as broker:
        assert send(broker, b"tea") is None
        with reader(broker, group_id="shop") as consumer:
            assert next(consumer).value == b"tea"
            wanted = tuple(map(int, release.split(".")))
            assert consumer.config["api_version"][: len(wanted)] == wanted


def test_apis_newer_than_a_release_are_not_served():
    with (
        KafkaBroker(kctl_as_version="0.10.2") as broker,
        closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin,
        pytest.raises(IncompatibleBrokerVersion, match="DeleteGroups"),
    ):
        admin.delete_groups(["g"])


# --- the loop's thread ----------------------------------------------------------------------


def test_the_loop_does_not_wait_for_itself():
    loop = LoopThread("test", NullTrace())
    with pytest.raises(UsageError, match="own thread"):
        loop.call(lambda: loop.call(len, "", timeout_s=1), timeout_s=TIMEOUT_S)
    with pytest.raises(KctlError, match=r"within 0\.01 s"):
        loop.call(loop.runtime.scheduler.future, timeout_s=0.01)
    loop.close(TIMEOUT_S)
    loop.close(TIMEOUT_S)
    with pytest.raises(UsageError, match="closed"):
        loop.call(len, "", timeout_s=1)


def test_a_topic_can_be_created_again_right_after_it_was_deleted(kafka_broker):
    for _ in range(5):
        kafka_broker.create_topic("again", partitions=50)
        assert kctl(["topic", "delete", "again", "-y", "-b", kafka_broker.bootstrap_servers]) == 0
