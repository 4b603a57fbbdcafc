"""Random sessions: one seed, one sequence of requests, for kctl and for Apache Kafka 2.7.2 alike.

A session has a topic of its own and keeps its requests, so that a difference is reported with what
led to it. The requests follow from the seed and from the responses, which are the same.
"""

import random  # noqa: TID251  - seeded
from typing import ClassVar

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import (
    create_topics,
    delete_records,
    delete_topics,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.memory_records import batches
from tests.support.broker_client import Twins

# Where the two differ on purpose (docs/compatibility.md). Sessions avoid these, or accept Apache
# Kafka's response in place of kctl's.
DIFFERENCES = {
    "FOUND_BEHIND_DELETED": "after DeleteRecords Apache Kafka looks a timestamp up in a segment "
    "that is all deleted, if that one has younger records, and finds nothing: kctl looks on",
    "ROLLS_FOR_NOTHING": "Apache Kafka rolls a segment for a batch that it then refuses, or knows "
    "already: in kctl what is refused changes nothing",
    "FAILS_IN_APACHE_KAFKA": "batches that Apache Kafka cannot rewrite, with a negative epoch, "
    "or Zstandard for an old format, get UNKNOWN_SERVER_ERROR: in kctl what every other topic "
    "gives them",
    "REFUSED_TWICE": "the first batch of a producer, with a sequence other than 0: kctl refuses "
    "it until it is sent for the third time",
}
T0_MS = 1_600_000_000_000
SEQUENCES = 2**31
TRAIL_SHOWN = 30
TIMEOUT_MS = 20_000


class Session:
    """A random sequence of steps; each is a method named `do_...` that asks both brokers."""

    weights: ClassVar[dict[str, int]]

    def __init__(self, twins: Twins, seed: object) -> None:
        self.twins = twins
        self.random = random.Random(f"{type(self).__name__}/{seed}")
        self.name = f"s-{self.random.getrandbits(48):012x}"
        self.trail: list[str] = []

    def run(self, steps: int) -> None:
        """AssertionError with the trail where the brokers differ."""
        names, weights = list(self.weights), list(self.weights.values())
        try:
            self.begin()
            for _ in range(steps):
                getattr(self, f"do_{self.random.choices(names, weights)[0]}")()
            self.audit()
        except AssertionError as error:
            story = "\n".join(self.trail[-TRAIL_SHOWN:])
            raise AssertionError(f"{error}\nafter:\n{story}") from None
        finally:
            self.end()

    def begin(self) -> None:
        """What comes before the steps."""

    def audit(self) -> None:
        """What is looked at when all steps are done."""

    def end(self) -> None:
        """What comes after them, in any case."""

    def ask(self, message, version=None, *, but=None, but_both=None, note=""):
        """The answer of both."""
        version = message.api.max_version if version is None else version
        self.trail.append(f"{message.api.name} v{version} {note or message}"[:900])
        answer = self.twins.ask(message, version, but=but, but_both=but_both)
        self.trail[-1] += f" -> {str(outcome(answer))[:200]}"
        return answer

    def any_version(self, api, lowest=0):
        return self.random.randint(lowest, api.max_version)


def outcome(answer):
    """The error codes and offsets in an answer: enough to follow a trail."""
    names = ("error_code", "base_offset", "offset", "low_watermark", "end_offset", "generation_id",
             "member_id", "log_start_offset", "group_state", "error_message")  # fmt: skip
    found = []

    def walk(value):
        for item in value if isinstance(value, list) else ():
            walk(item)
        if isinstance(value, dict):
            for key, item in value.items():
                if key in names:
                    found.append(item)
                elif key != "configs":
                    walk(item)

    walk(answer)
    return found


def create(twins, name, partitions, configs):
    """A topic on both brokers."""
    made = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            create_topics.CreateableTopicConfig(name=key, value=str(value))
            for key, value in configs.items()
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[made], timeout_ms=TIMEOUT_MS)
    (topic,) = twins.ask(request, 4)["topics"]
    assert topic["error_code"] == 0, topic


