"""The definitions are those of Apache Kafka 2.7.2: each message, field, version, tag, default."""

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.headers import RequestHeader, ResponseHeader
from kctl.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kctl.protocol.schema import VERSION_MAX, version_range
from tests.protocol.message_facts import FACTS, expected, facts, ours

# kctl's definitions where they differ on purpose: record data are opaque, and null by default; a
# struct that is used twice takes its versions from the field that holds it.
OWNED = "ConsumerProtocolSubscription.owned_partitions"
DIFFERENT = {
    "ProduceRequest.topics.partitions.records": ("records", "0+", "0+", None, None, False),
    f"{OWNED}.topic": ("string", "0+", None, None, "", False),
    f"{OWNED}.partitions": ("[]int32", "0+", None, None, ..., False),
}


CLASSES = [cls for api in ApiKey for cls in (api.request_class, api.response_class)]
CLASSES += [
    RequestHeader,
    ResponseHeader,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]
# Two structs of one name cannot live in one module: the response's gets a suffix.
RENAMED = {"TopicDataResponse", "PartitionDataResponse", "EntryDataResponse"}


def with_kafkas_names(fields):
    def kafkas(kind):
        plain = kind.removeprefix("[]")
        return kind.removesuffix("Response") if plain in RENAMED else kind

    return {path: (kafkas(values[0]), *values[1:]) for path, values in fields.items()}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_message_has_the_fields_of_the_facts_table(cls):
    versions, flexible, fields = facts()[cls.__name__]
    assert (cls.min_version, cls.max_version) == version_range(versions)
    assert cls.flexible_from == (VERSION_MAX if flexible == "none" else int(flexible[:-1]))
    assert with_kafkas_names(dict(ours(cls, cls.__name__))) == expected(fields, DIFFERENT)


def test_every_message_of_the_table_has_a_class():
    """But for KRaft's, which no 2.7 broker serves."""
    raft = {
        f"{api}{kind}"
        for api in ("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum")
        for kind in ("Request", "Response")
    }
    missing = set(facts()) - {cls.__name__ for cls in CLASSES} - raft
    assert missing == {"LeaderChangeMessage"}


def test_there_are_54_apis():
    assert [int(api) for api in ApiKey] == [*range(52), 56, 57]
    assert ApiKey.LIST_OFFSETS.title == "ListOffsets"
    assert [api.name for api in ApiKey if api.is_cluster_action] == [
        "LEADER_AND_ISR",
        "STOP_REPLICA",
        "UPDATE_METADATA",
        "CONTROLLED_SHUTDOWN",
        "WRITE_TXN_MARKERS",
        "ALTER_ISR",
    ]


def test_header_versions_follow_flexibility_with_two_exceptions():
    assert ApiKey.FETCH.request_header_version(11) == 1
    assert ApiKey.FETCH.request_header_version(12) == 2
    assert ApiKey.FETCH.response_header_version(12) == 1
    assert ApiKey.CONTROLLED_SHUTDOWN.request_header_version(0) == 0
    assert ApiKey.CONTROLLED_SHUTDOWN.request_header_version(1) == 1
    assert ApiKey.API_VERSIONS.request_header_version(3) == 2
    assert ApiKey.API_VERSIONS.response_header_version(3) == 0


def test_error_codes_are_those_of_the_facts_table():
    rows = [line.split("\t") for line in (FACTS / "errors-2.7.2.tsv").read_text().splitlines()]
    expected_codes = [(int(code), name, kind == "retriable") for code, name, kind in rows]
    assert [(int(code), code.name, code.retriable) for code in ErrorCode] == expected_codes
    assert all(code.text for code in ErrorCode)


def test_an_error_code_of_a_newer_kafka_survives():
    code = ErrorCode(123)
    assert (int(code), code.name, code.retriable) == (123, "UNKNOWN_ERROR_CODE_123", False)
    assert code == ErrorCode(123)
    assert "UNKNOWN_ERROR_CODE_123" in str(ApiError(123))


def test_an_api_error_speaks_in_the_codes_words_unless_it_has_its_own():
    assert str(ApiError(36)) == "the topic exists already (TOPIC_ALREADY_EXISTS)"
    assert str(ApiError(36, "Topic 't' already exists.")) == "Topic 't' already exists."
    assert ApiError(36).code is ErrorCode.TOPIC_ALREADY_EXISTS
