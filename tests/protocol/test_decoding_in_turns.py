"""`decoding` gives the message of `decode`, with turns for other work in between."""

import sys

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import (
    ELEMENTS_RELEASED_PER_TURN,
    NUMBERS_PER_ELEMENT,
    decode,
    decoding,
    encode,
    encoding,
    releasing,
)
from kctl.protocol.decoder_source import (
    NUMBERS_PER_STRUCT,
    NUMBERS_PER_YIELD,
    STRUCTS_PER_YIELD,
)
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.heartbeat import HeartbeatRequest
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kctl.work import at_once
from tests.protocol.instances import Instances

COUNT = 5 * STRUCTS_PER_YIELD


@pytest.mark.parametrize("version", [4, FetchRequest.max_version])
def test_many_partitions_are_decoded_in_turns_of_bounded_work(version):
    partitions = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(COUNT)]
    message = FetchRequest(replica_id=-1, topics=[FetchTopic(topic="t", partitions=partitions)])
    data = b"".join(map(bytes, encode(message, version)))
    assert sum(1 for _ in decoding(FetchRequest, version, data)) == COUNT // STRUCTS_PER_YIELD
    assert at_once(decoding(FetchRequest, version, data)) == decode(FetchRequest, version, data)


@pytest.mark.parametrize("api", ApiKey)
def test_every_request_is_the_same_message(api):
    cls = api.request_class
    for version in range(cls.min_version, cls.max_version + 1):
        message = Instances(version).message(cls, version)
        data = b"".join(map(bytes, encode(message, version)))
        assert at_once(decoding(cls, version, data)) == decode(cls, version, data)


def test_a_message_cut_short_is_the_same_error():
    with pytest.raises(CorruptDataError, match="ends before its last field"):
        at_once(decoding(HeartbeatRequest, 0, b"\0"))


def test_many_names_and_many_numbers_are_decoded_in_turns_of_bounded_work():
    names = DeleteTopicsRequest(topic_names=["t"] * COUNT)
    numbers = list(range(5 * NUMBERS_PER_YIELD))
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=numbers)
    few = [
        WritableTxnMarkerTopic(name="t", partition_indexes=list(range(10 * NUMBERS_PER_STRUCT)))
        for _ in range(STRUCTS_PER_YIELD)
    ]
    for message, turns in (
        (names, COUNT // STRUCTS_PER_YIELD),
        (WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[topic])]), 4),
        (WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=few)]), 10),
    ):
        data = b"".join(map(bytes, encode(message, 0)))
        cls = type(message)
        assert sum(1 for _ in decoding(cls, 0, data)) >= turns
        assert at_once(decoding(cls, 0, data)) == message


def test_tagged_fields_count_towards_a_turn():
    tags = tuple((100 + number, b"") for number in range(STRUCTS_PER_YIELD // 4))
    topics = [MetadataRequestTopic(name="t", unknown_tagged_fields=tags) for _ in range(40)]
    message = MetadataRequest(topics=topics)
    data = b"".join(map(bytes, encode(message, MetadataRequest.max_version)))
    work = decoding(MetadataRequest, MetadataRequest.max_version, data)
    assert sum(1 for _ in work) >= 8


@pytest.mark.parametrize("does_encode", [False, True])
@pytest.mark.parametrize(("wide", "deep"), [(6 * ELEMENTS_RELEASED_PER_TURN, 0), (2, 12_000)])
def test_a_message_is_released_in_turns_of_bounded_work(wide, deep, does_encode):
    partitions = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(deep)]
    topics = [FetchTopic(topic=str(n), partitions=list(partitions)) for n in range(wide)]
    data = b"".join(map(bytes, encode(FetchRequest(replica_id=-1, topics=topics), 4)))
    del partitions, topics
    elements = []
    message = at_once(decoding(FetchRequest, 4, data, 0, None if does_encode else elements))
    if does_encode:
        at_once(encoding(message, 4, elements))
    assert len(elements) == wide * (1 + deep)
    # Each struct after those in it.
    assert isinstance(elements[-1], FetchTopic)
    before = sys.getallocatedblocks()
    del message
    assert before - sys.getallocatedblocks() < ELEMENTS_RELEASED_PER_TURN
    for _ in releasing(elements):
        now = sys.getallocatedblocks()
        # A struct is an object with a few others: its fields, its array.
        assert before - now < 8 * ELEMENTS_RELEASED_PER_TURN
        before = now
    assert elements == []


def test_the_numbers_of_a_long_array_are_released_in_turns():
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(5 * NUMBERS_PER_YIELD)))
    message = WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[topic])])
    data = b"".join(map(bytes, encode(message, 0)))
    elements = []
    decoded = at_once(decoding(WriteTxnMarkersRequest, 0, data, 0, elements))
    del message, topic
    before = sys.getallocatedblocks()
    del decoded
    assert before - sys.getallocatedblocks() < 2 * NUMBERS_PER_YIELD
    for _ in releasing(elements):
        now = sys.getallocatedblocks()
        # An array of NUMBERS_PER_YIELD may end a turn that has begun.
        assert before - now < 3 * NUMBERS_PER_ELEMENT * ELEMENTS_RELEASED_PER_TURN
        before = now
    assert elements == []


def test_wide_arrays_are_released_over_several_turns():
    """Each array of numbers is one element, however many it has."""
    width = NUMBERS_PER_ELEMENT * ELEMENTS_RELEASED_PER_TURN // 2
    elements = [tuple(range(width)) for _ in range(6)]
    left = [len(elements) for _ in releasing(elements)]
    # Each is seen before its turn begins.
    assert left == [6, 4, 2]
    assert elements == []
