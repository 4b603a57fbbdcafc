"""SinkOptions: the options and columns with which the data source `kctl` writes, named and
validated as in Spark's Kafka sink.

Unknown options are rejected; options of the source have no effect, so that both ends of a job may
share them. `kctl.exactly.once` and `kctl.transactional.id` are kctl's own.

Spark: org.apache.spark.sql.kafka010.{KafkaSourceProvider, KafkaWriter}
"""

import difflib
import re
from collections.abc import Mapping

from kctl.client.bootstrap_servers import parse_servers
from kctl.client.producer import BATCH_BYTES_MAX
from kctl.errors import UsageError
from kctl.export.spark.brokers import Connection
from kctl.export.spark.options import KNOWN_OPTIONS
from kctl.export.spark.producer_settings import PRODUCER_SETTINGS, READ_AS_PRODUCER
from kctl.kafka.producer_config import ProducerConfig
from kctl.protocol.constants import ACKS_ALL
from kctl.records.columnar_encoder import BATCH_BYTES

EXACTLY_ONCE = "kctl.exactly.once"
TRANSACTIONAL_ID = "kctl.transactional.id"
_SERVERS = "kafka.bootstrap.servers"
# Spark passes the last two on to a sink.
_NAMES = ("topic", EXACTLY_ONCE, TRANSACTIONAL_ID, "checkpointLocation", "queryName")
_KNOWN = {name.lower(): name for name in _NAMES} | KNOWN_OPTIONS
_HEADERS = "array<struct<key:string,value:binary>>"
# The types of columns, as Spark's `simpleString` has them.
_TYPES = {
    "topic": ("string",), "key": ("string", "binary"), "value": ("string", "binary"),
    "partition": ("int",), "headers": (_HEADERS,),
}  # fmt: skip
SINK_COLUMNS = tuple(_TYPES)
# The highest that brokers accept by default (transaction.max.timeout.ms).
_TRANSACTION_TIMEOUT_MS = 15 * 60_000
_NUMBER = re.compile(r"[0-9]{1,9}")


class SinkOptions:
    """The options, with case-insensitive names. It can be pickled.

    UsageError if an option is invalid.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._check_names()
        if _SERVERS not in self._options:
            raise UsageError(f"The option {_SERVERS} must be specified: rows go to live brokers")
        parse_servers(self._options[_SERVERS])
        if self.topic == "":
            raise UsageError("topic is empty")
        producer = self.producer
        self._number("kafka.batch.size", 0)
        self._number("kafka.transaction.timeout.ms", 0)
        if self.is_exactly_once:
            if producer.acks != ACKS_ALL or not producer.is_idempotent:
                raise UsageError(f"{EXACTLY_ONCE} needs kafka.acks=all and idempotence")
            if self.topic is None:
                raise UsageError(
                    f"{EXACTLY_ONCE} needs the option topic",
                    hint="write each topic with a query of its own",
                )
        elif self.transactional_id is not None:
            raise UsageError(f"{TRANSACTIONAL_ID} is for {EXACTLY_ONCE}=true")

    def check_batch(self, *, overwrite: bool) -> None:
        """Raise UsageError for a mode in which Kafka cannot be written."""
        if overwrite:
            raise UsageError(
                "Save mode Overwrite is not allowed for Kafka: records are only added",
                hint='mode("append")',
            )

    def check_columns(self, types: Mapping[str, str]) -> None:
        """Raise UsageError for columns, by name and type (Spark's `simpleString`), that cannot be
        written. Other columns are ignored."""
        if self.topic is None and "topic" not in types:
            raise UsageError(
                "No topic: topic option required when no 'topic' attribute is present",
                hint="set the option topic, or add a column topic",
            )
        if "value" not in types:
            raise UsageError("Required attribute 'value' not found")
        for name, allowed in _TYPES.items():
            if name in types and types[name] not in allowed:
                raise UsageError(
                    f"The column {name} is {types[name]}; it must be {' or '.join(allowed)}"
                )

    @property
    def topic(self) -> str | None:
        """Return the topic of all rows; None if a column names it."""
        return self._options.get("topic")

    @property
    def is_exactly_once(self) -> bool:
        """Return whether rows are written in transactions."""
        text = self._options.get(EXACTLY_ONCE, "false")
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{EXACTLY_ONCE} is neither true nor false: {text}")
        return text.lower() == "true"

    @property
    def transactional_id(self) -> str | None:
        """Return the name from which those of transactions are made, if it is given."""
        return self._options.get(TRANSACTIONAL_ID)

    @property
    def transaction_timeout_ms(self) -> int:
        """Return how long a transaction may stay open before brokers abort it."""
        return self._number("kafka.transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)

    @property
    def batch_bytes(self) -> int:
        """Return the size of batches before compression, in bytes."""
        return max(1, min(self._number("kafka.batch.size", BATCH_BYTES), BATCH_BYTES_MAX))

    @property
    def producer(self) -> ProducerConfig:
        """Return the settings of producers; UsageError if one is invalid."""
        given = {
            name: value
            for name, value in self._properties().items()
            if name in READ_AS_PRODUCER or name == "bootstrap.servers"
        }
        return ProducerConfig(given)

    @property
    def connection(self) -> Connection:
        """Return the brokers, with the other `kafka.` options as client settings."""
        properties = self._properties()
        servers = parse_servers(properties.pop("bootstrap.servers"))
        timeout_ms = self.producer.request_timeout_ms
        return Connection(tuple(servers), timeout_ms, tuple(properties.items()))

    def _properties(self) -> dict[str, str]:
        return {
            name.removeprefix("kafka."): value
            for name, value in self._options.items()
            if name.startswith("kafka.")
        }

    def _number(self, name: str, default: int) -> int:
        text = self._options.get(name)
        if text is None:
            return default
        if _NUMBER.fullmatch(text) is None:
            raise UsageError(f"{name} is not a number: {text}")
        return int(text)

    def _check_names(self) -> None:
        for name in self._options:
            if name == "path":
                raise UsageError("save() and start() take no path: topic names where rows go")
            if name.startswith("kafka."):
                PRODUCER_SETTINGS.check(name)
            elif name not in _KNOWN:
                near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8)
                hint = f"did you mean {_KNOWN[near[0]]}?" if near else None
                raise UsageError(f"kctl has no option {name}", hint=hint)
