"""SourceOptions: the options of the data source `kctl`, named and validated as in Spark's Kafka
source.

Unknown options are rejected, although Spark's source ignores them, because a misspelt option would
otherwise read the wrong records. Consumer settings (`kafka.*`) that affect how records are fetched,
but not which, are accepted and have no effect.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider
"""

import difflib
import json
import re
from collections.abc import Mapping

from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError
from kctl.export.options import ExportOptions, parse_isolation
from kctl.export.spark.admission import Limits
from kctl.export.spark.bounds import (
    Bound,
    BoundKind,
    NoMatch,
    check_batch,
    end_bound,
    no_match,
    start_bound,
)
from kctl.export.spark.brokers import Connection
from kctl.export.spark.consumer_settings import CONSUMER_SETTINGS
from kctl.export.spark.topic_pattern import compile_topic_pattern
from kctl.model import TopicPartition

# kctl's own: commit a stream's offsets to kafka.group.id.
COMMIT_OFFSETS = "kctl.commit.offsets"
_GROUP = "kafka.group.id"
_SPLIT_BYTES = 128 * 1024 * 1024
_TIMEOUT_MS = 60_000
_SERVERS = "kafka.bootstrap.servers"
_ISOLATION = "kafka.isolation.level"
_STRATEGIES = ("assign", "subscribe", "subscribePattern")
_ENDS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_POSITIVE = ("minPartitions", "maxRecordsPerPartition", "fetchOffset.numRetries")
_NOT_NEGATIVE = ("fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs")
_NAMES = (
    "path", *_STRATEGIES, "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "startingOffsetsByTimestampStrategy", *_ENDS, "failOnDataLoss", "includeHeaders", *_POSITIVE,
    *_NOT_NEGATIVE, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "groupIdPrefix", COMMIT_OFFSETS,
)  # fmt: skip
# By their names in lower case.
KNOWN_OPTIONS = {name.lower(): name for name in _NAMES}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
# Spark's own syntax of times, with its units; kctl's is that of `kctl.cli.units`.
_DELAY = re.compile(r"(-?[0-9]{1,18})([a-z]*)")
_UNITS_US = {
    "us": 1, "": 1000, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "min": 60 * 10**6,
    "h": 3600 * 10**6, "d": 86_400 * 10**6,
}  # fmt: skip


