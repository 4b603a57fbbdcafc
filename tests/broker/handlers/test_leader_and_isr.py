"""LeaderAndIsr on a broker whose session ends meanwhile."""

from types import SimpleNamespace

from kctl.broker.handlers.leader_and_isr import handle_leader_and_isr
from kctl.broker.request import Request, RequestContext
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.store.errors import SessionExpiredError
from tests.support.virtual_runtime import virtual_runtime


class ExpiredConfigs:
    async def load_topics(self, topics):
        raise SessionExpiredError(f"/config/topics/{topics[0]}")


def test_a_request_to_a_registration_that_ends_is_rejected_as_stale():
    states = [LeaderAndIsrPartitionState(topic_name="t", partition_index=0)]
    body = LeaderAndIsrRequest(
        topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=states)]
    )
    runtime = virtual_runtime()
    world = SimpleNamespace(
        runtime=runtime,
        replica_manager=SimpleNamespace(partitions={}),
        dynamic_configs=ExpiredConfigs(),
    )
    answers = []
    request = Request(
        api_key=LeaderAndIsrRequest.api, api_version=4, correlation_id=1, client_id=None,
        body=body, context=RequestContext("c", "10.0.0.7", "PLAINTEXT"), received_ms=0,
        send=answers.append, close=lambda: answers.append("closed"),
    )  # fmt: skip
    handle_leader_and_isr(world, request)
    runtime.scheduler.settle()
    assert [answer.error_code for answer in answers] == [ErrorCode.STALE_BROKER_EPOCH]
