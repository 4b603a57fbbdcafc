"""Messages of later versions are those of Apache Kafka 4.1, and no broker serves them."""

import struct

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, decode_at, encode
from kctl.protocol.connection import read_request
from kctl.protocol.error_codes import ApiError
from kctl.protocol.later.api_versions import ApiVersion
from kctl.protocol.later.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.negotiation import NegotiatedVersions
from kctl.protocol.schema import version_range
from tests.protocol.instances import Instances
from tests.protocol.message_facts import expected, facts, ours

CLASSES = [cls for api in LaterApi for cls in (api.request_class, api.response_class)]
# Versions before those of these classes, which leave out what only they have.
OLDER = {
    "ListOffsetsRequest.topics.partitions.max_num_offsets",
    "ListOffsetsResponse.topics.partitions.old_style_offsets",
}
# Two structs of one name cannot live in one module: the response's has a suffix of ours.
RENAMED = {
    "TopicDataResponse": "TopicData",
    "PartitionDataResponse": "PartitionData",
}


def whole(message, version):
    return b"".join(encode(message, version))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_later_message_has_the_fields_of_the_facts_table(cls):
    versions, flexible, fields = facts("messages-4.1.txt")[cls.__name__]
    first, last = version_range(versions)
    assert first <= cls.min_version <= cls.max_version <= last
    assert cls.flexible_from == int(flexible[:-1])
    assert cls.min_version >= cls.flexible_from
    mine = {
        path: (_kafkas(kind), *rest)
        for path, (kind, *rest) in dict(ours(cls, cls.__name__)).items()
    }
    theirs = {
        path: values
        for path, values in expected(fields).items()
        if path not in OLDER and version_range(values[1])[0] <= cls.max_version
    }
    assert mine == theirs


def _kafkas(kind):
    for name, original in RENAMED.items():
        kind = kind.replace(name, original)
    return kind


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_is_encoded_is_decoded_and_cut_bytes_are_corrupt(cls):
    for version in range(cls.min_version, cls.max_version + 1):
        instances = Instances(seed=version)
        for _ in range(20):
            message = instances.message(cls, version)
            data = whole(message, version)
            assert decode_at(cls, version, memoryview(data)) == (message, len(data))
        for length in range(min(len(data), 300)):
            with pytest.raises(CorruptDataError):
                decode(cls, version, data[:length])


def test_a_null_struct_is_one_byte_and_a_struct_has_one_in_front():
    request = DescribeTopicPartitionsRequest(response_partition_limit=7)
    assert whole(request, 0) == b"\x01" + struct.pack(">i", 7) + b"\xff" + b"\x00"
    request.cursor = Cursor(topic_name="t", partition_index=3)
    cursor = b"\x01" + b"\x02t" + struct.pack(">i", 3) + b"\x00"
    assert whole(request, 0) == b"\x01" + struct.pack(">i", 7) + cursor + b"\x00"


def test_later_versions_follow_those_of_2_7_without_a_gap_or_an_overlap():
    by_number = {int(api): api for api in ApiKey}
    for api in LaterApi:
        known = by_number.get(int(api))
        # Between the two are versions that add nothing that the client needs.
        assert known is None or known.max_version < api.min_version, api.name


@pytest.mark.parametrize("api", LaterApi, ids=lambda api: api.name.lower())
def test_a_broker_rejects_later_requests_as_2_7_does(api):
    request = api.request_class()
    if api is LaterApi.API_VERSIONS:
        # It is answered in version 0 (KIP-511).
        return
    header = struct.pack(">hhih", int(api), api.max_version, 1, -1) + b"\x00"
    with pytest.raises(CorruptDataError, match=r"unknown API key|has no version"):
        read_request(header + whole(request, api.max_version))


def test_the_error_of_a_missing_api_names_the_version_that_has_it():
    theirs = [
        ApiVersion(api_key=int(api), min_version=0, max_version=api.max_version) for api in ApiKey
    ]
    versions = NegotiatedVersions(theirs, "the broker at b:9092")
    with pytest.raises(ApiError) as raised:
        versions.pick(LaterApi.DESCRIBE_QUORUM)
    assert str(raised.value) == (
        "the broker at b:9092 does not know DescribeQuorum, which came with Kafka 3.3 in KRaft mode"
    )
    with pytest.raises(ApiError, match=r"speaks ListGroups 0 to 4; version 5 came with Kafka 3\.8"):
        versions.pick(LaterApi.LIST_GROUPS)
    assert not versions.has(LaterApi.LIST_GROUPS)
    assert versions.pick(ApiKey.LIST_GROUPS) == ApiKey.LIST_GROUPS.max_version


def test_the_newest_common_later_version_is_picked():
    theirs = [ApiVersion(api_key=int(LaterApi.LIST_OFFSETS), min_version=1, max_version=9)]
    versions = NegotiatedVersions(theirs)
    assert versions.pick(LaterApi.LIST_OFFSETS) == 9
    assert versions.pick(ApiKey.LIST_OFFSETS) == ApiKey.LIST_OFFSETS.max_version
    assert not versions.has(LaterApi.LIST_OFFSETS, 10)
