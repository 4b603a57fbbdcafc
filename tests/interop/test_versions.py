"""Every version of the APIs that old clients speak: the same requests, built by hand, to kctl and to
Apache Kafka 2.7.2, whose answers are to be the same in every field."""

import contextlib
import uuid

import pytest

from kctl.protocol.api_keys import ApiKey
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
from tests.support.broker_client import Twins, differences

pytestmark = pytest.mark.kafka

T0_MS = 1_600_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = [0, GZIP, SNAPPY, LZ4]
HIGHEST = {api: range(api.max_version + 1) for api in ApiKey}


@pytest.fixture(scope="module")
def twins(kctl_broker, apache_broker):
    pair = Twins(kctl_broker.address, apache_broker)
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


def ask_produce(twins, version, topic, *record_sets, **options):
    request = produce_request(topic, *record_sets, **options)
    if version >= 3:
        request.transactional_id = None
    return twins.ask(request, version, but=comparable_produce)


def comparable_produce(answer):
    """Whether the broker gave a time, not which. Where Apache Kafka gives an error without words,
    kctl has some."""
    for topic in answer["responses"] if answer else ():
        for partition in topic["partitions"]:
            partition["log_append_time_ms"] = partition["log_append_time_ms"] > 0
            if not partition["record_errors"]:
                partition["error_message"] = None
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
    (ours,), (theirs,) = (answer["responses"][0]["partition_responses"] for answer in (ours, theirs))
    assert theirs["record_set"]
    assert differences(ours["record_set"][: len(theirs["record_set"])], theirs["record_set"]) == []
    assert differences({**ours, "record_set": None}, {**theirs, "record_set": None}) == []
    return sum(len(batch["records"]) for batch in ours["record_set"])
