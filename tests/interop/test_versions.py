"""Every version of the APIs that old clients speak: the same requests, built by hand, to kctl and to
Apache Kafka 2.7.2, whose answers are to be the same in every field. Without Apache Kafka a second
kctl takes its place, so that what the tests say of the answers is checked."""

import re
import socket
import time
import uuid

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from tests.interop.conftest import SETTINGS
from tests.support.broker_client import Twins, assert_same, differences, plain
from tests.support.kctl_process import KctlBroker

T0_MS = 1_600_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = [0, GZIP, SNAPPY, LZ4]
HIGHEST = {api: range(api.max_version + 1) for api in ApiKey}


@pytest.fixture(scope="module")
def second_kctl(tmp_path_factory):
    with KctlBroker(tmp_path_factory.mktemp("second"), *SETTINGS) as broker:
        yield broker.address


@pytest.fixture(
    params=["second_kctl", pytest.param("apache_broker", marks=pytest.mark.kafka)],
    ids=["kctl", "apache"],
    scope="module",
)
def twins(request, kctl_broker):
    pair = Twins(kctl_broker.address, request.getfixturevalue(request.param))
    yield pair
    pair.close()


@pytest.fixture
def new_topic(twins):
    """Makes topics on both brokers; they go when the test is over."""
    made = []

    def make(partitions=1, **configs):
        name = f"t-{uuid.uuid4().hex[:12]}"
        made.append(name)
        answer = twins.ask(
            create_topics.CreateTopicsRequest(
                topics=[
                    create_topics.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            create_topics.CreateableTopicConfig(
                                name=key.replace("_", "."), value=value
                            )
                            for key, value in configs.items()
                        ],
                    )
                ]
            ),
            4,
        )
        assert answer["topics"][0]["error_code"] == 0, answer
        return name

    yield make
    twins.ask(delete_topics.DeleteTopicsRequest(topic_names=made, timeout_ms=20_000), 3)


def records(magic, count=3, codec=0, size=0, **options):
    maker = RecordBatchBuilder if magic == 2 else MessageSetBuilder
    if magic < 2:
        options["magic"] = magic
    builder = maker(compression_type=codec, **options)
    for n in range(count):
        key = None if n % 3 == 2 else b"key-%d" % n
        headers = [("h", b"x"), ("n", None)] if magic == 2 and n % 2 else []
        builder.append(
            timestamp=T0_MS + n * 10 if magic else -1,
            key=key,
            value=b"value-%d" % n + b"." * size,
            headers=headers,
        )
    return bytes(builder.build())


def produce_request(topic, *record_sets, acks=1):
    """Record sets for partitions 0, 1, ..."""
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topics=[
            produce.TopicProduceData(
                name=topic,
                partitions=[
                    produce.PartitionProduceData(partition_index=number, records=record_set)
                    for number, record_set in enumerate(record_sets)
                ],
            )
        ],
    )


def fetch_request(topic, *offsets, max_bytes=1 << 20, partition_max_bytes=1 << 20, **fields):
    """From offsets of partitions 0, 1, ..."""
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            fetch.FetchTopic(
                topic=topic,
                partitions=[
                    fetch.FetchPartition(
                        partition=number,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for number, offset in enumerate(offsets)
                ],
            )
        ],
        **fields,
    )


# --- Produce


def ask_produce(twins, version, topic, *record_sets, transactional_id=None, **options):
    request = produce_request(topic, *record_sets, **options)
    if version >= 3:
        request.transactional_id = transactional_id
    return twins.ask(request, version, but=comparable_produce)


def comparable_produce(answer):
    """Whether the broker gave a time, not which. Where Apache Kafka gives an error without words,
    kctl has some; what the range of good timestamps was is a matter of milliseconds."""
    for topic in answer["responses"] if answer else ():
        for partition in topic["partitions"]:
            partition["log_append_time_ms"] = partition["log_append_time_ms"] > 0
            if not partition["record_errors"]:
                partition["error_message"] = None
            for error in partition["record_errors"]:
                message = error["batch_index_error_message"]
                error["batch_index_error_message"] = re.sub(r"\[\d+, \d+\]", "[range]", message)
    return answer


@pytest.mark.parametrize("version", HIGHEST[ApiKey.PRODUCE])
def test_produce_in_every_version_with_every_codec(twins, new_topic, version):
    topic = new_topic()
    count = 0
    for magic in (2,) if version >= 3 else (0, 1):
        for codec in CODECS + ([ZSTD] if version >= 7 else []):
            answer = ask_produce(twins, version, topic, records(magic, codec=codec))
            (partition,) = answer["responses"][0]["partitions"]
            assert (partition["error_code"], partition["base_offset"]) == (0, count)
            count += 3
    assert read(twins, topic, 10) == count


def read(twins, topic, version=10, offset=0, **options):
    """How many records both brokers have, stored in the same bytes."""
    found = twins.ask(fetch_request(topic, offset, **options), version, but=comparable)
    (partition,) = found["responses"][0]["partition_responses"]
    assert partition["error_code"] == 0
    return sum(len(batch["records"]) for batch in partition["record_set"])


