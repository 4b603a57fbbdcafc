"""Negotiation with brokers of every age."""

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponseKey
from kctl.protocol.negotiation import NegotiatedVersions


def broker(**ranges):
    keys = [
        ApiVersionsResponseKey(api_key=ApiKey[name], min_version=first, max_version=last)
        for name, (first, last) in ranges.items()
    ]
    return NegotiatedVersions(keys, "broker 1")


KAFKA_0_10 = broker(PRODUCE=(0, 2), FETCH=(0, 2), METADATA=(0, 1))
KAFKA_4 = broker(PRODUCE=(3, 12), FETCH=(4, 17), METADATA=(0, 13), CREATE_TOPICS=(2, 7))


def test_the_newest_common_version_is_picked():
    assert KAFKA_0_10.pick(ApiKey.FETCH) == 2
    assert KAFKA_4.pick(ApiKey.FETCH) == 12
    assert KAFKA_4.pick(ApiKey.PRODUCE) == 8


def test_the_caller_may_narrow_the_choice():
    assert KAFKA_4.pick(ApiKey.FETCH, last=11) == 11
    assert KAFKA_4.pick(ApiKey.FETCH, first=5, last=6) == 6
    with pytest.raises(ApiError, match="broker 1 speaks Fetch 4 to 17, but 0 to 3 is needed"):
        KAFKA_4.pick(ApiKey.FETCH, last=3)


def test_a_broker_that_is_too_old_is_named_with_what_it_speaks():
    with pytest.raises(ApiError, match="broker 1 speaks Metadata 0 to 1, but 8 to 9") as caught:
        KAFKA_0_10.pick(ApiKey.METADATA, first=8)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="broker 1 does not know CreateTopics"):
        KAFKA_0_10.pick(ApiKey.CREATE_TOPICS)


def test_a_broker_that_dropped_our_versions_is_too_new():
    newer = broker(METADATA=(10, 20))
    assert not newer.has(ApiKey.METADATA)
    with pytest.raises(ApiError, match="speaks Metadata 10 to 20, but 0 to 9 is needed"):
        newer.pick(ApiKey.METADATA)


def test_apis_that_we_do_not_know_are_ignored():
    keys = [
        ApiVersionsResponseKey(api_key=68, max_version=1),
        ApiVersionsResponseKey(api_key=3, max_version=3),
    ]
    versions = NegotiatedVersions(keys)
    assert versions.pick(ApiKey.METADATA) == 3


def test_whether_a_feature_is_there_is_asked_by_version():
    assert KAFKA_0_10.has(ApiKey.METADATA, 1)
    assert not KAFKA_0_10.has(ApiKey.METADATA, 2)
    assert not KAFKA_0_10.has(ApiKey.ALTER_ISR)
