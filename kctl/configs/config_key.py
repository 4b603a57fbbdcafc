"""ConfigKey: the name, type, default and valid values of a config; parses and formats its values.

Used for brokers (`broker_configs.py`) and topics (`topic_configs.py`).

Kafka 2.7: org.apache.kafka.common.config.ConfigDef.
"""

import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(IntEnum):
    """The types of configs, with the numbers of DescribeConfigs' `config_type` (KIP-569)."""

    # Of a config that is not Kafka's own, such as a plugin's.
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A config; `default` is a value, not text."""

    name: str
    type: ConfigType
    default: Any
    # The smallest and largest valid number, if any.
    minimum: float | None = None
    maximum: float | None = None
    # The valid values of a string, or of each item of a list, if they are limited.
    choices: tuple[str, ...] = ()
    # Whether it can be changed while the broker runs (KIP-226).
    is_dynamic: bool = False
    # Returns the error of a value that is otherwise valid, or None.
    complaint: Callable[[Any], str | None] | None = None

    @property
    def is_sensitive(self) -> bool:
        """Return whether the value must not be shown: that of a password, or of a config of unknown
        type (CVE-2019-12399)."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> Any:
        """Return the value of `text`; raise UsageError that names the config."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise UsageError(
                f"Invalid value {text} for configuration {self.name}: {_WORDS[self.type]}"
            ) from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise UsageError unless `value` is within the bounds of the config."""
        if value is None:
            return
        bits = _INTEGER_BITS.get(self.type)
        if bits and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise UsageError(
                f"Invalid value {value} for configuration {self.name}: "
                f"Not a number of type {self.type.name}"
            )
        if self.minimum is not None and value < self.minimum:
            raise self._out_of_bounds(value, f"Value must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise self._out_of_bounds(value, f"Value must be no more than {self.maximum}")
        if self.choices:
            for word in value if isinstance(value, list) else (value,):
                if word not in self.choices:
                    raise self._out_of_bounds(
                        word, f"String must be one of: {', '.join(self.choices)}"
                    )

        if self.complaint is not None:
            why = self.complaint(value)
            if why is not None:
                raise self._out_of_bounds(value, why)

    def _out_of_bounds(self, value: object, why: str) -> UsageError:
        if isinstance(value, list):
            value = f"[{', '.join(value)}]"
        return UsageError(f"Invalid value {value} for configuration {self.name}: {why}")

    def format(self, value: Any) -> str | None:
        """Return `value` as DescribeConfigs shows it; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)


# Java writes numbers outside these bounds with an exponent.
_JAVA_PLAIN_MIN, _JAVA_PLAIN_MAX = 1e-3, 1e7


def _java_double(value: float) -> str:
    """Return `value` as Java's Double.toString does."""
    if value == 0 or _JAVA_PLAIN_MIN <= abs(value) < _JAVA_PLAIN_MAX:
        return repr(value)
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    # A local import: it is slow, and only values that are very small or large need it.
    from decimal import Decimal

    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_PARSERS: Mapping[ConfigType, Callable[[str], Any]] = {
    ConfigType.UNKNOWN: str,
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}

_WORDS: Mapping[ConfigType, str] = {
    ConfigType.UNKNOWN: "Not a string",
    ConfigType.BOOLEAN: "Expected value to be either true or false",
    ConfigType.STRING: "Not a string",
    ConfigType.INT: "Not a number of type INT",
    ConfigType.SHORT: "Not a number of type SHORT",
    ConfigType.LONG: "Not a number of type LONG",
    ConfigType.DOUBLE: "Not a number of type DOUBLE",
    ConfigType.LIST: "Not a list",
    ConfigType.CLASS: "Not a class name",
    ConfigType.PASSWORD: "Not a string",
}