def comparable(answer):
    """Record sets as the batches in them: compressed bytes may differ, what is in them not."""
    for topic in answer["responses"] if answer else ():
        for partition in topic["partition_responses"]:
            data = partition["record_set"]
            if data:
                partition["record_set"] = [describe_batch(batch) for batch in batches(data)]
    return answer


def describe_batch(batch):
    names = (
        "magic", "base_offset", "last_offset", "partition_leader_epoch", "attributes",
        "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    )  # fmt: skip
    described = {name: getattr(batch, name, None) for name in names}
    described["records"] = list(batch.records())
    return described


@pytest.mark.parametrize("format_version", ["0.9.0", "0.10.0", "2.7-IV2"])
@pytest.mark.parametrize("compression", ["producer", "gzip", "lz4", "uncompressed"])
def test_topics_of_every_format_take_record_sets_of_every_magic(
    twins, new_topic, format_version, compression
):
    topic = new_topic(message_format_version=format_version, compression_type=compression)
    count = 0
    for version, magic in ((2, 0), (2, 1), (8, 2)):
        for codec in (0, GZIP):
            data = records(magic, codec=codec)
            answer = ask_produce(twins, version, topic, data)
            error = answer["responses"][0]["partitions"][0]["error_code"]
            count += 3 if not error else 0
    assert count
    for version in range(4, 13):
        assert read(twins, topic, version) == count
    for version in range(4):
        assert read_down_converted(twins, topic, version) == count


def read_down_converted(twins, topic, version, offset=0):
    """How many records kctl gives. Apache Kafka cuts what it converted to the size that it had
    before, kctl gives all of it: so Apache Kafka's answer is what kctl's begins with."""
    ours, theirs = map(comparable, twins.both(fetch_request(topic, offset), version))
    (ours,), (theirs,) = (
        answer["responses"][0]["partition_responses"] for answer in (ours, theirs)
    )
    assert theirs["record_set"]
    assert differences(ours["record_set"][: len(theirs["record_set"])], theirs["record_set"]) == []
    assert differences({**ours, "record_set": None}, {**theirs, "record_set": None}) == []
    return sum(len(batch["records"]) for batch in ours["record_set"])


def partition_answers(twins, version, topic, *record_sets, **options):
    answer = ask_produce(twins, version, topic, *record_sets, **options)
    return answer["responses"][0]["partitions"]


def error_of(twins, version, topic, record_set, **options):
    (partition,) = partition_answers(twins, version, topic, record_set, **options)
    return partition["error_code"]


def test_produce_tells_errors_as_its_version_knows_them(twins, new_topic):
    topic = new_topic()
    for version in HIGHEST[ApiKey.PRODUCE]:
        data = records(2 if version >= 3 else 1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error_of(twins, version, "no-such-topic", data) == unknown
        assert error_of(twins, version, topic, data, acks=2) == ErrorCode.INVALID_REQUIRED_ACKS
        assert error_of(twins, version, "__consumer_offsets", data) in (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        first, second = partition_answers(twins, version, topic, data, data)
        assert (first["error_code"], second["error_code"]) == (0, unknown)
        damaged = bytearray(data)
        damaged[-1] ^= 1
        assert error_of(twins, version, topic, bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE


def test_newer_batches_in_older_produce_requests(twins, new_topic):
    topic = new_topic()
    for version in range(3):
        assert error_of(twins, version, topic, records(2)) == 0
        assert error_of(twins, version, topic, records(2, codec=GZIP)) == 0
    for version in range(3, 9):
        assert error_of(twins, version, topic, records(1)) == ErrorCode.INVALID_RECORD
        error = error_of(twins, version, topic, records(2) + records(2))
        assert error == ErrorCode.INVALID_RECORD
        expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0
        assert error_of(twins, version, topic, records(2, codec=ZSTD)) == expected
    assert read(twins, topic) == 3 * (6 + 2)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks(twins, new_topic, acks):
    topic = new_topic()
    for version in HIGHEST[ApiKey.PRODUCE]:
        request = produce_request(topic, records(2 if version >= 3 else 1), acks=acks)
        if version >= 3:
            request.transactional_id = None
        for client in twins.clients:
            client.send(request, version, is_answered=acks != 0)
            if acks:
                client.receive()
        assert read(twins, topic, offset=3 * version) == 3


@pytest.mark.parametrize("version", [2, 7, 8])
def test_records_that_a_topic_refuses(twins, new_topic, version):
    magic = 2 if version >= 3 else 1
    small = new_topic(max_message_bytes="150")
    assert error_of(twins, version, small, records(magic, size=200)) == ErrorCode.MESSAGE_TOO_LARGE
    compacted = new_topic(cleanup_policy="compact")
    assert error_of(twins, version, compacted, records(magic)) == ErrorCode.INVALID_RECORD
    assert error_of(twins, version, compacted, records(magic, count=2)) == 0
    old = new_topic(message_timestamp_difference_max_ms="1000")
    assert error_of(twins, version, old, records(magic)) == ErrorCode.INVALID_TIMESTAMP
    assert error_of(twins, version, old, records(magic, codec=GZIP)) == ErrorCode.INVALID_TIMESTAMP
    segment = new_topic(segment_bytes="200")
    expected = ErrorCode.RECORD_LIST_TOO_LARGE
    assert error_of(twins, version, segment, records(magic, size=200)) == expected
    control = records(2, count=1, is_control=True)
    assert error_of(twins, version, old, control) in (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.PRODUCE])
def test_log_append_time_is_the_brokers(twins, new_topic, version):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    (partition,) = partition_answers(twins, version, topic, records(2 if version >= 3 else 1))
    assert partition["log_append_time_ms"] is (version >= 2)
    (ours, theirs) = twins.both(fetch_request(topic, 0), 10)
    for answer in (ours, theirs):
        (partition,) = answer["responses"][0]["partition_responses"]
        (batch,) = batches(partition["record_set"])
        assert batch.timestamp_type == 1
        assert {record.timestamp for record in batch.records()} == {batch.max_timestamp}


def test_idempotent_producers(twins, new_topic):
    topic = new_topic()
    ids = []
    for client in twins.clients:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0
        )
        answers = [client.ask(request, version) for version in HIGHEST[ApiKey.INIT_PRODUCER_ID]]
        assert [answer.error_code for answer in answers] == [0] * 5
        assert {answer.producer_epoch for answer in answers} == {0}
        assert len({answer.producer_id for answer in answers}) == 5
        ids.append(answers[0].producer_id)

    def send(sequence, epoch=0, **options):
        answers = []
        for client, producer_id in zip(twins.clients, ids, strict=True):
            data = records(
                2, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options
            )
            request = produce_request(topic, data)
            request.transactional_id = None
            answers.append(comparable_produce(plain(client.ask(request, 8))))
        assert_same(*answers)
        (partition,) = answers[0]["responses"][0]["partitions"]
        return partition["error_code"], partition["base_offset"]

    assert send(0) == (0, 0)
    assert send(3) == (0, 3)
    assert send(0) == (0, 0)
    assert send(3) == (0, 3)
    assert send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    for sequence in range(6, 21, 3):
        assert send(sequence)[0] == 0
    assert send(0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, epoch=1) == (0, 21)
    assert send(3, epoch=0)[0] != 0
    assert send(5, epoch=2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(3, epoch=1, codec=GZIP) == (0, 24)


def test_an_open_transaction_holds_read_committed_back(twins, new_topic):
    topic = new_topic()
    assert error_of(twins, 8, topic, records(2)) == 0
    data = records(2, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
    for version in HIGHEST[ApiKey.PRODUCE]:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error_of(twins, version, topic, data) == refused
    assert error_of(twins, 8, topic, data, transactional_id="x") == 0
    assert error_of(twins, 8, topic, records(2)) == 0
    for version in range(4, 13):
        assert read(twins, topic, version) == 9
        assert read(twins, topic, version, isolation_level=1) == 3
    for version in range(2, 6):
        request = list_offsets_request(topic, -1)
        request.isolation_level = 1
        answer = twins.ask(request, version)
        assert answer["topics"][0]["partitions"][0]["offset"] == 3


# --- Fetch


def filled(twins, new_topic, count=4, **options):
    """A topic with `count` batches of three records."""
    topic = new_topic()
    for _ in range(count):
        assert error_of(twins, 8, topic, records(2, **options)) == 0
    return topic


@pytest.mark.parametrize("version", HIGHEST[ApiKey.FETCH])
def test_fetch_from_anywhere(twins, new_topic, version):
    for codec in (*CODECS, ZSTD):
        topic = filled(twins, new_topic, codec=codec)
        for offset in (0, 1, 5, 11, 12, 13, -1):
            request = fetch_request(topic, offset)
            ours, theirs = map(comparable, twins.both(request, version))
            (partition,) = theirs["responses"][0]["partition_responses"]
            if version < 4 and partition["record_set"]:
                read_down_converted(twins, topic, version, offset)
            else:
                assert_same(ours, theirs)
    for version in HIGHEST[ApiKey.FETCH]:
        twins.ask(fetch_request("no-such-topic", 0), version)
        twins.ask(fetch_request(topic, 12, 0), version)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.FETCH])
def test_fetch_limits(twins, new_topic, version):
    topic = filled(twins, new_topic, count=4, size=100)
    batch = len(records(2, size=100))
    for limit in (0, 1, 50, batch - 1, batch, batch + 1, 2 * batch, 3 * batch - 1):
        for options in ({"partition_max_bytes": limit}, {"max_bytes": limit}):
            ours, theirs = map(comparable, twins.both(fetch_request(topic, 0, **options), version))
            if version >= 4:
                assert_same(ours, theirs), (options, version)


def test_old_fetchers_get_what_comes_before_zstd(twins, new_topic):
    topic = new_topic()
    for codec in (0, GZIP, ZSTD, 0):
        assert error_of(twins, 8, topic, records(2, codec=codec)) == 0
    for version in range(4):
        # Apache Kafka converts on the way out, piece by piece.
        assert 3 <= read_down_converted(twins, topic, version) <= 6
    for version in range(10):
        answer = twins.ask(fetch_request(topic, 6), version, but=comparable)
        (partition,) = answer["responses"][0]["partition_responses"]
        expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 4 else 0
        assert partition["error_code"] == expected


def test_a_topic_may_refuse_old_fetchers(twins, new_topic):
    topic = new_topic(message_downconversion_enable="false")
    assert error_of(twins, 8, topic, records(2)) == 0
    zstd = new_topic(compression_type="zstd")
    assert error_of(twins, 8, zstd, records(2)) == 0
    for version in HIGHEST[ApiKey.FETCH]:
        for name in (topic, zstd):
            twins.ask(fetch_request(name, 0), version, but=comparable)


def test_fetch_sessions(twins, new_topic):
    topic = new_topic(3)
    assert error_of(twins, 8, topic, records(2)) == 0
    sessions = [0, 0]

    def ask(epoch, *offsets, version, forget=(), wrong_id=0):
        """Which partitions are told, with how many records."""
        answers = []
        for number, client in enumerate(twins.clients):
            request = fetch_request(topic, *offsets, session_epoch=epoch)
            request.session_id = sessions[number] + wrong_id
            if not offsets:
                request.topics = []
            if forget:
                request.forgotten_topics_data = [
                    fetch.ForgottenTopic(topic=topic, partitions=list(forget))
                ]
            answer = comparable(plain(client.ask(request, version)))
            sessions[number] = answer["session_id"] or sessions[number]
            answer["session_id"] = bool(answer["session_id"])
            answers.append(answer)
        assert_same(*answers)
        (answer, _) = answers
        return answer["error_code"], {
            partition["partition"]: len(partition["record_set"])
            for found in answer["responses"]
            for partition in found["partition_responses"]
        }

    for version in range(7, 13):
        sessions[:] = [0, 0]
        end = ask(-1, 0, version=version)[1][0]
        assert ask(0, 0, 0, 0, version=version) == (0, {0: end, 1: 0, 2: 0})
        assert ask(1, end * 3, version=version) == (0, {})
        assert ask(2, version=version) == (0, {})
        assert error_of(twins, 8, topic, records(2)) == 0
        assert ask(3, version=version) == (0, {0: 1})
        assert ask(4, 0, version=version, forget=[1])[1].keys() == {0}
        assert ask(9, version=version) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
        wrong = ask(5, version=version, wrong_id=1)
        assert wrong == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
        assert ask(5, -5, version=version)[0] == 0
        assert ask(-1, 0, version=version)[1].keys() == {0}
        assert ask(6, version=version) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
def test_leader_epochs_are_checked_where_requests_have_them(twins, new_topic, epoch):
    topic = filled(twins, new_topic)
    for version in HIGHEST[ApiKey.FETCH]:
        request = fetch_request(topic, 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        if version >= 4:
            twins.ask(request, version, but=comparable)
        if version >= 12:
            request.topics[0].partitions[0].last_fetched_epoch = epoch
            twins.ask(request, version, but=comparable)
    for version in HIGHEST[ApiKey.LIST_OFFSETS]:
        twins.ask(list_offsets_request(topic, -1, current_leader_epoch=epoch), version)
    for version in HIGHEST[ApiKey.OFFSET_FOR_LEADER_EPOCH]:
        for asked in (-1, 0, 1, 5):
            twins.ask(
                offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                    topics=[
                        offset_for_leader_epoch.OffsetForLeaderTopic(
                            name=topic,
                            partitions=[
                                offset_for_leader_epoch.OffsetForLeaderPartition(
                                    partition_index=number,
                                    current_leader_epoch=epoch,
                                    leader_epoch=asked,
                                )
                                for number in range(2)
                            ],
                        )
                    ]
                ),
                version,
            )


# --- ListOffsets


def list_offsets_request(topic, *timestamps, **fields):
    """A timestamp for each of partitions 0, 1, ..."""
    return list_offsets.ListOffsetRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetTopic(
                name=topic,
                partitions=[
                    list_offsets.ListOffsetPartition(
                        partition_index=number, timestamp=timestamp, **fields
                    )
                    for number, timestamp in enumerate(timestamps)
                ],
            )
        ],
    )


