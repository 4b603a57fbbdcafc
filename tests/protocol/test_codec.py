"""The codec: round trips, absent fields, unknown tags, opaque records, and bytes that lie."""

import tracemalloc

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, decode_at, encode
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.fetch import (
    EpochEndOffset,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
)
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.offset_commit import OffsetCommitRequest
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.protocol.instances import Instances, all_messages

MESSAGES = list(all_messages())


def whole(message, version):
    return b"".join(encode(message, version))


def produce(records, *, after=False):
    partitions = [PartitionProduceData(partition_index=7, records=records)]
    if after:
        partitions.append(PartitionProduceData(partition_index=8, records=None))
    topics = [TopicProduceData(name="t", partitions=partitions)]
    return ProduceRequest(acks=-1, timeout_ms=5, topics=topics)


@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name.lower())
def test_what_is_encoded_is_decoded_in_every_version(api):
    for _, cls, version in (each for each in MESSAGES if each[0] is api):
        instances = Instances(seed=api * 100 + version)
        for _ in range(20):
            message = instances.message(cls, version)
            data = whole(message, version)
            for buffer in (data, bytearray(data), memoryview(data)):
                assert decode_at(cls, version, buffer) == (message, len(data))


def test_decoding_starts_at_the_position_and_ignores_what_follows():
    data = b"head" + whole(HeartbeatRequest(group_id="g", member_id="m"), 3) + b"trailing garbage"
    assert decode(HeartbeatRequest, 3, data, 4).group_id == "g"
    assert decode_at(HeartbeatRequest, 3, data, 4)[1] == len(data) - len(b"trailing garbage")


def test_fields_that_a_version_lacks_have_their_defaults():
    message = decode(FetchRequest, 0, whole(FetchRequest(min_bytes=3), 0))
    assert message.min_bytes == 3
    assert message.max_bytes == 0x7FFFFFFF
    assert message.session_epoch == -1
    assert message.forgotten_topics_data == []
    partition = FetchablePartitionResponse(record_set=b"")
    response = FetchResponse(responses=[FetchableTopicResponse(partition_responses=[partition])])
    decoded = decode(FetchResponse, 4, whole(response, 4)).responses[0].partition_responses[0]
    assert decoded.diverging_epoch == EpochEndOffset(epoch=-1, end_offset=-1)


def test_lists_and_structs_of_defaults_are_not_shared():
    one, other = FetchRequest(), FetchRequest()
    one.topics.append("topic")
    assert other.topics == []
    one, other = FetchablePartitionResponse(), FetchablePartitionResponse()
    one.current_leader.leader_id = 3
    assert other.current_leader.leader_id == -1


def test_a_value_that_the_version_cannot_say_is_an_error_unless_it_is_ignorable():
    with pytest.raises(ApiError, match="group_instance_id='i'") as caught:
        encode(HeartbeatRequest(group_instance_id="i"), 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="key_type=1"):
        encode(FindCoordinatorRequest(key="k", key_type=1), 0)
    with pytest.raises(ApiError, match="forgotten_topics_data="):
        encode(FetchRequest(forgotten_topics_data=[ForgottenTopic()]), 6)
    partition = FetchablePartitionResponse(diverging_epoch=EpochEndOffset(epoch=3))
    topic = FetchableTopicResponse(partition_responses=[partition])
    with pytest.raises(ApiError, match="diverging_epoch"):
        encode(FetchResponse(responses=[topic]), 11)
    encode(OffsetCommitRequest(generation_id=5, member_id="m"), 0)


def test_a_version_that_does_not_exist_is_an_error_of_its_own():
    for version in (-1, 9):
        with pytest.raises(ApiError, match=f"versions 0 to 8, not {version}") as caught:
            encode(ProduceRequest(), version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError):
        decode(ProduceRequest, 9, b"")


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(group_id=None),
        HeartbeatRequest(group_id="x" * 32_768),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(generation_id="5"),
    ],
    ids=["number too large", "null", "text too long", "lone surrogate", "text for a number"],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_value_that_does_not_fit_its_field_names_the_message(message, version):
    with pytest.raises(UsageError):
        encode(message, version)


def test_the_longest_text_goes_through():
    message = HeartbeatRequest(group_id="x" * 32_767)
    for version in (3, 4):
        assert decode(HeartbeatRequest, version, whole(message, version)) == message


class Opaque:
    """What a file slice is to the codec."""

    def __len__(self):
        return 1_000


def test_record_data_pass_through_as_the_same_object():
    records = Opaque()
    head, body, tail = encode(produce(records, after=True), 8)
    assert body is records
    assert head[-4:] == (1_000).to_bytes(4, "big")
    assert tail == (8).to_bytes(4, "big") + b"\xff\xff\xff\xff"


def test_record_data_may_come_in_several_parts():
    slices = [Opaque(), b"abc"]
    head, first, second = encode(produce(slices), 8)
    assert (first, second) == (slices[0], slices[1])
    assert head[-4:] == (1_003).to_bytes(4, "big")
    partition = FetchablePartitionResponse(record_set=tuple(slices))
    topic = FetchableTopicResponse(partition_responses=[partition])
    parts = encode(FetchResponse(responses=[topic]), 12)
    assert parts[1:3] == slices


def test_empty_record_data_are_not_null():
    for records in (b"", [], None):
        decoded = decode(ProduceRequest, 8, whole(produce(records), 8))
        expected = None if records is None else b""
        assert decoded.topics[0].partitions[0].records == expected


