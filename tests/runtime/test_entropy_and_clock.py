"""The small doors: time, randomness, log lines."""

import io
import re

import pytest

from kctl.runtime.real.clock import RealClock
from kctl.runtime.real.entropy import RealEntropy
from kctl.runtime.real.trace import LineTrace


def test_random_below_reaches_every_number_and_no_other():
    entropy = RealEntropy()
    assert {entropy.random_below(5) for _ in range(500)} == {0, 1, 2, 3, 4}
    assert entropy.random_below(1) == 0
    assert {entropy.random_below(256) < 256 for _ in range(500)} == {True}


def test_random_below_needs_a_positive_bound():
    with pytest.raises(ValueError, match="positive bound"):
        RealEntropy().random_below(0)


def test_random_bytes_differ():
    assert RealEntropy().random_bytes(16) != RealEntropy().random_bytes(16)


def test_monotonic_time_does_not_go_back():
    clock = RealClock()
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
    assert clock.wall_ms() > 1_600_000_000_000


def test_a_log_line_has_time_severity_and_words():
    stream = io.StringIO()
    trace = LineTrace(stream)
    trace.info("started")
    trace.warning("odd")
    trace.event("not asked for", a=1)
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] INFO started", lines[0])
    assert lines[1].endswith("] WARN odd")
    assert len(lines) == 2


def test_events_are_written_when_asked_for():
    stream = io.StringIO()
    LineTrace(stream, with_events=True).event("leader_change", leader=1)
    assert stream.getvalue().endswith("EVENT leader_change leader=1\n")


def test_a_broken_stream_does_not_stop_what_it_reports_on():
    stream = io.StringIO()
    trace = LineTrace(stream)
    stream.close()
    trace.info("into the void")
    trace.info("again")