@pytest.mark.parametrize("version", HIGHEST[ApiKey.LIST_OFFSETS])
def test_list_offsets_by_timestamp(twins, new_topic, version):
    for codec in (0, GZIP):
        topic = new_topic(2)
        for data in (records(2, codec=codec), records(2, 9, codec), records(2, 1, codec)):
            assert error_of(twins, 8, topic, data) == 0
        for n in (-2, -1, 0, 5, 10, 11, 20, 75, 80, 81, 10**9):
            timestamp = n if n < 0 else T0_MS + n
            twins.ask(list_offsets_request(topic, timestamp, timestamp, -1), version)
        twins.ask(list_offsets_request(topic, 0), version)
        twins.ask(list_offsets_request(topic, -3), version)
        twins.ask(list_offsets_request("no-such-topic", -1), version)
        twice = list_offsets_request(topic, -1)
        twice.topics.append(list_offsets_request(topic, -2).topics[0])
        twins.ask(twice, version)
        replica = list_offsets_request(topic, -1)
        replica.replica_id = -2
        twins.ask(replica, version)


def test_old_list_offsets_tells_where_segments_begin(twins, new_topic):
    topic = new_topic(segment_bytes="200")
    for _ in range(5):
        assert error_of(twins, 8, topic, records(2)) == 0
    for count in (0, 1, 3, 100):
        for timestamp in (-1, -2):
            answer = twins.ask(list_offsets_request(topic, timestamp, max_num_offsets=count), 0)
            assert len(answer["topics"][0]["partitions"][0]["old_style_offsets"]) <= count


