"""`decoding` gives the message of `decode`, with turns for other work in between."""

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, decoding, encode
from kctl.protocol.decoder_source import STRUCTS_PER_YIELD
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.heartbeat import HeartbeatRequest
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
