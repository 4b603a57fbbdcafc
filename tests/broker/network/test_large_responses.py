"""Responses with many elements are encoded in turns, whatever the size of their requests."""

import pytest

from kctl.broker.network.slices import RESPONSE_WEIGHT_MAX, is_heavy_response
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.encoder_source import STRUCTS_PER_YIELD
from kctl.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResponse,
)
from kctl.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.protocol.server_phase import ServerPhase
from tests.broker.network.test_server import Broker, answer_with_group, heartbeat
from tests.support.builds import needs_sources
from tests.support.filled_requests import array_paths, filled
from tests.support.raw_requests import decode_response

GROUPS = [ListedGroup(group_id=f"group-{number:05}") for number in range(20 * STRUCTS_PER_YIELD)]


def handle(request):
    if request.api_key == ApiKey.HEARTBEAT:
        answer_with_group(request)
    else:
        request.reply(ListGroupsResponse(groups=GROUPS))


@needs_sources
def test_other_requests_are_answered_while_a_large_response_is_encoded(loop, monkeypatch):
    turns = []
    schedule = loop.scheduler.call_later
    monkeypatch.setattr(
        loop.scheduler,
        "call_later",
        lambda *arguments: turns.append(arguments) or schedule(*arguments),
    )
    broker = Broker(loop, handle)
    peer = broker.connect()
    request = broker.writer.frame(ListGroupsRequest(), 3)
    peer.send(request + broker.writer.frame(heartbeat("7"), 1))
    answer = decode_response(ApiKey.LIST_GROUPS, 3, peer.receive_frame())
    assert answer.groups == GROUPS
    assert len(turns) >= len(GROUPS) // STRUCTS_PER_YIELD
    assert decode_response(ApiKey.HEARTBEAT, 1, peer.receive_frame()).throttle_time_ms == 7


def test_a_connection_that_is_lost_ends_the_encoding_of_its_response(loop):
    broker = Broker(loop, handle)
    peer, other = broker.connect(), broker.connect()
    peer.send(broker.writer.frame(ListGroupsRequest(), 3))
    loop.until(lambda: broker.seen)
    peer.socket.close()
    other.send(broker.writer.frame(heartbeat("8"), 1))
    assert decode_response(ApiKey.HEARTBEAT, 1, other.receive_frame()).throttle_time_ms == 8


@pytest.mark.parametrize("extra", [0, 1])
def test_what_counts_is_the_number_of_structs(extra):
    count = RESPONSE_WEIGHT_MAX + extra
    members = [JoinGroupResponseMember()] * count
    assert is_heavy_response(ApiKey.JOIN_GROUP, JoinGroupResponse(members=members)) == extra
    partitions = [MetadataResponsePartition()] * (count - 1)
    topics = [MetadataResponseTopic(partitions=partitions)]
    assert is_heavy_response(ApiKey.METADATA, MetadataResponse(topics=topics)) == extra


# As small as a constant, a broker's tables or what a request of one record brings: responses whose
# arrays a client cannot fill with many structs, and Produce.
NEVER_HEAVY = {
    ApiKey.PRODUCE, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS, ApiKey.UPDATE_FEATURES,
}  # fmt: skip


@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name)
def test_every_long_array_of_a_response_counts(api):
    paths = [it for it in array_paths(api.response_class, api.max_version) if has_structs(api, it)]
    for path in paths:
        if api in NEVER_HEAVY or path[-1] in SHORT:
            continue
        response = filled(api.response_class, api.max_version, path, RESPONSE_WEIGHT_MAX + 1, "x")
        assert is_heavy_response(api, response), path


# Arrays that are short, although clients can fill the ones around them.
SHORT = {"brokers", "synonyms", "entity", "credential_infos", "aborted_transactions"}


def has_structs(api, path):
    struct = api.response_class
    for name in path:
        struct = next(field for field in struct.fields if field.name == name).element
    return isinstance(struct, type)


def test_no_request_begins_while_a_large_response_is_encoded(loop):
    broker = Broker(loop, handle)
    peer = broker.connect()
    peer.send(broker.writer.frame(ListGroupsRequest(), 3))
    loop.until(lambda: broker.seen)
    peer.send(broker.writer.frame(heartbeat("7"), 1))
    # Work in turns rests for a timer: the second request is received before the next part.
    (connection,) = broker.server._connections
    assert connection._phase is ServerPhase.IN_FLIGHT
    assert decode_response(ApiKey.LIST_GROUPS, 3, peer.receive_frame()).groups == GROUPS
    assert decode_response(ApiKey.HEARTBEAT, 1, peer.receive_frame()).throttle_time_ms == 7


def test_a_large_response_is_sent_before_a_server_that_stops_closes(loop):
    broker = Broker(loop, handle)
    peer = broker.connect()
    peer.send(broker.writer.frame(ListGroupsRequest(), 3))
    loop.until(lambda: broker.seen)
    broker.server.close()
    assert decode_response(ApiKey.LIST_GROUPS, 3, peer.receive_frame()).groups == GROUPS
    peer.wait_for_close()


def test_a_changed_quota_that_names_many_entities_is_a_heavy_response():
    entity = [EntityData(entity_type="user", entity_name="u")] * (RESPONSE_WEIGHT_MAX + 1)
    response = AlterClientQuotasResponse(entries=[EntryDataResponse(entity=entity)])
    assert is_heavy_response(ApiKey.ALTER_CLIENT_QUOTAS, response)
