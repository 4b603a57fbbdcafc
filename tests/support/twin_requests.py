"""Requests in any version, built by hand for the tests that compare kctl with Apache Kafka 2.7.2,
and the parts of their responses that must agree."""

import re
import time

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages import fetch, list_offsets, metadata, offset_fetch, produce
from kctl.records.builder import RecordBatchBuilder
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from tests.support.broker_client import differences

T0_MS = 1_600_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = [0, GZIP, SNAPPY, LZ4]
HIGHEST = {api: range(api.max_version + 1) for api in ApiKey}


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


def ask_produce(twins, version, topic, *record_sets, transactional_id=None, **options):
    request = produce_request(topic, *record_sets, **options)
    if version >= 3:
        request.transactional_id = transactional_id
    return twins.ask(request, version, but=comparable_produce)


def comparable_produce(answer):
    """Return whether the broker gave a time, not which. kctl has messages for errors where Apache
    Kafka has none, and the range of valid timestamps depends on the millisecond."""
    for topic in answer["responses"] if answer else ():
        for partition in topic["partitions"]:
            partition["log_append_time_ms"] = partition["log_append_time_ms"] > 0
            if not partition["record_errors"]:
                partition["error_message"] = None
            for error in partition["record_errors"]:
                message = error["batch_index_error_message"]
                error["batch_index_error_message"] = re.sub(r"\[\d+, \d+\]", "[range]", message)
    return answer


def partition_answers(twins, version, topic, *record_sets, **options):
    answer = ask_produce(twins, version, topic, *record_sets, **options)
    return answer["responses"][0]["partitions"]


def error_of(twins, version, topic, record_set, **options):
    (partition,) = partition_answers(twins, version, topic, record_set, **options)
    return partition["error_code"]


def filled(twins, new_topic, count=4, **options):
    """A topic with `count` batches of three records."""
    topic = new_topic()
    for _ in range(count):
        assert error_of(twins, 8, topic, records(2, **options)) == 0
    return topic


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


def read_down_converted(twins, topic, version, offset=0):
    """Return how many records both give: the same, cut at the same size."""
    ours, theirs = map(comparable, twins.both(fetch_request(topic, offset), version))
    (ours,), (theirs,) = (
        answer["responses"][0]["partition_responses"] for answer in (ours, theirs)
    )
    assert theirs["record_set"]
    assert differences(ours["record_set"], theirs["record_set"]) == []
    assert differences({**ours, "record_set": None}, {**theirs, "record_set": None}) == []
    return sum(len(batch["records"]) for batch in ours["record_set"])


def wait_for_topic(twins, name):
    """Until both brokers know its leader."""
    asked = metadata.MetadataRequestTopic(name=name)
    request = metadata.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    deadline = time.monotonic() + 120
    while any(
        topic["error_code"] or any(partition["error_code"] for partition in topic["partitions"])
        for answer in twins.both(request, 4)
        for topic in answer["topics"]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def by_name(answer):
    """Topics by name, partitions by number: where all are asked for, Java's maps give the order."""
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    answer["topics"].sort(key=lambda topic: topic["name"])
    return answer


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