# --- Metadata


def comparable_metadata(answer):
    """Without what belongs to the one cluster; in no order where Java's maps have none."""
    answer["cluster_id"] = answer["cluster_id"] and "CLUSTER"
    for broker in answer["brokers"]:
        broker["port"] = 0
    answer["topics"].sort(key=lambda topic: topic["name"])
    answer["topics"] = [t for t in answer["topics"] if not t["name"].startswith("__")]
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


def wait_for_topic(twins, name):
    """Until both brokers know its leader."""
    asked = metadata.MetadataRequestTopic(name=name)
    request = metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    deadline = time.monotonic() + 20
    while any(
        topic["error_code"] or any(partition["error_code"] for partition in topic["partitions"])
        for answer in twins.both(request, 4)
        for topic in answer["topics"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.METADATA])
def test_metadata(twins, new_topic, version):
    names = [new_topic(3), new_topic()]

    def ask(names, **fields):
        topics = None
        if names is not None:
            topics = [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(topics=topics, **fields)
        return twins.ask(request, version, but=comparable_metadata)["topics"]

    assert {topic["name"] for topic in ask(None if version else [])} >= set(names)
    assert [len(topic["partitions"]) for topic in sorted(ask(names), key=lambda t: -len(t))]
    if version:
        assert ask([]) == []
    ask([*names, "bad name", "." * 3, "n" * 250, "", ".", names[0]])
    if version >= 4:
        (unknown,) = ask(["no-such-topic"], allow_auto_topic_creation=False)
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 8:
        ask(names, include_topic_authorized_operations=True)
        ask(names, include_cluster_authorized_operations=True)
    made = f"auto-{uuid.uuid4().hex[:8]}"
    try:
        (unknown,) = ask([made])
        assert unknown["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
        wait_for_topic(twins, made)
        assert [len(topic["partitions"]) for topic in ask([made])] == [1]
    finally:
        twins.ask(delete_topics.DeleteTopicsRequest(topic_names=[made], timeout_ms=20_000), 3)


# --- ApiVersions


@pytest.mark.parametrize("version", HIGHEST[ApiKey.API_VERSIONS])
def test_api_versions_names_what_is_served_as_apache_kafka_does(twins, version):
    for software in (("kctl", "1"), ("", ""), ("a b", "1"), ("-a", "1"), ("a", "1.")):
        request = api_versions.ApiVersionsRequest()
        if version >= 3:
            request.client_software_name, request.client_software_version = software
        ours, theirs = twins.both(request, version)
        tables = [{key.pop("api_key"): key for key in it.pop("api_keys")} for it in (ours, theirs)]
        assert_same(ours, theirs)
        mine, other = tables
        assert {key: other[key] for key in mine} == mine


def test_api_versions_of_the_future_are_answered_in_version_0(twins):
    answers = []
    for address in twins.addresses:
        frame = bytes.fromhex("00120063 00000007 ffff 00")
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            stream = connection.makefile("rb")
            answers.append(stream.read(int.from_bytes(stream.read(4), "big")))
    for answer in answers:
        assert answer[:6] == bytes.fromhex("00000007 0023")
    found = [decode(api_versions.ApiVersionsResponse, 0, answer, 4) for answer in answers]
    assert plain(found[0]) == plain(found[1])


# --- OffsetCommit, OffsetFetch, OffsetDelete, FindCoordinator


@pytest.fixture
def group(twins):
    """A group that both brokers coordinate; __consumer_offsets is there."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    request = find_coordinator.FindCoordinatorRequest(key=name)
    deadline = time.monotonic() + 20
    while any(answer["error_code"] for answer in twins.both(request)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    wait_for_topic(twins, "__consumer_offsets")
    while fetched(twins, name, None, 7)["error_code"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return name


def fetched(twins, group, topics, version):
    """Offsets of {topic: partitions}; None: all."""
    request = offset_fetch.OffsetFetchRequest(
        group_id=group,
        topics=topics
        and [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ],
    )
    return twins.ask(request, version, but=by_name)


def by_name(answer):
    """Topics by name, partitions by number: where all are asked for, Java's maps give the order."""
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    answer["topics"].sort(key=lambda topic: topic["name"])
    return answer


def commit_request(group, topic, version, *offsets, metadata="note", **fields):
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        for number, offset in enumerate(offsets)
    ]
    if version >= 6:
        for partition in partitions:
            partition.committed_leader_epoch = 0
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **fields,
    )


