"""Znodes of the consumers that share partitions through ZooKeeper: Kafka 0.7's, and 0.8's to 1.1's.

The two layouts have the same paths. Kafka 0.7 names a partition by its broker and number, `B-P`,
and registers subscriptions as a hand-made map, `*N*REGEX` or `!N!REGEX`; later releases name it by
its number and register JSON. An encoder writes what Apache Kafka writes, byte for byte. A reader
takes what any client is known to write: other clients register a bare topic name, a timestamp as a
number, or nothing at all, and leave the number of the thread out of an owner.

OffsetCommit and OffsetFetch version 0 read and write the same offsets, in Kafka 2.7 too. Pure.

Kafka 0.7: kafka.consumer.TopicCount, kafka.utils.ZkUtils; Kafka 1.1: the same, and
kafka.consumer.WildcardTopicCount; Kafka 2.7: kafka.zk.ConsumerOffset.
"""

import json
import re
from collections.abc import Collection
from enum import StrEnum
from typing import Any, NamedTuple

from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.store.znodes import CONSUMERS, to_json

_BROKER_PARTITION = re.compile(r"(\d{1,10})-(\d{1,10})")
_PARTITION = re.compile(r"\d{1,10}")
_OFFSET = re.compile(rb"-?\d{1,19}")
# A white list `*N*REGEX` or a black list `!N!REGEX` of Kafka 0.7.
_FILTER = re.compile(r"([*!])(\d{1,9})\1(.*)", re.DOTALL)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_ESCAPE = re.compile(r"\\([\\/\"])")
_ESCAPED_TWICE = re.compile(r"(?:[^\\]|\\[\\/\"])*", re.DOTALL)
_MARKERS = {"white_list": "*", "black_list": "!"}


class Layout(StrEnum):
    """The two layouts of `/consumers` and of `/brokers`."""

    KAFKA_0_7 = "0.7"
    # Kafka 0.8 to 1.1.
    KAFKA_0_8 = "0.8"


class Pattern(StrEnum):
    """How a consumer names its topics."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


class FilterEscapes(StrEnum):
    """How often a regular expression is escaped in the JSON of Kafka 0.8 and later."""

    # Kafka 0.8.2: as JSON needs it.
    ONCE = "once"
    # Kafka 1.1: and once before that. Its own members go by the text that results, so that a white
    # list with a backslash reads nothing there.
    TWICE = "twice"


class BrokerPartition(NamedTuple):
    """A partition of Kafka 0.7: a broker's partition of a topic; no other broker has a copy."""

    broker_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.broker_id}-{self.partition}"


# A partition as the znodes of either layout name it.
Partition = int | BrokerPartition


class ConsumedPartition(NamedTuple):
    """A partition of a topic, in either layout."""

    topic: str
    partition: Partition

    def __str__(self) -> str:
        """Return `TOPIC-N`, or `TOPIC-B-N` of Kafka 0.7."""
        return f"{self.topic}-{self.partition}"

    @property
    def sort_key(self) -> tuple[str, int, int]:
        """Return a key that sorts by topic, then by number, also partitions of both layouts."""
        if isinstance(self.partition, BrokerPartition):
            return self.topic, *self.partition
        return self.topic, -1, self.partition

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Return the partition of Kafka 0.8 and later, or None for one of Kafka 0.7."""
        if isinstance(self.partition, BrokerPartition):
            return None
        return TopicPartition(self.topic, self.partition)


class Subscription(NamedTuple):
    """The topics that a consumer reads."""

    # Streams by topic, or by a regular expression, which is the only one then.
    streams: dict[str, int]
    pattern: Pattern = Pattern.STATIC
    # None in Kafka 0.7, which does not register it.
    timestamp_ms: int | None = None
    # The regular expression as it is registered, which is what members of Kafka 1.1 go by.
    registered_filter: str | None = None


class Owner(NamedTuple):
    """The consumer that an owner znode names, and its thread if the znode names that too."""

    consumer_id: str
    thread: int | None


class OwnerZnode(NamedTuple):
    """What an owner znode says: the thread, and the session that made it."""

    thread_id: str
    session_id: int


# --- paths


def group_path(group_id: str) -> str:
    """Return `/consumers/G`; UsageError for a group id that is not a znode name."""
    if group_id in ("", ".", "..") or "/" in group_id or "\0" in group_id:
        raise UsageError(f"A group called {group_id!r} cannot be kept in ZooKeeper")
    return f"{CONSUMERS}/{group_id}"


def consumer_ids_path(group_id: str) -> str:
    """Return `/consumers/G/ids`."""
    return f"{group_path(group_id)}/ids"


def consumer_id_path(group_id: str, consumer_id: str) -> str:
    """Return `/consumers/G/ids/C`: a live consumer, ephemeral."""
    return f"{group_path(group_id)}/ids/{consumer_id}"


def owners_path(group_id: str, topic: str | None = None) -> str:
    """Return `/consumers/G/owners`, or `/consumers/G/owners/T`."""
    path = f"{group_path(group_id)}/owners"
    return path if topic is None else f"{path}/{topic}"


def owner_path(group_id: str, topic: str, partition: Partition) -> str:
    """Return `/consumers/G/owners/T/P` or `.../T/B-P`: who reads a partition, ephemeral."""
    return f"{group_path(group_id)}/owners/{topic}/{partition}"


def offsets_path(group_id: str, topic: str | None = None) -> str:
    """Return `/consumers/G/offsets`, or `/consumers/G/offsets/T`."""
    path = f"{group_path(group_id)}/offsets"
    return path if topic is None else f"{path}/{topic}"


def offset_path(group_id: str, topic: str, partition: Partition) -> str:
    """Return `/consumers/G/offsets/T/P` or `.../T/B-P`: the offset to read next, persistent."""
    return f"{group_path(group_id)}/offsets/{topic}/{partition}"


def consumer_offset_path(group_id: str, topic_partition: TopicPartition) -> str:
    """Return the path of a group's offset in the layout of Kafka 0.8."""
    return offset_path(group_id, topic_partition.topic, topic_partition.partition)


