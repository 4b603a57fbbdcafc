"""FailedTransitions: one line for all partitions whose state changes still fail."""

import pytest

from kctl.broker.controller.failed_transitions import REPORT_DELAY_MS, FailedTransitions
from kctl.model import TopicPartition
from tests.support.virtual_runtime import virtual_runtime

WHY = "Failed to elect leader"


@pytest.fixture
def runtime():
    return virtual_runtime()


@pytest.fixture
def failures(runtime):
    return FailedTransitions(runtime.scheduler, runtime.trace)


def partitions(count):
    return [TopicPartition("t", number) for number in range(count)]


def fail(failures, count):
    for partition in partitions(count):
        failures.add(partition, WHY)


def test_what_still_fails_after_the_delay_is_one_line(runtime, failures):
    fail(failures, 130)
    runtime.scheduler.advance(REPORT_DELAY_MS - 1)
    assert runtime.trace.warnings == []

    runtime.scheduler.advance(1)

    assert runtime.trace.warnings == [
        f"State changes of 130 partitions failed: t-0: {WHY}; t-1: {WHY}; t-2: {WHY}; and 127 more"
    ]
    fail(failures, 130)
    runtime.scheduler.advance(REPORT_DELAY_MS)
    assert len(runtime.trace.warnings) == 1


def test_partitions_that_recover_are_not_reported(runtime, failures):
    fail(failures, 2)
    failures.resolve(TopicPartition("t", 0))
    runtime.scheduler.advance(REPORT_DELAY_MS)
    assert runtime.trace.warnings == [f"State changes of 1 partition failed: t-1: {WHY}"]

    failures.resolve(TopicPartition("t", 1))
    fail(failures, 2)
    runtime.scheduler.advance(REPORT_DELAY_MS)
    assert len(runtime.trace.warnings) == 2


def test_a_controller_that_resigns_reports_nothing(runtime, failures):
    fail(failures, 2)
    failures.clear()
    runtime.scheduler.advance(REPORT_DELAY_MS)
    assert runtime.trace.warnings == []