def test_decoded_record_data_are_a_view_of_the_frame():
    frame = bytearray(whole(produce(b"before"), 8))
    records = decode(ProduceRequest, 8, frame).topics[0].partitions[0].records
    frame[-6:] = b"after!"
    assert records == b"after!"


def test_unknown_tagged_fields_are_kept_in_order_beside_known_ones():
    tags = ((3, b"three"), (7, b""))
    response = ApiVersionsResponse(finalized_features_epoch=5, unknown_tagged_fields=tags)
    data = whole(response, 3)
    # Tag 1 is the epoch; a count of three tags, by number.
    assert data[-20:] == b"\x03" + b"\x01\x08" + (5).to_bytes(8, "big") + b"\x03\x05three\x07\x00"
    assert decode(ApiVersionsResponse, 3, data) == response


def test_tagged_fields_need_a_flexible_version():
    with pytest.raises(ApiError, match="no tagged fields"):
        encode(ApiVersionsRequest(unknown_tagged_fields=((1, b""),)), 2)


def test_a_known_tag_of_the_wrong_size_is_refused():
    result = CreatableTopicResult(name="t", topic_config_error_code=29)
    data = whole(CreateTopicsResponse(topics=[result]), 5)
    assert data.count(b"\x00\x02\x00\x1d") == 1
    with pytest.raises(CorruptDataError):
        decode(CreateTopicsResponse, 5, data.replace(b"\x00\x02\x00\x1d", b"\x00\x01\x00\x1d"))


def test_any_negative_length_reads_as_null_where_null_is_allowed():
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xfe").topics is None
    with pytest.raises(CorruptDataError, match="topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(CorruptDataError, match="group_id is null"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(20))


def test_text_that_is_not_utf8_reads_as_replacement_characters():
    data = whole(HeartbeatRequest(group_id="ab"), 0).replace(b"ab", b"a\xff")
    assert decode(HeartbeatRequest, 0, data).group_id == "a\N{REPLACEMENT CHARACTER}"


def test_a_byte_that_is_neither_0_nor_1_is_true():
    data = whole(MetadataRequest(allow_auto_topic_creation=True), 4)
    assert decode(MetadataRequest, 4, data[:-1] + b"\x07").allow_auto_topic_creation is True


@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name.lower())
def test_a_message_cut_anywhere_is_corrupt(api):
    for _, cls, version in (each for each in MESSAGES if each[0] is api):
        data = whole(Instances(seed=version).message(cls, version), version)
        for length in range(min(len(data), 400)):
            with pytest.raises(CorruptDataError, match=cls.__name__):
                decode(cls, version, data[:length])


def memory_peak(cls, version, data):
    """Bytes allocated while `data` is refused, beyond the error itself."""
    with pytest.raises(CorruptDataError):
        decode(cls, version, data)  # compiles the decoder
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError):
            decode(cls, version, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (MetadataRequest, 0, b"\x7f\xff\xff\xff" + bytes(100)),
        (DeleteTopicsRequest, 0, b"\x7f\xff\xff\xff" + bytes(100)),
        (DeleteTopicsRequest, 4, b"\xff\xff\xff\xff\x07" + bytes(100)),
        (ProduceRequest, 3, b"\x00\x00\x00\x01" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(100)),
        (HeartbeatRequest, 0, b"\x7f\xff" + bytes(100)),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x07" + bytes(100)),
        (ApiVersionsRequest, 3, b"\x01\x01\xff\xff\xff\xff\x0f" + bytes(100)),
        (ApiVersionsRequest, 3, b"\x01\x01\x01\x00\xff\xff\xff\xff\x0f" + bytes(100)),
    ],
    ids=[
        "structs", "strings", "compact strings", "nested structs", "text", "compact text", "tags",
        "tag size",
    ],
)  # fmt: skip
def test_an_absurd_count_allocates_nothing(cls, version, data):
    assert memory_peak(cls, version, data) < 20_000


def test_a_client_request_has_a_budget_of_elements():
    """A 10 MB Metadata with millions of empty names stalled Apache Kafka for seconds."""
    count = 30_001
    data = count.to_bytes(4, "big") + bytes(2 * count)
    assert memory_peak(MetadataRequest, 0, data) < 20_000
    fitting = (30_000).to_bytes(4, "big") + bytes(60_000)
    assert len(decode(MetadataRequest, 0, fitting).topics) == 30_000


def test_a_struct_has_at_most_a_thousand_tags():
    """CVE-2026-111115: millions of empty tags in one unauthenticated request."""
    tags = b"".join(bytes((n & 127 | 128, n >> 7, 0)) for n in range(128, 1_129))
    data = b"\x01\x01" + b"\xe9\x07" + tags
    with pytest.raises(CorruptDataError, match="1001 tagged fields"):
        decode(ApiVersionsRequest, 3, data)
    allowed = b"\x01\x01" + b"\xe8\x07" + tags[:-3]
    assert len(decode(ApiVersionsRequest, 3, allowed).unknown_tagged_fields) == 1_000


def test_messages_compare_by_value_and_show_what_they_hold():
    one = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    assert one == LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    assert one != LeaveGroupRequest(group_id="g", members=[])
    assert one != MetadataRequest()
    assert repr(one) == (
        "LeaveGroupRequest(group_id='g', member_id='', "
        "members=[MemberIdentity(member_id='m', group_instance_id=None)])"
    )


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="no_such_field"):
        MetadataRequestTopic(no_such_field=1)
    with pytest.raises(AttributeError):
        MetadataRequestTopic().no_such_field = 1