def parse_partition(name: str) -> Partition | None:
    """Return the partition that a znode's name stands for, or None if it stands for none.

    >>> parse_partition("3"), parse_partition("0-3"), parse_partition("x")
    (3, BrokerPartition(broker_id=0, partition=3), None)
    """
    if not name.isascii():
        return None
    if _PARTITION.fullmatch(name):
        return int(name)
    if found := _BROKER_PARTITION.fullmatch(name):
        return BrokerPartition(int(found[1]), int(found[2]))
    return None


# --- offsets


def encode_consumer_offset(offset: int) -> bytes:
    """Return the data of an offset znode: the number in decimal."""
    return b"%d" % offset


def decode_consumer_offset(data: bytes) -> int | None:
    """Return the offset, or None for empty data; CorruptDataError if it is not a number."""
    if not data:
        return None
    if not _OFFSET.fullmatch(data.strip()):
        raise CorruptDataError(f"{data[:40]!r} is no offset")
    return int(data)


# --- owners


def encode_owner(consumer_id: str, thread: int) -> bytes:
    """Return the data of an owner znode: the id of the consumer's thread."""
    return thread_id(consumer_id, thread).encode()


def thread_id(consumer_id: str, thread: int) -> str:
    """Return the id of a consumer's thread, or stream: `C-i`."""
    return f"{consumer_id}-{thread}"


def read_owner(data: bytes, consumer_ids: Collection[str] = ()) -> Owner:
    """Return whom an owner znode names.

    `consumer_ids` are the members of the group. Some clients write the id of the consumer alone,
    which may end as that of a thread does.
    """
    text = data.decode(errors="replace")
    consumer_id, dash, thread = text.rpartition("-")
    is_thread = bool(dash) and thread.isascii() and thread.isdigit()
    if text in consumer_ids or not is_thread:
        return Owner(text, None)
    return Owner(consumer_id, int(thread))


# --- subscriptions


def encode_subscription(
    subscription: Subscription, escapes: FilterEscapes = FilterEscapes.TWICE
) -> bytes:
    """Encode `/consumers/G/ids/C` as Kafka 0.8 to 1.1 do."""
    streams = subscription.streams
    if subscription.pattern is not Pattern.STATIC and escapes is FilterEscapes.TWICE:
        streams = {_json_escaped(regex): count for regex, count in streams.items()}
    return to_json(
        {
            "version": 1,
            "subscription": streams,
            "pattern": subscription.pattern,
            "timestamp": str(subscription.timestamp_ms),
        }
    )


def encode_subscription_07(subscription: Subscription) -> bytes:
    """Encode `/consumers/G/ids/C` as Kafka 0.7 does, blanks included."""
    if subscription.pattern is Pattern.STATIC:
        pairs = [f'"{topic}": {count}' for topic, count in subscription.streams.items()]
        return f"{{ {','.join(pairs)} }}".encode()
    ((regex, count),) = subscription.streams.items()
    marker = _MARKERS[subscription.pattern]
    return f"{marker}{count}{marker}{regex}".encode()


def read_subscription(data: bytes) -> Subscription | None:
    """Return what a consumer of any release or known client registered, or None if that is unknown.

    A consumer whose registration is unknown still owns what its owner znodes say.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if found := _FILTER.fullmatch(text):
        pattern = Pattern.WHITE_LIST if found[1] == "*" else Pattern.BLACK_LIST
        return Subscription({found[3]: int(found[2])}, pattern, None, found[3])
    if _TOPIC_NAME.fullmatch(text):
        # pykafka and samsa register the topic, which they read with one stream.
        return Subscription({text: 1})
    try:
        fields = json.loads(text)
        return _from_json(fields) if isinstance(fields, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _from_json(fields: dict[str, Any]) -> Subscription:
    registered = fields.get("subscription")
    if not isinstance(registered, dict):
        return Subscription(_counts(fields))
    streams = _counts(registered)
    given = fields.get("timestamp")
    timestamp_ms = None if given is None else int(given)
    pattern = fields.get("pattern", Pattern.STATIC)
    # While no topic matches a filter, Kafka 0.8 registers no expression.
    if pattern == Pattern.STATIC or len(streams) != 1:
        return Subscription(streams, Pattern.STATIC, timestamp_ms)
    ((regex, count),) = streams.items()
    return Subscription({_unescaped(regex): count}, Pattern(pattern), timestamp_ms, regex)


def _counts(streams: dict[str, Any]) -> dict[str, int]:
    if any(isinstance(count, bool) for count in streams.values()):
        raise ValueError("no number of streams")
    return {topic: int(count) for topic, count in streams.items()}


def _json_escaped(regex: str) -> str:
    """Escape a regular expression as kafka.utils.Utils.JSONEscapeString does."""
    escaped = json.dumps(regex, ensure_ascii=False)[1:-1]
    return escaped.replace("/", "\\/")


def _unescaped(regex: str) -> str:
    """Undo the second escaping of Kafka 1.1: no topic's name has a backslash, so none is meant by
    two of them."""
    return _ESCAPE.sub(r"\1", regex) if _ESCAPED_TWICE.fullmatch(regex) else regex
