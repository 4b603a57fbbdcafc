"""Transactional requests over plain sockets: kctl answers as Apache Kafka 2.7.2 does, in every
version; late requests (KAFKA-17754) do no harm."""

import threading

import pytest

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.records.memory_records import batches
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.transaction_requests import (
    RawProducer,
    end_offset,
    fetch,
    find_coordinators,
    wait_until_stable,
)

NONE = ErrorCode.NONE
REFUSED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@pytest.fixture
def new_producer():
    """Create producers, and close their connections after the test."""
    made = []

    def make(address, transactional_id):
        made.append(RawProducer(address, transactional_id))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


@pytest.fixture
def place(bootstrap, topic):
    """(address, topic, transactional id, group) on a broker that is ready for them."""
    with BrokerClient(bootstrap) as client:
        new = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[new])).topics[0].error_code == 0
    find_coordinators(bootstrap, topic, topic)
    return bootstrap, topic


def values(answer):
    return [
        (record.offset, bytes(record.value).decode())
        for batch in batches(answer.record_set or b"")
        if not batch.is_control
        for record in batch.records()
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_in_every_version(place, version, new_producer):
    address, topic = place
    producer = new_producer(address, topic)
    assert producer.init(version=min(version, 4)) is NONE
    assert producer.add(topic, 0, 1, version=version) == [NONE, NONE]
    assert producer.produce(topic, "a", "b") is NONE
    assert producer.add_offsets(topic, version=version) is NONE
    assert producer.commit_offset(topic, topic, 7, version=version) is NONE
    assert producer.end(commit=True, version=version) is NONE
    # Asked again: as if the answer had been lost.
    assert producer.end(commit=True, version=version) is NONE
    assert producer.end(commit=False, version=version) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_zombie_hears_what_its_version_knows(place, version, new_producer):
    address, topic = place
    zombie = new_producer(address, topic)
    zombie.init()
    assert new_producer(address, topic).init() is NONE
    expected = REFUSED[version >= 2]
    assert zombie.add(topic, 0, version=version) == [expected]
    assert zombie.add_offsets(topic, version=version) is expected
    assert zombie.end(commit=True, version=version) is expected


@pytest.mark.parametrize("version", [3, 4])
def test_a_producer_continues_with_the_next_epoch(place, version, new_producer):
    address, topic = place
    producer = new_producer(address, topic)
    assert producer.init(version=version) is NONE
    first = (producer.producer_id, producer.epoch)
    assert producer.init(version=version, goes_on=True) is NONE
    assert (producer.producer_id, producer.epoch) == (first[0], first[1] + 1)
    producer.epoch = first[1]
    assert producer.init(version=version, goes_on=True) is NONE  # its answer was lost
    assert producer.epoch == first[1] + 1
    assert new_producer(address, topic).init() is NONE
    assert producer.init(version=version, goes_on=True) is REFUSED[version >= 4]


def test_errors_of_requests_that_do_not_fit(place, new_producer):
    address, topic = place
    producer = new_producer(address, topic)
    assert producer.init(timeout_ms=0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert producer.init(timeout_ms=900_001) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert producer.init() is NONE
    assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    assert producer.add("no-such-topic", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    producer.producer_id += 1
    assert producer.add(topic, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producer.end(commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = new_producer(address, "")
    assert producer.init() is ErrorCode.INVALID_REQUEST
    stranger = new_producer(address, topic)
    stranger.producer_id, stranger.epoch = producer.producer_id - 1, 0
    refused = stranger.commit_offset(topic, topic, 1, generation_id=3, member_id="m")
    assert refused is ErrorCode.UNKNOWN_MEMBER_ID


def test_readers_of_committed_data_see_up_to_the_first_open_transaction(place, new_producer):
    address, topic = place
    slow, fast = new_producer(address, f"{topic}-slow"), new_producer(address, f"{topic}-fast")
    for producer, words in ((slow, "ab"), (fast, "cd")):
        assert producer.init() is NONE
        assert producer.add(topic, 0) == [NONE]
        assert producer.produce(topic, *words) is NONE
    assert fast.end(commit=True) is NONE
    with BrokerClient(address) as reader:
        assert end_offset(reader, topic, committed=True) == 0
        assert values(fetch(reader, topic, committed=True)) == []
        assert [word for _, word in values(fetch(reader, topic, committed=False))] == list("abcd")
        slow_end = slow.end(commit=False)
        assert slow_end is NONE
        wait_until_stable(reader, topic, 6)
        waits = fetch(reader, topic, committed=True)
        assert [word for _, word in values(waits)] == list("abcd")
        aborted = [(it.producer_id, it.first_offset) for it in waits.aborted_transactions]
        assert aborted == [(slow.producer_id, 0)]


def test_a_waiting_reader_is_woken_by_the_marker(place, new_producer):
    address, topic = place
    producer = new_producer(address, topic)
    producer.init()
    producer.add(topic, 0)
    producer.produce(topic, "a")
    found = []

    def read():
        with BrokerClient(address) as reader:
            # Twice as long as the test waits.
            found.append(fetch(reader, topic, committed=True, max_wait_ms=40_000))

    reader = threading.Thread(target=read)
    reader.start()
    assert producer.end(commit=True) is NONE
    reader.join(120)
    assert not reader.is_alive()
    assert values(found[0]) == [(0, "a")]


# KAFKA-17754: on kctl only; Apache Kafka 2.7.2 does what the late request says.


@pytest.fixture
def own_place(kctl_broker, topic):
    address = kctl_broker.address
    with BrokerClient(address) as client:
        new = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        assert client.ask(CreateTopicsRequest(topics=[new])).topics[0].error_code == 0
    find_coordinators(address, topic, topic)
    return address, topic


@pytest.mark.parametrize("late_commit", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(own_place, late_commit, new_producer):
    address, topic = own_place
    producer = new_producer(address, topic)
    producer.init()
    producer.add(topic, 0)
    producer.produce(topic, "first")
    late = producer.reconnect()  # the end over the old connection takes its time
    assert producer.end(commit=late_commit) is NONE
    assert producer.add(topic, 0) == [NONE]
    assert producer.produce(topic, "second") is NONE
    late.send(producer.end_request(commit=late_commit))
    with pytest.raises(ConnectionError):
        late.receive()
    assert producer.end(commit=not late_commit) is NONE
    with BrokerClient(address) as reader:
        wait_until_stable(reader, topic, 4)
        answer = fetch(reader, topic, committed=True)
    aborted = [it.first_offset for it in answer.aborted_transactions]
    assert aborted == [2 if late_commit else 0]


def test_late_partitions_and_offsets_leave_nothing_hanging(own_place, new_producer):
    address, topic = own_place
    producer = new_producer(address, topic)
    producer.init()
    producer.add(topic, 0)
    producer.produce(topic, "first")
    assert producer.add_offsets(topic) is NONE
    assert producer.commit_offset(topic, topic, 1) is NONE
    late = producer.reconnect()
    assert producer.commit_offset(topic, topic, 1) is NONE
    assert producer.end(commit=True) is NONE
    late.send(producer.add_request(topic, 1))
    with pytest.raises(ConnectionError):
        late.receive()
    # Had it been carried out, a transaction would be open now.
    assert producer.end(commit=True) is NONE


def test_a_transaction_that_hangs_is_aborted(tmp_path, topic, new_producer):
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms=50"
    with KctlBroker(tmp_path, "-c", interval, "--seed-topic", f"{topic}:1") as broker:
        find_coordinators(broker.address, topic, topic)
        producer = new_producer(broker.address, topic)
        producer.init(timeout_ms=100)
        producer.add(topic, 0)
        producer.produce(topic, "never")
        with BrokerClient(broker.address) as reader:
            answer = fetch(reader, topic, committed=True, max_wait_ms=20_000)
        assert [it.first_offset for it in answer.aborted_transactions] == [0]
        assert producer.end(commit=True) is ErrorCode.PRODUCER_FENCED
        assert producer.produce(topic, "too late") is ErrorCode.INVALID_PRODUCER_EPOCH