def test_offsets_are_committed_and_fetched_in_every_version(twins, new_topic, group):
    topic = new_topic(2)
    for version in HIGHEST[ApiKey.OFFSET_COMMIT]:
        # Partition 2 does not exist.
        answer = twins.ask(commit_request(group, topic, version, 10, 20 + version, 30), version)
        (found,) = answer["topics"]
        codes = [partition["error_code"] for partition in found["partitions"]]
        assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for fetch_version in HIGHEST[ApiKey.OFFSET_FETCH]:
            answer = fetched(twins, group, {topic: [0, 1, 2], "no-such-topic": [0]}, fetch_version)
            offsets = [p["committed_offset"] for t in answer["topics"] for p in t["partitions"]]
            # Version 0 is kept in ZooKeeper, apart from the others.
            if fetch_version == 0:
                assert offsets == [-1, 10, 20, -1]
            elif version == 0:
                assert offsets == [-1, -1, -1, -1]
            else:
                assert offsets == [-1, 10, 20 + version, -1]
            if fetch_version >= 2:
                assert len(fetched(twins, group, None, fetch_version)["topics"]) == (version > 0)


def test_commits_are_refused_in_every_version(twins, new_topic, group):
    topic = new_topic()
    for version in HIGHEST[ApiKey.OFFSET_COMMIT]:
        twins.ask(commit_request(group, topic, version, 1, metadata="m" * 5000), version)
        twins.ask(commit_request(group, topic, version, 1, metadata=None), version)
        twins.ask(commit_request(group, topic, version, -1), version)
        twins.ask(commit_request("", topic, version, 1), version)
        twins.ask(commit_request(group, "no-such-topic", version, 1), version)
        if version >= 1:
            for generation, member in ((1, "m"), (-1, "m"), (0, ""), (1, "")):
                request = commit_request(
                    group, topic, version, 1, generation_id=generation, member_id=member
                )
                twins.ask(request, version)
        if version >= 7:
            request = commit_request(group, topic, version, 1, group_instance_id="i")
            twins.ask(request, version)
    for version in HIGHEST[ApiKey.OFFSET_FETCH]:
        fetched(twins, "", {topic: [0]}, version)
        fetched(twins, "no-such-group", {topic: [0]}, version)


