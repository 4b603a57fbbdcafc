"""ProducerConfig: the settings of a producer, in the spellings of 0.7, 0.8 to 1.1 and today. Pure.

Exactly one of `zk.connect`, `broker.list` and `metadata.broker.list` (today `bootstrap.servers`)
states where the brokers are.

Kafka: kafka.producer.{ProducerConfig, SyncProducerConfig} of 0.7.2 and 1.1.1;
org.apache.kafka.clients.producer.ProducerConfig
"""

from collections.abc import Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.kafka.encoders import ENCODERS, DefaultEncoder
from kctl.kafka.old_names import (
    Age,
    Setting,
    Settings,
    choice,
    flag,
    in_all_ages,
    instance,
    names,
    number,
    read_settings,
    text,
)
from kctl.kafka.partitioners import PARTITIONERS, DefaultPartitioner, Murmur2Partitioner
from kctl.protocol.constants import ACKS_ALL
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

SYNC, ASYNC = "sync", "async"
_CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
_CODECS |= {str(code): code for code in list(_CODECS.values())}
_ACKS = {"0": 0, "1": 1, "-1": ACKS_ALL, "all": ACKS_ALL}
_MILLISECONDS = number(0, 2**31 - 1)
_COUNT = number(1, 2**31 - 1)
_NEVER_OR_MS = number(-1, 2**31 - 1)
_DEFAULT_ENCODER = DefaultEncoder()


TABLE = [
    # Where the brokers are.
    Setting("zookeeper", text, ("zk.connect", "zookeeper.connect", None)),
    Setting("broker_list", text, ("broker.list", None, None)),
    Setting("bootstrap", text, (None, "metadata.broker.list", "bootstrap.servers")),
    Setting(
        "zookeeper_session_ms",
        _COUNT,
        ("zk.sessiontimeout.ms", "zookeeper.session.timeout.ms", None),
        6_000,
    ),
    Setting("zookeeper_retries", number(0), ("zk.read.num.retries", None, None), 3),
    # What happens to a message.
    Setting(
        "type",
        choice({SYNC: SYNC, ASYNC: ASYNC}),
        in_all_ages("producer.type"),
        (SYNC, SYNC, ASYNC),
    ),
    Setting(
        "encoder",
        instance(ENCODERS),
        ("serializer.class", "serializer.class", "value.serializer"),
        _DEFAULT_ENCODER,
    ),
    Setting("key_encoder", instance(ENCODERS), (None, "key.serializer.class", "key.serializer")),
    Setting(
        "partitioner",
        instance(PARTITIONERS),
        in_all_ages("partitioner.class"),
        (DefaultPartitioner(), DefaultPartitioner(), Murmur2Partitioner()),
    ),
    Setting(
        "codec",
        choice(_CODECS),
        ("compression.codec", "compression.codec", "compression.type"),
        NONE,
    ),
    Setting(
        "compressed_topics", names, ("compressed.topics", "compressed.topics", None), ((), (), ())
    ),
    Setting(
        "message_bytes_max",
        _COUNT,
        ("max.message.size", None, "max.request.size"),
        (1_000_000, 1_000_000, 1_048_576),
    ),
    # The queue of an asynchronous producer.
    Setting(
        "linger_ms",
        _MILLISECONDS,
        ("queue.time", "queue.buffering.max.ms", "linger.ms"),
        (5_000, 5_000, 0),
    ),
    Setting(
        "batch_count",
        _COUNT,
        ("batch.size", "batch.num.messages", "batch.num.messages"),
        (200, 200, 10_000),
    ),
    Setting(
        "queue_count",
        _COUNT,
        ("queue.size", "queue.buffering.max.messages", "queue.buffering.max.messages"),
        (10_000, 10_000, 100_000),
    ),
    Setting("queue_bytes", _COUNT, in_all_ages("buffer.memory"), 32 << 20),
    Setting(
        "enqueue_timeout_ms",
        _NEVER_OR_MS,
        ("queue.enqueueTimeout.ms", "queue.enqueue.timeout.ms", "max.block.ms"),
        (0, -1, 60_000),
    ),
    Setting("event_handler", instance({}), ("event.handler", None, None)),
    Setting("event_handler_props", text, ("event.handler.props", None, None)),
    Setting("callback_handler", instance({}), ("callback.handler", None, None)),
    Setting("callback_handler_props", text, ("callback.handler.props", None, None)),
    # Acknowledgements and retries: Kafka's wire.
    Setting(
        "acks", choice(_ACKS), (None, "request.required.acks", "acks"), (ACKS_ALL, 0, ACKS_ALL)
    ),
    Setting("is_idempotent", flag, (None, None, "enable.idempotence"), defaults=True),
    Setting(
        "request_timeout_ms",
        _COUNT,
        (None, "request.timeout.ms", "request.timeout.ms"),
        (30_000, 10_000, 30_000),
    ),
    Setting(
        "delivery_timeout_ms",
        _COUNT,
        (None, None, "delivery.timeout.ms"),
        (30_000, 30_000, 120_000),
    ),
    Setting("backoff_ms", _COUNT, (None, "retry.backoff.ms", "retry.backoff.ms"), 100),
    Setting(
        "metadata_ms",
        _NEVER_OR_MS,
        (None, "topic.metadata.refresh.interval.ms", "metadata.max.age.ms"),
        (600_000, 600_000, 300_000),
    ),
    Setting("client_id", text, (None, "client.id", "client.id"), "kctl"),
    # Retries and connections: 0.7's wire.
    Setting(
        "retries", number(0), ("num.retries", "message.send.max.retries", "retries"), (0, 3, 3)
    ),
    Setting("connect_timeout_ms", _COUNT, ("connect.timeout.ms", None, None), 5_000),
    Setting("socket_timeout_ms", _COUNT, ("socket.timeout.ms", None, None), 30_000),
    Setting("reconnect_requests", number(-1), ("reconnect.interval", None, None), 30_000),
    Setting("reconnect_ms", number(-1), ("reconnect.time.interval.ms", None, None), 10_000_000),
]
# Known settings without effect here: the operating system's buffers are as it likes them, and
# ZooKeeper's times follow from the session's.
_IDLE = (
    "buffer.size",
    "send.buffer.bytes",
    "zk.connectiontimeout.ms",
    "zk.synctime.ms",
    "zookeeper.connection.timeout.ms",
    "zookeeper.sync.time.ms",
)


