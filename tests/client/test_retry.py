"""RetryPolicy and the search for error codes: pure."""

import pytest

from kctl.client.retry import (
    WRONG_CONTROLLER,
    WRONG_COORDINATOR,
    RetryPolicy,
    error_codes,
    first_error_among,
)
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kctl.protocol.messages.heartbeat import HeartbeatResponse
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def no_jitter(_bound):
    return 0


def test_the_wait_doubles_up_to_its_maximum():
    policy = RetryPolicy(backoff_ms=100, backoff_ms_max=1_000)
    waits = [policy.wait_ms(attempt, no_jitter) for attempt in range(1, 7)]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_after_very_many_attempts_the_wait_is_still_the_maximum():
    assert RetryPolicy().wait_ms(1_000_000, no_jitter) == 1_000


def test_randomness_shortens_the_wait_by_at_most_a_fifth():
    bounds = []

    def most(bound):
        bounds.append(bound)
        return bound - 1

    assert RetryPolicy(backoff_ms=100).wait_ms(1, most) == 80
    assert bounds == [21]


@pytest.mark.parametrize(
    ("code", "is_worth_it"),
    [
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.TOPIC_ALREADY_EXISTS, False),
        (12_345, False),
    ],
)
def test_only_retriable_errors_are_worth_a_retry(code, is_worth_it):
    assert RetryPolicy().is_worth_a_retry(code, 1) is is_worth_it


def test_retriable_errors_are_retried_a_limited_number_of_times():
    assert not RetryPolicy(attempts_max=3).is_worth_a_retry(ErrorCode.NOT_CONTROLLER, 3)


def test_error_codes_are_found_wherever_they_are():
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="t",
                partitions=[
                    OffsetCommitResponsePartition(partition_index=0, error_code=0),
                    OffsetCommitResponsePartition(partition_index=1, error_code=16),
                ],
            )
        ]
    )
    assert list(error_codes(response)) == [16]
    assert first_error_among(response, WRONG_COORDINATOR) is ErrorCode.NOT_COORDINATOR
    assert first_error_among(response, WRONG_CONTROLLER) is None


def test_the_outermost_error_comes_first():
    assert list(error_codes(HeartbeatResponse(error_code=25))) == [25]
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=41)])
    assert first_error_among(response, WRONG_CONTROLLER) is ErrorCode.NOT_CONTROLLER


def test_a_message_without_errors_has_none():
    assert list(error_codes(MetadataRequest(topics=None))) == []
