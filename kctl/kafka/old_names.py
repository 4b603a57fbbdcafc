"""Names of client settings from three ages of Kafka, mapped to one table with types and defaults.

A setting has a spelling in 0.7 (`queue.time`), in 0.8 to 1.1 (`queue.buffering.max.ms`) and in
today's clients (`linger.ms`). A configuration may use any of them, but one setting only once. The
defaults are those of the oldest age of which it uses a spelling that no other age has, and without
such a spelling those of today. Names that no table has are reported, not refused, as in Kafka.
Pure.

Kafka: kafka.producer.ProducerConfig and kafka.consumer.ConsumerConfig of 0.7.2 and 1.1.1.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from kctl.errors import UsageError, close_name
from kctl.lazy_dataclass import dataclass

# Settings of connections, which `kctl.client.security` reads.
SECURITY_PREFIXES = ("security.", "sasl.", "ssl.", "enable.sasl.")


class Age(IntEnum):
    """The age of a spelling, oldest first."""

    KAFKA_07 = 0
    # The clients in Scala of 0.8 to 1.1.
    KAFKA_08 = 1
    # The clients in Java, and librdkafka.
    TODAY = 2


Reader = Callable[[str, object], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `names` and `defaults` are those of 0.7, 0.8 and today; a name None: it does not
    exist in that age. A single default holds for all ages."""

    name: str
    read: Reader
    names: tuple[str | None, str | None, str | None]
    defaults: tuple[Any, Any, Any] | object = None

    def default(self, age: Age) -> Any:
        """Return the default in `age`."""
        return self.defaults[age] if isinstance(self.defaults, tuple) else self.defaults


def in_all_ages(name: str) -> tuple[str, str, str]:
    """Return the names of a setting that is called alike in all ages, for `Setting.names`."""
    return name, name, name


def renamed_since_07(name07: str, name: str) -> tuple[str, str, str]:
    """Return the names of a setting that has another name in 0.7."""
    return name07, name, name


def since_08(name: str) -> tuple[None, str, str]:
    """Return the names of a setting that 0.7 does not have."""
    return None, name, name


def today_only(name: str) -> tuple[None, None, str]:
    """Return the names of a setting that only today's clients have."""
    return None, None, name


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of one configuration, by `Setting.name`."""

    values: Mapping[str, Any]
    age: Age
    # Setting.name -> the spelling in which it was given.
    spelling: Mapping[str, str]
    # Settings of TLS and SASL, as given.
    security: Mapping[str, str]
    # A sentence for each name that no table has.
    warnings: tuple[str, ...]
    # Setting.name -> the name in Kafka's documentation of `age`.
    documented: Mapping[str, str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def is_given(self, name: str) -> bool:
        """Return whether the configuration has the setting, in whatever spelling."""
        return name in self.spelling

    def shown(self, name: str) -> str:
        """Return the spelling in which a setting was given, or would be, for messages."""
        return self.spelling.get(name) or self.documented[name]


def read_settings(table: Iterable[Setting], given: Mapping[str, object]) -> Settings:
    """Return `given`, whose values are text or already of their type, by `table`.

    UsageError for a value that is not valid, and for a setting that is given in two spellings.
    """
    settings = list(table)
    by_name = {name: it for it in settings for name in it.names if name is not None}
    spelling: dict[str, str] = {}
    values: dict[str, Any] = {}
    security: dict[str, str] = {}
    warnings = []
    for name, value in given.items():
        setting = by_name.get(name)
        if setting is None:
            if name.startswith(SECURITY_PREFIXES):
                security[name] = str(value)
            else:
                warnings.append(_unknown(name, by_name))
        elif setting.name in spelling:
            raise UsageError(
                f"{spelling[setting.name]} and {name} are the same setting: give one of them"
            )
        else:
            spelling[setting.name] = name
            values[setting.name] = setting.read(name, value)
    age = _age(settings, spelling)
    for setting in settings:
        values.setdefault(setting.name, setting.default(age))
    documented = {it.name: it.names[age] or next(filter(None, it.names)) for it in settings}
    return Settings(values, age, spelling, security, tuple(warnings), documented)


def _age(settings: Iterable[Setting], spelling: Mapping[str, str]) -> Age:
    """Return the oldest age of which `spelling` has a name that no other age has."""
    found = Age.TODAY
    for setting in settings:
        given = spelling.get(setting.name)
        ages = [age for age in Age if given is not None and setting.names[age] == given]
        if len(ages) == 1:
            found = min(found, ages[0])
    return found


def _unknown(name: str, known: Iterable[str]) -> str:
    near = close_name(name, known)
    return f"unknown setting {name}" + (f": did you mean {near}?" if near else "")


def text(name: str, value: object) -> str:
    """Read a text, which may not be empty."""
    found = str(value).strip()
    if not found:
        raise UsageError(f"{name} is empty")
    return found


def names(_name: str, value: object) -> tuple[str, ...]:
    """Read a list of names: text with commas, or an iterable of texts."""
    if not isinstance(value, str) and isinstance(value, Iterable):
        return tuple(str(it) for it in value)
    return tuple(it for it in (part.strip() for part in str(value).split(",")) if it)


def flag(name: str, value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    found = {"true": True, "false": False}.get(str(value).strip().lower())
    if found is None:
        raise UsageError(f"{name}={value}: true or false is expected")
    return found


def number(low: int, high: int = 2**63 - 1) -> Reader:
    """Return a reader of integers from `low` to `high`."""

    def read(name: str, value: object) -> int:
        try:
            found = int(str(value).strip())
        except ValueError:
            raise UsageError(f"{name}={value} is not an integer") from None
        if not low <= found <= high:
            raise UsageError(f"{name}={found} is not between {low} and {high}")
        return found

    return read


def choice(values: Mapping[str, Any]) -> Reader:
    """Return a reader of one of the texts in `values`, whose value is taken."""

    def read(name: str, value: object) -> Any:
        found = values.get(str(value).strip().lower())
        if found is None:
            raise UsageError(f"{name}={value} is not supported", hint=f"one of {', '.join(values)}")
        return found

    return read


def instance(known: Mapping[str, Any]) -> Reader:
    """Return a reader of an object, or of the name of one of Kafka's classes, in `known`.

    Other names of classes are refused: a library imports nothing because a setting says so.
    """

    def read(name: str, value: object) -> Any:
        if not isinstance(value, str):
            return value
        if value not in known:
            raise UsageError(
                f"{name}={value}: this class is not known here", hint="pass an object instead"
            )
        return known[value]

    return read