class LogSession(Session):
    """Producers, readers and DeleteRecords on the two partitions of one topic."""

    weights: ClassVar = {
        "produce": 30, "duplicate": 12, "odd_batch": 10, "bump": 3, "plain": 14,
        "several": 3, "fetch": 16, "list_offsets": 12, "old_list_offsets": 4,
        "delete_records": 4, "leader_epoch": 3,
    }  # fmt: skip

    def begin(self):
        self.draw_configs()
        self.trail.append(f"{self.name} {self.configs}")
        create(self.twins, self.name, 2, self.configs)
        pick = self.random
        self.producers = [
            Producer(pick.randrange(1, 2**40), pick.choice((0, 0, 1, 5, 32_766)), pick)
            for _ in range(3)
        ]
        self.end_offset = [0, 0]
        self.is_shortened = False

    def draw_configs(self):
        """Draw configs: topics whose segments roll, topics with rewritten batches, and others."""
        pick = self.random
        choices = {
            "message.timestamp.type": ("LogAppendTime", None, None),
            "max.message.bytes": (200, None, None),
        }
        self.rolls, self.rewrites = pick.choice(((1, 0), (0, 1), (0, 0)))
        if self.rolls:
            choices |= {
                "segment.bytes": (300, 1000, 4000, None),
                "segment.ms": (1, 500, 60_000, None, None, None),
                "index.interval.bytes": (0, 100, 1000, None),
                "segment.index.bytes": (12, 24, 40, 10_000, None),
            }
        if self.rewrites:
            # Batches that are compressed again differ in size.
            del choices["max.message.bytes"]
            choices |= {
                "compression.type": ("gzip", "lz4", "uncompressed"),
                "message.format.version": ("0.10.0", None, None),
            }
        drawn = {name: pick.choice(values) for name, values in choices.items()}
        self.is_append_time = drawn["message.timestamp.type"] == "LogAppendTime"
        if self.is_append_time:
            # Segments would roll by the clock: time indexes take what is later only.
            drawn.pop("segment.ms", None)
            drawn.pop("segment.index.bytes", None)
        self.configs = {name: value for name, value in drawn.items() if value is not None}
        self.configs["retention.ms"] = -1

    def end(self):
        request = delete_topics.DeleteTopicsRequest(topic_names=[self.name], timeout_ms=TIMEOUT_MS)
        self.twins.both(request, 3)

    # -- Produce

    @property
    def codecs(self):
        """Zstandard for old formats: FAILS_IN_APACHE_KAFKA."""
        return (
            0,
            0,
            0,
            0,
            1,
            2,
            3,
            *((4,) if "message.format.version" not in self.configs else ()),
        )

    def batch(self, count, **fields):
        builder = RecordBatchBuilder(compression_type=self.random.choice(self.codecs), **fields)
        time_ms = T0_MS + self.random.choice((0, 0, 500, 1000, -700, 5000))
        for _ in range(count):
            time_ms += self.random.choice((0, 0, 1, 10, -10, 100, -100))
            key = self.random.choice((None, b"", b"key"))
            value = bytes([self.random.randrange(97, 123)]) * self.random.choice((0, 1, 10, 60))
            builder.append(timestamp=time_ms, key=key, value=value)
        return bytes(builder.build())

    def send(self, *record_sets, note=""):
        """Record sets for partition 0, 1, ...; None: nothing for it."""
        request = self.produce_request(record_sets)
        version = self.any_version(request.api, 7)
        self.twins.asks_again = _is_refused
        answer = self.ask(request, version, but=self.comparable_produce, note=note)
        self.twins.asks_again = None
        found = answer["responses"][0]["partitions"] if answer else []
        return [partition["error_code"] for partition in found]

    def produce_request(self, record_sets):
        return produce.ProduceRequest(
            transactional_id=None,
            acks=self.random.choice((-1, 1)),
            timeout_ms=TIMEOUT_MS,
            topics=[
                produce.TopicProduceData(
                    name=self.name,
                    partitions=[
                        produce.PartitionProduceData(partition_index=number, records=data)
                        for number, data in enumerate(record_sets)
                        if data is not None
                    ],
                )
            ],
        )

    def comparable_produce(self, answer):
        """Reduce times to whether there is one; kctl has messages where Apache Kafka has none."""
        for topic in answer["responses"] if answer else ():
            for partition in topic["partitions"]:
                partition["log_append_time_ms"] = partition["log_append_time_ms"] > 0
                if not partition["record_errors"]:
                    partition["error_message"] = None
        return answer

    def send_from(self, producer, partition, sequence, count, epoch, note):
        note = f"{note} p{partition} id {producer.id} epoch {epoch} seq {sequence} x{count}"
        data = self.batch(
            count, producer_id=producer.id, producer_epoch=epoch, base_sequence=sequence
        )
        record_sets = [data if n == partition else None for n in range(2)]
        (code,) = self.send(*record_sets, note=note)
        if code == 0:
            producer.sent[partition].append((sequence, count, data, epoch))
            del producer.sent[partition][:-8]
            producer.epochs[partition] = epoch
            producer.next_sequence[partition] = (sequence + count) % SEQUENCES
        return code

    def pick_producer(self):
        return self.random.choice(self.producers), self.random.randrange(2)

    def do_produce(self):
        producer, partition = self.pick_producer()
        self.send_from(producer, partition, producer.next_sequence[partition],
                       self.random.randint(1, 5), producer.epochs[partition], "next")  # fmt: skip

    def do_duplicate(self):
        """Any of the last eight batches again, as it was or with another count."""
        producer, partition = self.pick_producer()
        if not producer.sent[partition] or self.rolls:
            # ROLLS_FOR_NOTHING
            return
        sequence, count, data, epoch = self.random.choice(producer.sent[partition])
        if self.random.random() < 0.7:
            note = f"again p{partition} id {producer.id} epoch {epoch} seq {sequence} x{count}"
            self.send(*(data if n == partition else None for n in range(2)), note=note)
        else:
            other = self.random.choice((max(count - 1, 1), count + 1))
            (code,) = self.send(
                *(
                    self.batch(
                        other,
                        producer_id=producer.id,
                        producer_epoch=epoch,
                        base_sequence=sequence,
                    )
                    if n == partition
                    else None
                    for n in range(2)
                ),
                note=f"changed p{partition} id {producer.id} epoch {epoch} seq {sequence} x{other}",
            )
            if code == 0 and (sequence, other) != (sequence, count):
                producer.next_sequence[partition] = (sequence + other) % SEQUENCES

    def do_odd_batch(self):
        """Gaps, steps back, wrong epochs, ids without sequences."""
        if self.rolls:
            # ROLLS_FOR_NOTHING
            return
        producer, partition = self.pick_producer()
        sequence, epoch = producer.next_sequence[partition], producer.epochs[partition]
        sequence = self.random.choice(
            (sequence, sequence, sequence + 1, sequence - 1, 0, -1, 1, SEQUENCES - 1, SEQUENCES - 2)
        )
        sequence = sequence % SEQUENCES if sequence >= 0 else -1
        epoch = self.random.choice((epoch, epoch, epoch - 1, epoch + 1, 0, -1, 32_767))
        # A batch that is rewritten must have an epoch: FAILS_IN_APACHE_KAFKA.
        epoch = max(0 if self.rewrites else -1, min(epoch, 32_767))
        count = self.random.randint(1, 4)
        self.send_from(producer, partition, sequence, count, epoch, "odd")

    def do_bump(self):
        producer, partition = self.pick_producer()
        if producer.epochs[partition] < 32_767:
            epoch = producer.epochs[partition] + 1
            self.send_from(producer, partition, 0, self.random.randint(1, 3), epoch, "bump")

    def do_plain(self):
        size = self.random.choice((1, 1, 2, 5, 20))
        data = [self.batch(size), None]
        self.random.shuffle(data)
        self.send(*data, note=f"plain {data.index(None)}")

    def do_several(self):
        """Several batches for a partition, or for both and one that is not there."""
        kind = self.random.randrange(4)
        if kind == 0:
            self.send(self.batch(1) + self.batch(2), note="two batches")
        elif kind == 1:
            self.send(self.batch(1), self.batch(2), self.batch(1), note="three partitions")
        elif kind == 2:
            self.send(b"", note="no bytes")
        else:
            self.send(self.batch(2)[:-3], note="cut")

    # -- reading

    def do_fetch(self):
        version = self.any_version(fetch.FetchRequest.api, 4)
        pick = self.random.choice
        partitions = [
            fetch.FetchPartition(
                partition=number,
                fetch_offset=self.random.randint(-1, self.top(number) + 2),
                partition_max_bytes=1 << 20
                if self.rewrites
                else pick((0, 1, 60, 100, 300, 1000, 1 << 20)),
                log_start_offset=-1,
            )
            for number in range(pick((1, 2, 2, 3)))
        ]
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait_ms=pick((0, 1, 20)),
            min_bytes=pick((0, 1, 200, 5000)),
            max_bytes=1 << 20 if self.rewrites else pick((0, 1, 60, 200, 1000, 1 << 20)),
            isolation_level=pick((0, 1)),
            topics=[fetch.FetchTopic(topic=self.name, partitions=partitions)],
        )
        if version >= 9:
            for partition in partitions:
                partition.current_leader_epoch = pick((-1, -1, -1, 0, 0, 1))
        if version >= 12:
            for partition in partitions:
                partition.last_fetched_epoch = pick((-1, -1, 0, 0, 1))
        answer = self.ask(request, version, but=self.comparable_fetch)
        for topic in answer["responses"]:
            for partition in topic["partition_responses"]:
                number = partition["partition_index" if "partition_index" in partition
                                   else "partition"]  # fmt: skip
                if partition["error_code"] == 0:
                    self.end_offset[number] = partition["high_watermark"]

    def top(self, number):
        return self.end_offset[number] if number < 2 else 0

    def comparable_fetch(self, answer):
        """The same bytes, where brokers write no times of their own and compress nothing."""
        keeps_bytes = not self.is_append_time and not self.rewrites
        for topic in answer["responses"] if answer else ():
            for partition in topic["partition_responses"]:
                data = partition["record_set"]
                if data and not keeps_bytes:
                    partition["record_set"] = [self.describe(batch) for batch in batches(data)]
        return answer

    def describe(self, batch):
        names = ("magic", "base_offset", "last_offset", "attributes",
                 "producer_id", "producer_epoch", "base_sequence")  # fmt: skip
        described = {name: getattr(batch, name, None) for name in names}
        described["records"] = [
            (record.offset, record.key, record.value)
            + (() if self.is_append_time else (record.timestamp,))
            for record in batch.records()
        ]
        return described

    def lookup(self, version, *timestamps, **fields):
        partitions = [
            list_offsets.ListOffsetPartition(partition_index=number, timestamp=timestamp, **fields)
            for number, timestamp in enumerate(timestamps)
        ]
        request = list_offsets.ListOffsetRequest(
            replica_id=-1,
            topics=[list_offsets.ListOffsetTopic(name=self.name, partitions=partitions)],
        )
        if version >= 2:
            request.isolation_level = self.random.choice((0, 1))
        return self.ask(request, version, but_both=self.comparable_times)

    def comparable_times(self, ours, theirs):
        for topic, other in zip(ours["topics"], theirs["topics"], strict=True):
            for partition, second in zip(topic["partitions"], other["partitions"], strict=True):
                if self.is_shortened and second["offset"] == -1:
                    # FOUND_BEHIND_DELETED
                    partition.update(second)
                if self.is_append_time:
                    partition["timestamp"] = partition["timestamp"] > 0
                    second["timestamp"] = second["timestamp"] > 0
        return ours, theirs

    def do_list_offsets(self):
        version = self.any_version(list_offsets.ListOffsetRequest.api, 1)
        times = (-1, -2, -3, 0, T0_MS + self.random.randint(-900, 6500),
                 T0_MS + self.random.randrange(-20, 20) * 10, T0_MS + 10**9)  # fmt: skip
        weights = (1, 1, 1, 1, 4, 8, 1)
        self.lookup(version, *self.random.choices(times, weights, k=2))

    def do_old_list_offsets(self):
        """List offsets with version 0, which returns the first offsets of segments."""
        self.lookup(0, -1, -1, max_num_offsets=self.random.choice((0, 1, 2, 100)))
        # Modification times of files decide: only times that are beyond doubt.
        self.lookup(0, -2, -2, max_num_offsets=3)

    def do_delete_records(self):
        partitions = [
            delete_records.DeleteRecordsPartition(
                partition_index=number,
                offset=self.random.choice(
                    (-1, -2, 10**6, *(self.random.randint(0, self.top(number)) for _ in range(6)))
                ),
            )
            for number in range(self.random.choice((1, 2, 3)))
        ]
        request = delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name=self.name, partitions=partitions)],
            timeout_ms=TIMEOUT_MS,
        )
        self.is_shortened = True
        self.ask(request, self.any_version(request.api), but=by_partition)

    def do_leader_epoch(self):
        version = self.any_version(offset_for_leader_epoch.OffsetForLeaderEpochRequest.api)
        partitions = [
            offset_for_leader_epoch.OffsetForLeaderPartition(
                partition_index=number, leader_epoch=self.random.choice((-1, 0, 0, 1, 9))
            )
            for number in range(3)
        ]
        if version >= 2:
            for partition in partitions:
                partition.current_leader_epoch = self.random.choice((-1, -1, 0, 1))
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(name=self.name, partitions=partitions)
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
        self.ask(request, version, but=by_partition)

    def audit(self):
        """Everything there is: segments, records, and what times are found."""
        self.lookup(0, -1, -1, max_num_offsets=1000)
        for version, timestamp in ((1, -1), (5, -2)):
            self.lookup(version, timestamp, timestamp)
        for timestamp in range(T0_MS - 800, T0_MS + 1300, 50):
            self.lookup(5, timestamp, timestamp)
        for number in range(2):
            offset = 0
            while True:
                request = fetch.FetchRequest(
                    replica_id=-1,
                    max_bytes=1 << 20,
                    topics=[
                        fetch.FetchTopic(
                            topic=self.name,
                            partitions=[
                                fetch.FetchPartition(
                                    partition=number,
                                    fetch_offset=offset,
                                    partition_max_bytes=1 << 20,
                                )
                            ],
                        )
                    ],
                )
                answer = self.ask(request, 11, but=self.comparable_fetch)
                (partition,) = answer["responses"][0]["partition_responses"]
                if partition["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE and not offset:
                    offset = self.lookup(5, -2, -2)["topics"][0]["partitions"][number]["offset"]
                    continue
                if not partition["record_set"]:
                    break
                offset = self.after(partition["record_set"])

    def after(self, record_set):
        """The offset behind a record set."""
        if isinstance(record_set, list):
            return record_set[-1]["last_offset"] + 1
        return [batch.last_offset for batch in batches(record_set)][-1] + 1


def by_partition(answer):
    """Java's maps have an order of their own."""
    for topic in answer["topics"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


def _is_refused(answer):
    """REFUSED_TWICE: Apache Kafka gives no such answer here."""
    partitions = answer["responses"][0].get("partitions", ())
    return any(it["error_code"] == ErrorCode.NOT_LEADER_OR_FOLLOWER for it in partitions)


class Producer:
    """What one producer id sent to each of the two partitions."""

    def __init__(self, producer_id, epoch, pick):
        self.id = producer_id
        self.epochs = [epoch, epoch]
        self.next_sequence = [
            pick.choice((0, 0, 7, SEQUENCES - 1, SEQUENCES - 4, SEQUENCES - 9)) for _ in range(2)
        ]
        self.sent = [[], []]
