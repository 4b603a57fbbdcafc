"""Levels of loggers, and log files that are rotated."""

import pytest

from kctl.errors import UsageError
from kctl.runtime.log_levels import Loggers, LogLevel, LogLevels
from kctl.runtime.real.trace import LineTrace, LogFile


class Lines:
    """A sink that keeps what is written."""

    def __init__(self):
        self.lines = []

    def write(self, level, message, detail="", *, logger="", fields=None):
        self.lines.append((level, logger, message))


def test_a_logger_has_the_level_of_the_nearest_logger_above():
    levels = LogLevels(["kafka", "kafka.log", "kafka.log.LogManager"])
    levels.change({"kafka": LogLevel.ERROR})
    assert levels.level("kafka.log.LogManager") is LogLevel.ERROR
    levels.change({"kafka.log": LogLevel.DEBUG, "kafka": None})

    assert levels.level("kafka.log.LogManager") is LogLevel.DEBUG
    assert levels.level("kafka") is LogLevel.INFO
    # As Kafka lists them: without a level of its own, that of the root.
    assert levels.shown()["kafka.log.LogManager"] is LogLevel.INFO


def test_a_change_is_made_as_a_whole_or_not_at_all():
    levels = LogLevels(["a"])
    calls = []
    levels.on_change(lambda: calls.append(1))
    for wrong in ({"a": LogLevel.WARN, "b": LogLevel.WARN}, {"a": LogLevel.WARN, "root": None}):
        with pytest.raises((KeyError, ValueError)):
            levels.change(wrong)

    assert levels.level("a") is LogLevel.INFO
    assert calls == []
    levels.change({"a": LogLevel.WARN})
    assert calls == [1]


def test_lines_below_the_level_are_not_written():
    sink = Lines()
    loggers = Loggers(sink, LogLevels(["a"]))
    trace = loggers.trace("a")
    trace.info("first")
    loggers.levels.change({"a": LogLevel.WARN})
    trace.info("second")
    trace.warning("third")

    assert sink.lines == [("INFO", "a", "first"), ("WARN", "a", "third")]


def test_a_level_has_a_name():
    assert LogLevel.of("warn") is LogLevel.WARN
    with pytest.raises(UsageError):
        LogLevel.of("loud")


def test_a_log_file_is_moved_when_it_has_its_size(tmp_path):
    path = tmp_path / "log"
    file = LogFile(str(path), 100)
    trace = LineTrace(file)
    for i in range(10):
        trace.info(f"message {i} of about forty bytes")

    file.close()
    assert path.stat().st_size <= 200
    assert "message 9" in path.read_text()
    assert "message 6" in (tmp_path / "log.1").read_text()


def test_a_log_file_whose_directory_is_gone_stays_open(tmp_path):
    directory = tmp_path / "logs"
    directory.mkdir()
    file = LogFile(str(directory / "log"))
    (directory / "log").unlink()
    directory.rmdir()
    file.reopen()

    assert file.write("still open\n") == len("still open\n")
    file.close()
