"""Levels of loggers, and the loggers of a broker, under the names that Apache Kafka gives them.

A logger without a level of its own has that of the nearest logger above it (`kafka.controller` is
above `kafka.controller.KafkaController`), and at last that of `root`, which always has one.

Kafka 2.7: kafka.utils.Log4jController, org.apache.kafka.common.config.LogLevelConfig; KIP-412
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Protocol

from kctl.errors import UsageError
from kctl.runtime.runtime import Runtime
from kctl.runtime.trace import Trace

ROOT = "root"


class LogLevel(IntEnum):
    """The levels of LogLevelConfig, the least severe first."""

    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARN = 3
    ERROR = 4
    FATAL = 5

    @classmethod
    def of(cls, text: str) -> "LogLevel":
        """Return the level with this name, in any case; raise UsageError without one."""
        try:
            return cls[text.upper()]
        except KeyError:
            names = ", ".join(it.name for it in cls)
            raise UsageError(f"Not a log level: {text}", hint=f"one of {names}") from None


class LogLevels:
    """The loggers of a process and their levels."""

    def __init__(self, names: Iterable[str] = (), root: LogLevel = LogLevel.INFO) -> None:
        # None: the level of the logger above.
        self._own: dict[str, LogLevel | None] = {ROOT: root, **dict.fromkeys(names)}
        self._listeners: list[Callable[[], object]] = []

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def level(self, name: str) -> LogLevel:
        """Return the level in force for a logger, which need not be known."""
        while name:
            own = self._own.get(name)
            if own is not None:
                return own
            name = name.rpartition(".")[0]
        root = self._own[ROOT]
        assert root is not None
        return root

    def shown(self) -> dict[str, LogLevel]:
        """Return the level of every logger as Log4jController lists it: that of `root` for those
        without a level of their own."""
        root = self.level(ROOT)
        return {name: root if own is None else own for name, own in self._own.items()}

    def change(self, levels: Mapping[str, LogLevel | None]) -> None:
        """Set levels; None: that of the logger above. Raise KeyError for an unknown logger and
        ValueError for `root` without a level, and change nothing then."""
        for name, level in levels.items():
            if name not in self._own:
                raise KeyError(name)
            if name == ROOT and level is None:
                raise ValueError(name)
        self._own.update(levels)
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], object]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)


class LogSink(Protocol):
    """Where lines go: a stream or file, as text or JSON."""

    def write(
        self,
        level: str,
        message: str,
        detail: str = "",
        *,
        logger: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line; `fields` are what JSON has beside the message."""
        ...


class TraceSink:
    """Passes lines to a Trace, which has two severities and no names."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def write(
        self,
        level: str,
        message: str,
        detail: str = "",
        *,
        logger: str = "",  # noqa: ARG002
        fields: Mapping[str, object] | None = None,  # noqa: ARG002
    ) -> None:
        """Write a line as INFO, or as a warning from WARN on."""
        if LogLevel[level] >= LogLevel.WARN:
            self._trace.warning(message, detail)
        else:
            self._trace.info(message)


class Loggers:
    """The named logs of one broker."""

    def __init__(self, sink: LogSink, levels: LogLevels) -> None:
        self.levels = levels
        self._sink = sink

    @classmethod
    def over(cls, trace: Trace, names: Iterable[str] = ()) -> "Loggers":
        """Return loggers with `names` whose lines go to `trace`."""
        return cls(TraceSink(trace), LogLevels(names))

    def is_enabled(self, name: str, level: LogLevel) -> bool:
        """Return whether a logger writes lines of a level."""
        return level >= self.levels.level(name)

    def log(
        self,
        name: str,
        level: LogLevel,
        message: str,
        detail: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line if its level is enabled."""
        if level >= self.levels.level(name):
            logger = "" if name == ROOT else name
            self._sink.write(level.name, message, detail, logger=logger, fields=fields)

    def trace(self, name: str = ROOT, events: Trace | None = None) -> "NamedTrace":
        """Return a Trace that writes to the logger `name`, and passes events to `events`."""
        return NamedTrace(self, name, events)

    def runtime(self, runtime: Runtime, name: str) -> Runtime:
        """Return `runtime` with the logger `name` as its trace; events go where they went."""
        return replace(runtime, trace=self.trace(name, runtime.trace))


class NamedTrace:
    """A Trace of one logger."""

    def __init__(self, loggers: Loggers, name: str, events: Trace | None = None) -> None:
        self._loggers = loggers
        self._name = name
        self._events = events

    def event(self, name: str, /, **fields: object) -> None:
        """Pass the event on."""
        if self._events is not None:
            self._events.event(name, **fields)

    def info(self, message: str) -> None:
        """Write a line at level INFO."""
        self._loggers.log(self._name, LogLevel.INFO, message)

    def warning(self, message: str, detail: str = "") -> None:
        """Write a line at level WARN and the lines of `detail`."""
        self._loggers.log(self._name, LogLevel.WARN, message, detail)
