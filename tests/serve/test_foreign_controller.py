"""Controller requests from clients other than the controller."""

import pytest

from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tests.serve.bad_frames import CLOSED, Case, asked, visible
from tests.support.kctl_process import KctlBroker

EPOCH = 1_000


def leader_of(topic, partition=0):
    state = LeaderAndIsrPartitionState(
        partition_index=partition, controller_epoch=EPOCH, leader=0, isr=[0], replicas=[0]
    )
    topics = [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])]
    return LeaderAndIsrRequest(controller_epoch=EPOCH, broker_epoch=-1, topic_states=topics)


def broker_speaking(security_protocol):
    endpoint = UpdateMetadataEndpoint(
        port=1, host="h", listener="L", security_protocol=security_protocol
    )
    return UpdateMetadataRequest(
        controller_epoch=EPOCH,
        broker_epoch=-1,
        live_brokers=[UpdateMetadataBroker(id=0, endpoints=[endpoint])],
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (leader_of("../../elsewhere"), 4),
        (leader_of("nul\0l"), 4),
        (leader_of(""), 4),
        (leader_of("t", partition=-3), 4),
        (broker_speaking(77), 6),
    ],
    ids=["path", "null byte", "no name", "negative partition", "security protocol"],
)
def test_nonsense_of_a_controller_ends_the_connection_and_changes_nothing(
    tmp_path, message, version
):
    with KctlBroker(tmp_path) as broker:
        case = Case("foreign", lambda: asked(message, version), message.api, version)
        assert visible(broker.address, case) == CLOSED
        assert "Unexpected error" not in broker.errors
        assert not (tmp_path / "elsewhere-0").exists()
        assert not [path for path in broker.log_dir.iterdir() if path.is_dir()]
