"""SourceOptions: the options of the data source `kctl`, named as Spark's Kafka source names them.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider
"""

import json
import re
from collections.abc import Mapping

from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import UsageError
from kctl.export.options import ExportOptions, Isolation
from kctl.export.spark.admission import Limits
from kctl.export.spark.brokers import Connection
from kctl.model import Position, PositionKind, TopicPartition

# What Spark's Kafka source writes for them in JSON.
_LATEST, _EARLIEST = -1, -2
_SPLIT_BYTES = 128 * 1024 * 1024
_TIMEOUT_MS = 60_000
_SERVERS = "kafka.bootstrap.servers"
_DELAY = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class SourceOptions:
    """The options, whose names are not case-sensitive; it pickles."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        if ("path" in self._options) == (_SERVERS in self._options):
            raise UsageError(
                "The source is load(LOG_DIRECTORY), or brokers by the option "
                f"{_SERVERS}: one of them"
            )
        given = [name for name in ("assign", "subscribe", "subscribePattern") if self.get(name)]
        if len(given) > 1:
            raise UsageError(f"One of {' and '.join(given)}, not both")
        if not given and self.path is None:
            raise UsageError("No topics: subscribe, subscribePattern or assign names them")

    @property
    def path(self) -> str | None:
        """The log directory, if it is not brokers."""
        return self._options.get("path")

    @property
    def connection(self) -> Connection:
        """The brokers; further options that begin with `kafka.` are those of Apache's clients."""
        properties = {
            name.removeprefix("kafka."): value
            for name, value in self._options.items()
            if name.startswith("kafka.") and name != _SERVERS
        }
        servers = parse_servers(self._options[_SERVERS])
        return Connection(tuple(servers), _TIMEOUT_MS, tuple(properties.items()))

    @property
    def min_partitions(self) -> int:
        """How many splits there should be at least; 0: as it comes."""
        return self._number("minPartitions") or 0

    @property
    def limits(self) -> Limits | None:
        """Of a stream's batches; None: there are none, all that is there is a batch."""
        names = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
        most, least = map(self._number, names)
        if most is None and least is None:
            return None
        delay = self.get("maxTriggerDelay")
        if delay is None:
            return Limits(most, least)
        match = _DELAY.fullmatch(delay.strip().lower())
        if match is None or match[2] not in _UNITS_MS:
            raise UsageError(f"maxTriggerDelay: not a time: {delay}", hint="e.g. 90s or 15m")
        return Limits(most, least, int(match[1]) * _UNITS_MS[match[2]])

    @property
    def is_start_given(self) -> bool:
        """Whether a streaming query is told where it begins."""
        names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
        return any(self.get(name) is not None for name in names)

    def get(self, name: str) -> str | None:
        """One of them, if it is given."""
        return self._options.get(name.lower())

    def _number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None or text.isdecimal():
            return None if text is None else int(text)
        raise UsageError(f"{name}: not a number: {text}")

    def flag(self, name: str, *, default: bool = False) -> bool:
        """One that is true or false."""
        text = self.get(name)
        return default if text is None else text.lower() == "true"

    def subscribed(self) -> list[str]:
        """The topics that are named, by `subscribe` or `assign`."""
        if self.get("assign") is not None:
            return list(self.assigned())
        return [it.strip() for it in (self.get("subscribe") or "").split(",") if it.strip()]

    def assigned(self) -> dict[str, list[int]]:
        """Topics to partitions, if `assign` names them."""
        text = self.get("assign")
        if text is None:
            return {}
        try:
            return {
                topic: [int(it) for it in numbers] for topic, numbers in json.loads(text).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise UsageError(
                f"assign: not partitions: {text}", hint='e.g. {"orders": [0, 1]}'
            ) from None

    def export_options(self, names: tuple[str, ...]) -> ExportOptions:
        """What reading needs of them."""
        isolation = self.get("kafka.isolation.level") or Isolation.READ_UNCOMMITTED.value
        return ExportOptions(
            columns=names,
            isolation=Isolation(isolation),
            fails_on_damage=self.flag("failOnDataLoss", default=True),
            file_bytes=_SPLIT_BYTES,
        )

    def bound(self, which: str, topic_partition: TopicPartition) -> Position:
        """`starting` or `ending`: where that is in a log."""
        instant = self.get(f"{which}Timestamp")
        if instant is not None:
            return Position(PositionKind.TIME, int(instant))
        for name, kind in (
            (f"{which}OffsetsByTimestamp", PositionKind.TIME),
            (f"{which}Offsets", PositionKind.OFFSET),
        ):
            text = self.get(name)
            if text is None:
                continue
            if text.lower() in ("earliest", "latest"):
                return Position(PositionKind[text.upper()])
            value = _of_partition(name, text, topic_partition)
            if value is not None:
                return _position(kind, value)
        is_start = which == "starting"
        return Position(PositionKind.EARLIEST if is_start else PositionKind.LATEST)


def _of_partition(name: str, text: str, topic_partition: TopicPartition) -> int | None:
    topic, partition = topic_partition
    try:
        found = json.loads(text).get(topic, {}).get(str(partition))
        return None if found is None else int(found)
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f"{name}: not offsets: {text}", hint='e.g. earliest, or {"orders": {"0": 23}}'
        ) from None


def _position(kind: PositionKind, value: int) -> Position:
    if kind is PositionKind.OFFSET and value in (_LATEST, _EARLIEST):
        return Position(PositionKind.LATEST if value == _LATEST else PositionKind.EARLIEST)
    return Position(kind, value)