def test_offsets_are_deleted(twins, new_topic, group):
    topic = new_topic(2)
    twins.ask(commit_request(group, topic, 8, 1, 2), 8)
    for name in (group, "no-such-group", ""):
        request = offset_delete.OffsetDeleteRequest(
            group_id=name,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        offset_delete.OffsetDeleteRequestPartition(partition_index=number)
                        for number in (1, 5)
                    ],
                )
            ],
        )
        twins.ask(request, but=by_name)
    (found,) = fetched(twins, group, None, 7)["topics"]
    assert [partition["partition_index"] for partition in found["partitions"]] == [0]


def test_find_coordinator(twins, group):
    def without_port(answer):
        return {**answer, "port": min(answer["port"], 0)}

    for version in HIGHEST[ApiKey.FIND_COORDINATOR]:
        for key in (group, "", "other"):
            request = find_coordinator.FindCoordinatorRequest(key=key)
            twins.ask(request, version, but=without_port)


# --- DescribeConfigs

TOPIC, BROKER = 2, 4
STATIC, DEFAULT = 4, 5
# They say where a broker is and where its files are.
OF_THE_BROKER = {
    "advertised.listeners", "broker.id", "listeners", "log.dir", "log.dirs", "port",
    "zookeeper.connect",
}  # fmt: skip


def describe(twins, version, kind, name, *, keys=None, **fields):
    """Both answers: setting -> what is said of it."""
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
        ],
        **fields,
    )
    has_words = request.include_documentation
    answers = twins.both(request, version)
    results = [answer["results"][0] for answer in answers]
    tables = []
    for result in results:
        tables.append({config.pop("name"): config for config in result.pop("configs")})
        for config in tables[-1].values():
            # Apache Kafka's words are its own.
            assert config["documentation"] is None or has_words or version < 3
            del config["documentation"]
            if version == 0:
                # KIP-226 lost it in Apache Kafka 2.7: there nothing is a default.
                config["is_default"] = False
        if result["error_code"]:
            result["error_message"] = bool(result["error_message"])
    assert_same(*results)
    return tables


@pytest.mark.parametrize("version", HIGHEST[ApiKey.DESCRIBE_CONFIGS])
def test_topic_configs_are_described_in_full(twins, new_topic, version):
    topic = new_topic(
        cleanup_policy="compact,delete", retention_ms="1000", segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.25", unclean_leader_election_enable="true",
        message_format_version="0.10.2",
    )  # fmt: skip
    options = [{}]
    if version >= 1:
        options.append({"include_synonyms": True})
    if version >= 3:
        options.append({"include_synonyms": True, "include_documentation": True})
    for fields in options:
        for keys in (None, [], ["retention.ms", "no.such.setting"]):
            ours, theirs = describe(twins, version, TOPIC, topic, keys=keys, **fields)
            assert_same(ours, theirs)
            assert len(ours) == (1 if keys else 26)
    describe(twins, version, TOPIC, "no-such-topic")
    describe(twins, version, TOPIC, "bad name")
    describe(twins, version, 9, topic)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.DESCRIBE_CONFIGS])
def test_broker_configs_are_described_in_full(twins, version):
    fields = {"include_synonyms": True} if version >= 1 else {}
    ours, theirs = describe(twins, version, BROKER, "0", **fields)
    for table in (ours, theirs):
        for name in OF_THE_BROKER:
            del table[name]
    assert_same(sorted(ours), sorted(theirs))
    assert_same(ours, theirs)
    describe(twins, version, BROKER, "", **fields)
    describe(twins, version, BROKER, "1", **fields)
    describe(twins, version, BROKER, "one", **fields)