class ProducerConfig:
    """Settings by their names in Kafka; values are text, or have their type already.

    UsageError for a value that is not valid, for a setting in two spellings, and for settings that
    exclude each other.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        given = {name: value for name, value in properties.items() if name not in _IDLE}
        self.settings: Settings = read_settings(TABLE, given)
        self._check_places()
        self._check_combinations()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["settings"].values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def age(self) -> Age:
        """Return the age whose defaults hold."""
        return self.settings.age

    @property
    def is_async(self) -> bool:
        """Return whether `send` only enqueues."""
        return bool(self.type == ASYNC)

    def compression_of(self, topic: str) -> int:
        """Return the codec of a topic; others than `compressed.topics`, if set, have none."""
        topics = self.compressed_topics
        return int(self.codec) if not topics or topic in topics else NONE

    def handler_properties(self, name: str) -> dict[str, str]:
        """Return `event.handler.props` or `callback.handler.props`, given as `k=v,k=v`."""
        pairs = (it.partition("=") for it in (self.settings[name] or "").split(",") if it.strip())
        return {key.strip(): value.strip() for key, _, value in pairs}

    def _check_places(self) -> None:
        settings = self.settings
        given = [it for it in ("zookeeper", "broker_list", "bootstrap") if settings.is_given(it)]
        if len(given) == 1:
            return
        if given:
            shown = " and ".join(settings.shown(it) for it in given)
            raise UsageError(f"{shown} exclude each other: give one of them")
        raise UsageError(
            "it is not set where the brokers are",
            hint='set bootstrap.servers ("localhost:9092"), broker.list ("0:localhost:9092") or'
            " zk.connect",
        )

    def _check_combinations(self) -> None:
        settings = self.settings
        if settings.spelling.get("bootstrap") == "bootstrap.servers" and (
            settings.spelling.get("batch_count") == "batch.size"
        ):
            raise UsageError(
                "batch.size is a number of messages in Kafka 0.7 and of bytes today",
                hint="set batch.num.messages",
            )
        if settings.is_given("broker_list") and settings.is_given("partitioner"):
            raise UsageError(
                "partitioner.class has no effect with broker.list: the broker chooses a partition"
            )
        if self.batch_count > self.queue_count:
            raise UsageError(
                f"{settings.shown('batch_count')} ({self.batch_count}) is larger than"
                f" {settings.shown('queue_count')} ({self.queue_count})"
            )
        if settings.is_given("is_idempotent") and self.is_idempotent and self.acks != ACKS_ALL:
            raise UsageError("enable.idempotence needs acks=all")