class SourceOptions:
    """The options, with case-insensitive names. It can be pickled.

    UsageError if an option is invalid for batches and streams alike.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._check_names()
        if ("path" in self._options) == (_SERVERS in self._options):
            raise UsageError(
                f"Either load(LOG_DIRECTORY) or the option {_SERVERS} names the source, not both"
            )
        self._check_strategy()
        for name in _POSITIVE:
            self._number(name, least=1)
        for name in _NOT_NEGATIVE:
            self._number(name, least=0)
        self.flag("failOnDataLoss", default=True)
        self.flag("includeHeaders")
        if self.flag(COMMIT_OFFSETS):
            self._check_group()
        parse_isolation(self.get(_ISOLATION), _ISOLATION)
        if self.path is None:
            parse_servers(self._options[_SERVERS])
        least, most = self.get("minOffsetsPerTrigger"), self.get("maxOffsetsPerTrigger")
        if least is not None and most is not None:
            self._check_limits()

    def check_batch(self) -> None:
        """Raise UsageError if a batch cannot have these options."""
        if self.flag(COMMIT_OFFSETS):
            raise UsageError(f"{COMMIT_OFFSETS} is for streams: a batch may be read many times")
        check_batch(self.start(BoundKind.EARLIEST), self.end)

    def check_stream(self) -> None:
        """Raise UsageError if a stream cannot have these options."""
        for name in _ENDS:
            if self.get(name) is not None:
                raise UsageError(f"{name} is for batch queries: a stream has no end")
        self.start(BoundKind.LATEST)
        self._check_limits()

    @property
    def path(self) -> str | None:
        """Return the log directory; None if the source is live brokers."""
        return self._options.get("path")

    @property
    def connection(self) -> Connection:
        """Return the brokers, with the other `kafka.` options as client settings."""
        properties = {
            name.removeprefix("kafka."): value
            for name, value in self._options.items()
            if name.startswith("kafka.") and name != _SERVERS
        }
        servers = parse_servers(self._options[_SERVERS])
        timeout_ms = self._number("kafkaConsumer.pollTimeoutMs") or _TIMEOUT_MS
        return Connection(tuple(servers), timeout_ms, tuple(properties.items()))

    def start(self, default: BoundKind) -> Bound:
        """Return where a query begins; UsageError if an option is invalid."""
        return start_bound(self.get, default)

    @property
    def end(self) -> Bound:
        """Return where a batch ends; UsageError if an option is invalid."""
        return end_bound(self.get)

    @property
    def on_no_match(self) -> NoMatch:
        """Return what to do with a start that has no match; UsageError if the option is invalid."""
        return no_match(self.get)

    @property
    def fails_on_data_loss(self) -> bool:
        """Return whether a query fails if records it must read no longer exist."""
        return self.flag("failOnDataLoss", default=True)

    @property
    def min_partitions(self) -> int:
        """Return the minimum number of splits; 0 for no minimum."""
        return self._number("minPartitions") or 0

    @property
    def max_records_per_partition(self) -> int | None:
        """Return the maximum number of offsets in a split; None for no maximum."""
        return self._number("maxRecordsPerPartition")

    @property
    def limits(self) -> Limits | None:
        """Return the limits of a stream's batches; None if each takes everything available."""
        most = self._number("maxOffsetsPerTrigger", least=1)
        least = self._number("minOffsetsPerTrigger")
        delay_ms = self._delay_ms()
        if most is None and least is None:
            return None
        return Limits(most, least) if delay_ms is None else Limits(most, least, delay_ms)

    @property
    def committing_group(self) -> str | None:
        """Return the group to which a stream commits its offsets; None if it does not."""
        return self.get(_GROUP) if self.flag(COMMIT_OFFSETS) else None

    def get(self, name: str) -> str | None:
        """Return the value of an option, or None."""
        return self._options.get(name.lower())

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean option; UsageError if it is neither true nor false."""
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{name} is neither true nor false: {text}")
        return text.lower() == "true"

    def chooses(self, topic: str) -> bool:
        """Return whether `subscribePattern` selects a topic; without the option all are
        selected."""
        pattern = self.get("subscribePattern")
        return pattern is None or compile_topic_pattern(pattern).search(topic) is not None

    def topics(self) -> list[str] | None:
        """Return the topics named by `subscribe` or `assign`; None if neither is set."""
        if self.get("assign") is not None:
            return list(dict.fromkeys(it.topic for it in self.assigned()))
        text = self.get("subscribe")
        if text is None:
            return None
        return list(dict.fromkeys(it.strip() for it in text.split(",") if it.strip()))

    def assigned(self) -> list[TopicPartition]:
        """Return the partitions named by `assign`."""
        text = self.get("assign")
        if text is None:
            return []
        try:
            return [
                TopicPartition(topic, _partition(number))
                for topic, numbers in json.loads(text).items()
                for number in numbers
            ]
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise UsageError(
                f"assign is not partitions of topics: {text}", hint='e.g. {"orders": [0, 1]}'
            ) from None

    def export_options(self, names: tuple[str, ...]) -> ExportOptions:
        """Return the options for reading the columns `names`."""
        return ExportOptions(
            columns=names,
            isolation=parse_isolation(self.get(_ISOLATION), _ISOLATION),
            fails_on_damage=self.fails_on_data_loss,
            file_bytes=_SPLIT_BYTES,
        )

    def _check_group(self) -> None:
        if self.path is not None:
            raise UsageError(f"{COMMIT_OFFSETS} needs live brokers, not a log directory")
        if not self.get(_GROUP):
            raise UsageError(f"{COMMIT_OFFSETS} needs the option {_GROUP}")

    def _check_names(self) -> None:
        for name in self._options:
            if name.startswith("kafka."):
                CONSUMER_SETTINGS.check(name)
            elif name not in KNOWN_OPTIONS:
                near = difflib.get_close_matches(name, KNOWN_OPTIONS, n=1, cutoff=0.8)
                hint = f"did you mean {KNOWN_OPTIONS[near[0]]}?" if near else None
                raise UsageError(f"kctl has no option {name}", hint=hint)

    def _check_strategy(self) -> None:
        given = [name for name in _STRATEGIES if self.get(name) is not None]
        if len(given) > 1:
            raise UsageError(f"Only one of {' and '.join(given)} can be given, not both")
        if not given and self.path is None:
            raise UsageError("No topics: set subscribe, subscribePattern or assign")
        if self.topics() == [] and given == ["subscribe"]:
            raise UsageError("subscribe names no topic")
        self.assigned()
        self.chooses("")

    def _check_limits(self) -> None:
        limits = self.limits
        if limits is None:
            return
        least, most = limits.offsets_min, limits.offsets_max
        if least is not None and most is not None and least > most:
            raise UsageError(
                f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})"
            )

    def _number(self, name: str, *, least: int = 0) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if _NUMBER.fullmatch(text) is None:
            raise UsageError(f"{name} is not a number: {text}")
        if int(text) < least:
            raise UsageError(f"{name} must be at least {least}, not {text}")
        return int(text)

    def _delay_ms(self) -> int | None:
        delay = self.get("maxTriggerDelay")
        if delay is None:
            return None
        match = _DELAY.fullmatch(delay.strip().lower())
        if match is None or match[2] not in _UNITS_US:
            raise UsageError(f"maxTriggerDelay is not a time: {delay}", hint="e.g. 90s or 15m")
        return int(match[1]) * _UNITS_US[match[2]] // 1000


def _partition(value: object) -> int:
    if type(value) is not int:
        raise ValueError(value)
    return value