# --- AlterConfigs, IncrementalAlterConfigs

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(twins, version, kind, name, settings, *, is_dry=False):
    """The error that both brokers answer an AlterConfigs with."""
    request = alter_configs.AlterConfigsRequest(
        validate_only=is_dry,
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=key, value=value)
                    for key, value in settings.items()
                ],
            )
        ],
    )
    return error_and_words(twins.ask(request, version))


def increment(twins, version, kind, name, *operations, is_dry=False):
    """The same of IncrementalAlterConfigs with (setting, operation, value)."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        validate_only=is_dry,
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in operations
                ],
            )
        ],
    )
    return error_and_words(twins.ask(request, version))


def error_and_words(answer):
    (response,) = answer["responses"]
    return response["error_code"]


def overrides(twins, topic):
    ours, theirs = describe(twins, 3, TOPIC, topic, include_synonyms=True)
    assert_same(ours, theirs)
    return {name: found["value"] for name, found in ours.items() if found["config_source"] == 1}


@pytest.mark.parametrize("version", HIGHEST[ApiKey.ALTER_CONFIGS])
def test_alter_configs_replaces_what_a_topic_overrides(twins, new_topic, version):
    topic = new_topic(retention_ms="1000")

    def ask(**settings):
        names = {key.replace("_", "."): value for key, value in settings.items()}
        return alter(twins, version, TOPIC, topic, names)

    assert ask(segment_bytes="100000", cleanup_policy="compact") == 0
    wait_until(lambda: overrides(twins, topic).keys() == {"segment.bytes", "cleanup.policy"})
    assert alter(twins, version, TOPIC, topic, {}, is_dry=True) == 0
    assert ask(segment_bytes="many") == ErrorCode.INVALID_REQUEST
    assert ask(segment_bytes="1") == ErrorCode.INVALID_REQUEST
    assert ask(cleanup_policy="shred") == ErrorCode.INVALID_REQUEST
    ask(no_such_setting="1")
    ask(min_compaction_lag_ms="5", max_compaction_lag_ms="3")
    alter(twins, version, TOPIC, "no-such-topic", {})
    alter(twins, version, TOPIC, "", {})
    assert len(overrides(twins, topic)) == 2
    assert alter(twins, version, TOPIC, topic, {}) == 0
    wait_until(lambda: overrides(twins, topic) == {})


@pytest.mark.parametrize("version", HIGHEST[ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_incremental_alter_configs_changes_one_by_one(twins, new_topic, version):
    topic = new_topic(retention_ms="1000", cleanup_policy="delete")

    def ask(*operations, **options):
        return increment(twins, version, TOPIC, topic, *operations, **options)

    assert ask(("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)) == 0
    wait_until(lambda: overrides(twins, topic) == {"cleanup.policy": "delete,compact"})
    assert ask(("cleanup.policy", SUBTRACT, "delete"), ("segment.ms", SET, "7")) == 0
    wait_until(lambda: overrides(twins, topic)["cleanup.policy"] == "compact")
    assert ask(("segment.ms", APPEND, "7")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, None)) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, "seven")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, "7"), ("segment.ms", DELETE, "")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", DELETE, None), is_dry=True) == 0
    assert ask(("retention.bytes", DELETE, None)) == 0
    ask(("no.such.setting", SET, "1"))
    ask(("no.such.setting", DELETE, ""))
    increment(twins, version, TOPIC, "no-such-topic", ("segment.ms", SET, "1"))
    increment(twins, version, BROKER, "7", ("log.retention.ms", SET, "1"))
    increment(twins, version, BROKER, "x", ("log.retention.ms", SET, "1"))
    assert len(overrides(twins, topic)) == 2


def wait_until(condition):
    """Until it is so on both brokers, which hear of changes in their own time."""
    deadline = time.monotonic() + 20
    while True:
        try:
            assert condition()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("name", ["", "0"])
def test_broker_configs_change_while_it_runs(twins, name):
    own = 3 if name == "" else 2
    changes = {
        "log.retention.ms": "600000",
        "log.cleaner.threads": "2",
        "max.connections.per.ip.overrides": "10.0.0.1:5",
        "message.max.bytes": "2000000",
        "compression.type": "gzip",
    }
    if name:
        del changes["max.connections.per.ip.overrides"]
    try:
        assert increment(twins, 1, BROKER, name, *((k, SET, v) for k, v in changes.items())) == 0

        def dynamic():
            ours, theirs = describe(twins, 3, BROKER, name, include_synonyms=True)
            for table in (ours, theirs):
                for key in OF_THE_BROKER:
                    table.pop(key, None)
            assert_same(ours, theirs)
            return {k: it["value"] for k, it in ours.items() if it["config_source"] == own}

        wait_until(lambda: dynamic() == changes)
        assert increment(twins, 1, BROKER, name, ("num.partitions", SET, "3")) != 0
        assert increment(twins, 1, BROKER, name, ("log.cleaner.threads", SET, "x")) != 0
        assert increment(twins, 1, BROKER, name, ("log.cleaner.threads", SET, "-1")) != 0
        # It may be a plugin's.
        assert increment(twins, 1, BROKER, name, ("no.such.setting", SET, "1")) == 0
        wait_until(lambda: dynamic() == {**changes, "no.such.setting": None})
        changes["no.such.setting"] = None
    finally:
        increment(twins, 1, BROKER, name, *((k, DELETE, None) for k in changes))
    wait_until(lambda: dynamic() == {})


# --- CreateTopics, CreatePartitions, DeleteTopics


def comparable_creation(answer):
    for topic in answer["topics"]:
        if topic["configs"]:
            topic["configs"].sort(key=lambda config: config["name"])
    answer["topics"].sort(key=lambda topic: topic["name"])
    return answer


@pytest.mark.parametrize("version", HIGHEST[ApiKey.CREATE_TOPICS])
def test_create_topics(twins, version):
    names = [f"c{n}-{uuid.uuid4().hex[:8]}" for n in range(12)]
    new, config, assign = (
        create_topics.CreatableTopic, create_topics.CreateableTopicConfig,
        create_topics.CreatableReplicaAssignment,
    )  # fmt: skip
    topics = [
        new(name=names[0], num_partitions=2, replication_factor=1),
        new(
            name=names[1], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value="5"), config(name="segment.ms", value="6")],
        ),
        new(
            name=names[2], num_partitions=-1, replication_factor=-1,
            assignments=[assign(partition_index=n, broker_ids=[0]) for n in (1, 0)],
        ),
        new(name=names[3], num_partitions=-1, replication_factor=-1),
        new(name=names[4], num_partitions=0, replication_factor=1),
        new(name=names[5], num_partitions=1, replication_factor=2),
        new(name=names[6], num_partitions=1, replication_factor=0),
        new(name="bad name", num_partitions=1, replication_factor=1),
        new(name="", num_partitions=1, replication_factor=1),
        new(name=".", num_partitions=1, replication_factor=1),
        new(name="n" * 250, num_partitions=1, replication_factor=1),
        new(
            name=names[7], num_partitions=1, replication_factor=1,
            configs=[config(name="no.such", value="5")],
        ),
        new(
            name=names[8], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value="x")],
        ),
        new(
            name=names[9], num_partitions=1, replication_factor=1,
            configs=[config(name="retention.ms", value=None)],
        ),
        new(
            name=names[10], num_partitions=2, replication_factor=1,
            assignments=[assign(partition_index=0, broker_ids=[0])],
        ),
        new(
            name=names[11], num_partitions=-1, replication_factor=-1,
            assignments=[assign(partition_index=0, broker_ids=[5])],
        ),
    ]  # fmt: skip
    dry = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=2_000)
    if version >= 1:
        dry.validate_only = True
        twins.ask(dry, version, but=comparable_creation)
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=2_000)
    answer = twins.ask(request, version, but=comparable_creation)
    codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
    assert [codes[name] for name in names[:3]] == [0, 0, 0]
    again = twins.ask(request, version, but=comparable_creation)
    codes = {topic["name"]: topic["error_code"] for topic in again["topics"]}
    assert [codes[name] for name in names[:3]] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 3
    twice = create_topics.CreateTopicsRequest(topics=topics[:1] * 2, timeout_ms=20_000)
    twins.ask(twice, version, but=comparable_creation)

    for api_version in HIGHEST[ApiKey.CREATE_PARTITIONS]:
        for name, count in ((names[0], 3 + api_version), (names[0], 1), ("no-such-topic", 3)):
            topic = create_partitions.CreatePartitionsTopic(name=name, count=count)
            for assignments in (None, [[0]], [[7]], [[0, 0]]):
                topic.assignments = assignments and [
                    create_partitions.CreatePartitionsAssignment(broker_ids=ids)
                    for ids in assignments
                ]
                request = create_partitions.CreatePartitionsRequest(
                    topics=[topic], timeout_ms=20_000
                )
                twins.ask(request, api_version)

    def by_topic(answer):
        answer["responses"].sort(key=lambda response: response["name"])
        return answer

    for api_version in HIGHEST[ApiKey.DELETE_TOPICS]:
        request = delete_topics.DeleteTopicsRequest(
            topic_names=[*names[api_version : api_version + 1], "no-such-topic"], timeout_ms=20_000
        )
        twins.ask(request, api_version, but=by_topic)
    request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=20_000)
    twins.ask(request, but=by_topic)


# --- DeleteRecords


def test_delete_records(twins, new_topic):
    topic = filled(twins, new_topic)
    for version in HIGHEST[ApiKey.DELETE_RECORDS]:
        for offset in (version + 1, 0, 100, -1, -2) if version else (1, 0, 100, -2):
            request = delete_records.DeleteRecordsRequest(
                topics=[
                    delete_records.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            delete_records.DeleteRecordsPartition(
                                partition_index=number, offset=offset
                            )
                            for number in range(2)
                        ],
                    )
                ],
                timeout_ms=10_000,
            )
            twins.ask(request, version, but=by_name)
        for offset in (0, 1, 2, 12):
            ours, theirs = map(comparable, twins.both(fetch_request(topic, offset), 12))
            assert_same(ours, theirs)
        twins.ask(list_offsets_request(topic, -2), 5)
        twins.ask(list_offsets_request(topic, T0_MS), 5)
