"""The controller's connection to another broker, over real sockets."""

import pytest

from kctl.broker.controller.broker_link import ChannelLink, controller_link
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.server import SocketServer
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UnreachableError
from kctl.model import BrokerInfo, Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

SERVED = {
    int(key): (key.min_version, key.max_version)
    for key in (ApiKey.API_VERSIONS, ApiKey.UPDATE_METADATA)
}


@pytest.fixture
def other_broker(cluster):
    """A broker that records the controller epochs it receives, and their senders."""
    heard = []

    def handle(request):
        if request.api_key == ApiKey.API_VERSIONS:
            keys = [
                ApiVersionsResponseKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in SERVED.items()
            ]
            request.reply(ApiVersionsResponse(api_keys=keys))
        else:
            heard.append((request.client_id, request.api_version, request.body.controller_epoch))
            request.reply(UpdateMetadataResponse())

    server = SocketServer(
        cluster.runtime,
        [Endpoint("127.0.0.1", 0, "INTERNAL")],
        SERVED,
        handle,
        NetworkLimits(),
    )
    (endpoint,) = server.start()
    yield endpoint, heard
    server.close()


def link_to(cluster, endpoint, listener="INTERNAL"):
    broker = BrokerInfo(2, (endpoint,))
    return ChannelLink(cluster.runtime, broker, listener, controller_id=1, timeout_ms=5000)


def test_requests_go_over_the_listener_between_brokers(cluster, other_broker):
    endpoint, heard = other_broker
    link = link_to(cluster, endpoint)
    for epoch in (1, 2):
        answer = cluster.run(link.send(UpdateMetadataRequest(controller_epoch=epoch)))
        assert answer == UpdateMetadataResponse()
    assert heard == [("1", 6, 1), ("1", 6, 2)]
    link.close()


def test_a_wide_topic_is_encoded_in_turns(cluster, other_broker):
    endpoint, heard = other_broker
    link = link_to(cluster, endpoint)
    states = [UpdateMetadataPartitionState(partition_index=number) for number in range(5_000)]
    topics = [UpdateMetadataTopicState(topic_name="wide", partition_states=states)]
    request = UpdateMetadataRequest(controller_epoch=3, topic_states=topics)
    cluster.run(link.send(UpdateMetadataRequest(controller_epoch=2)))
    sent = link.send(request)
    # A part is encoded at once, the others in later turns.
    assert not link._channel._pending
    assert cluster.run(sent) == UpdateMetadataResponse()
    assert [epoch for _, _, epoch in heard] == [2, 3]
    link.close()


def test_a_lost_connection_is_opened_again(cluster, other_broker):
    endpoint, heard = other_broker
    link = link_to(cluster, endpoint)
    cluster.run(link.send(UpdateMetadataRequest(controller_epoch=1)))
    link._channel.close()
    cluster.run(link.send(UpdateMetadataRequest(controller_epoch=2)))
    assert [epoch for _, _, epoch in heard] == [1, 2]
    link.close()


def test_a_broker_without_the_listener_is_unreachable(cluster, other_broker):
    endpoint, _ = other_broker
    with pytest.raises(UnreachableError, match="no listener PLAINTEXT"):
        cluster.run(link_to(cluster, endpoint, "PLAINTEXT").send(UpdateMetadataRequest()))


def test_a_closed_link_sends_nothing(cluster, other_broker):
    endpoint, heard = other_broker
    link = link_to(cluster, endpoint)
    link.close()
    with pytest.raises(UnreachableError):
        cluster.run(link.send(UpdateMetadataRequest()))
    assert heard == []


@pytest.mark.parametrize("listeners", [["INTERNAL"], ["INTERNAL", "CONTROLLER"]])
def test_a_control_plane_is_used_where_a_broker_has_it(cluster, listeners):
    used = []

    def handle(request):
        if request.api_key == ApiKey.API_VERSIONS:
            keys = [
                ApiVersionsResponseKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in SERVED.items()
            ]
            request.reply(ApiVersionsResponse(api_keys=keys))
        else:
            used.append(request.context.listener_name)
            request.reply(UpdateMetadataResponse())

    endpoints = [Endpoint("127.0.0.1", 0, name) for name in listeners]
    server = SocketServer(cluster.runtime, endpoints, SERVED, handle)
    config = BrokerConfig(
        {
            "listeners": "INTERNAL://:9092,CONTROLLER://:9093",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "control.plane.listener.name": "CONTROLLER",
        }
    )
    link = controller_link(cluster.runtime, config, BrokerInfo(2, tuple(server.start())), 1)
    cluster.run(link.send(UpdateMetadataRequest(controller_epoch=1)))
    assert used == listeners[-1:]
    link.close()
    server.close()
