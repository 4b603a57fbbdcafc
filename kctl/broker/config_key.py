"""ConfigKey: name, type, default and valid values of one setting; text to value and back.

Used for the broker's settings (`config.py`) and for a topic's (`topic_configs.py`).

Kafka 2.7: org.apache.kafka.common.config.ConfigDef.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kctl.errors import UsageError

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(IntEnum):
    """The numbers are DescribeConfigs' `config_type` (KIP-569)."""

    # Of a setting that is not Kafka's own, such as a plugin's.
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
    """One setting; `default` is a value, not text."""

    name: str
    type: ConfigType
    default: Any
    # Smallest and largest legal number, if any.
    minimum: float | None = None
    maximum: float | None = None
    # Legal words (of a string, or of each item of a list), if only some are.
    choices: tuple[str, ...] = ()
    # May be changed while the broker runs (KIP-226).
    is_dynamic: bool = False
    # What is wrong with a value beyond all that; None: nothing.
    complaint: Callable[[Any], str | None] | None = None

    @property
    def is_sensitive(self) -> bool:
        """Never shown (CVE-2019-12399); nor is what nobody knows the meaning of."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> Any:
        """The value that `text` spells; UsageError naming the setting if it spells none."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise UsageError(
                f"Invalid value {text} for configuration {self.name}: {_WORDS[self.type]}"
            ) from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """UsageError unless `value` is within the setting's bounds."""
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
        """How DescribeConfigs spells `value`; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)


def _java_double(value: float) -> str:
    text = repr(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return text


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
