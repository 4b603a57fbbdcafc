"""Router against ScriptedBrokers: which broker gets a request, and when it is retried."""

from contextlib import suppress

import pytest

from kctl.client.retry import RetryPolicy
from kctl.client.router import Router
from kctl.errors import KctlError, TimedOutError, UnreachableError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import TRANSACTION_KEY_TYPE
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kctl.protocol.messages.find_coordinator import FindCoordinatorResponse
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetPartitionResponse,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopic,
    ListOffsetTopicResponse,
)
from kctl.testing.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

QUICK = RetryPolicy(backoff_ms=1, backoff_ms_max=2)
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=1)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def brokers(loop):
    """Three brokers of one cluster; broker 0 is the controller and leads t."""
    brokers = [
        ScriptedBroker(loop.runtime, broker_id=number, topics={"t": 4}).start()
        for number in range(3)
    ]
    for broker in brokers:
        broker.others = {it.broker_id: it.address for it in brokers if it is not broker}
        broker.controller_id = 0
        broker.leaders = {("t", number): number % 3 for number in range(4)}
    yield brokers
    for broker in brokers:
        broker.stop()


@pytest.fixture
def router(loop, brokers):
    router = Router(loop.runtime, [brokers[1].address], timeout_ms=10_000, retry=QUICK)
    yield router
    router.close()


def created(code=0):
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=int(code))])


def list_offsets(partitions):
    """Return a request for the end offsets of `partitions`."""
    return ListOffsetRequest(
        replica_id=-1,
        topics=[
            ListOffsetTopic(
                name="t",
                partitions=[
                    ListOffsetPartition(partition_index=it.partition, timestamp=-1)
                    for it in partitions
                ],
            )
        ],
    )


def offsets_of(broker_id, codes=None):
    """Return a script: each partition's offset is its number plus a hundred times the broker id."""

    def answer(request):
        asked = [it.partition_index for it in request.body.topics[0].partitions]
        partitions = [
            ListOffsetPartitionResponse(
                partition_index=number,
                offset=100 * broker_id + number,
                error_code=int((codes or {}).get(number, 0)),
            )
            for number in asked
        ]
        return ListOffsetResponse(topics=[ListOffsetTopicResponse(name="t", partitions=partitions)])

    return answer


def read_offsets(response):
    for topic in response.topics:
        for it in topic.partitions:
            yield TopicPartition(topic.name, it.partition_index), it.error_code, it.offset


def test_any_broker_will_do(loop, brokers, router):
    brokers[1].answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=3))
    assert loop.run(router.send_to_any(HEARTBEAT)).error_code == 3
    assert brokers[1].connections_accepted == 1


def test_the_next_bootstrap_server_is_tried(loop, brokers):
    brokers[0].stop()
    router = Router(loop.runtime, [brokers[0].address, brokers[2].address], retry=QUICK)
    view = loop.run(router.refresh())
    assert sorted(view.brokers) == [0, 1, 2]
    router.close()


def test_when_no_bootstrap_server_answers_one_error_names_all(loop, brokers):
    for broker in brokers:
        broker.stop()
    router = Router(loop.runtime, [it.address for it in brokers], timeout_ms=10_000)
    with pytest.raises(UnreachableError) as caught:
        loop.run(router.refresh())
    for broker in brokers:
        assert f"127.0.0.1:{broker.port}" in str(caught.value)
    assert not isinstance(caught.value, TimedOutError)
    assert caught.value.hint


def test_a_given_broker_is_found_by_its_id(loop, brokers, router):
    brokers[2].answer(ApiKey.HEARTBEAT, HeartbeatResponse(error_code=2))
    assert loop.run(router.send_to_broker(2, HEARTBEAT)).error_code == 2


def test_a_broker_that_is_not_in_the_cluster_is_unreachable(loop, router):
    with pytest.raises(UnreachableError, match="broker 7 is not in the cluster"):
        loop.run(router.send_to_broker(7, HEARTBEAT, timeout_ms=1_000))


def test_the_cause_is_reported_even_if_the_last_attempt_times_out(loop, brokers, router):
    for broker in brokers:
        broker.answer(ApiKey.METADATA, broker.metadata, SILENCE)
    with pytest.raises(UnreachableError, match="broker 7 is not in the cluster"):
        loop.run(router.send_to_broker(7, HEARTBEAT, timeout_ms=1_000))


def test_an_unreachable_advertised_listener_is_named(loop, brokers, router):
    brokers[2].stop()
    with pytest.raises(TimedOutError, match=f"broker 2 advertises 127.0.0.1:{brokers[2].port}"):
        loop.run(router.send_to_broker(2, HEARTBEAT, timeout_ms=1_000))


def test_the_controller_is_asked(loop, brokers, router):
    brokers[0].answer(ApiKey.CREATE_TOPICS, created())
    loop.run(router.send_to_controller(CREATE))
    assert len(brokers[0].requests(ApiKey.CREATE_TOPICS)) == 1


def test_a_controller_that_moved_is_looked_for_again(loop, brokers, router):
    loop.run(router.refresh())
    brokers[0].answer(ApiKey.CREATE_TOPICS, created(ErrorCode.NOT_CONTROLLER))
    brokers[2].answer(ApiKey.CREATE_TOPICS, created())
    for broker in brokers:
        broker.controller_id = 2
    response = loop.run(router.send_to_controller(CREATE))
    assert response.topics[0].error_code == 0
    assert len(brokers[0].requests(ApiKey.CREATE_TOPICS)) == 1


def test_no_controller_until_the_deadline_is_reported(loop, brokers, router):
    for broker in brokers:
        broker.controller_id = -1
    with pytest.raises(ApiError, match="no controller"):
        loop.run(router.send_to_controller(CREATE, timeout_ms=1_000))


def test_errors_unrelated_to_routing_are_returned_to_the_caller(loop, brokers, router):
    brokers[0].answer(ApiKey.CREATE_TOPICS, created(ErrorCode.TOPIC_ALREADY_EXISTS))
    response = loop.run(router.send_to_controller(CREATE))
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(brokers[0].requests(ApiKey.CREATE_TOPICS)) == 1


def test_a_connection_lost_in_the_middle_is_opened_again(loop, brokers, router):
    brokers[0].answer(ApiKey.CREATE_TOPICS, HANG_UP, created())
    loop.run(router.send_to_controller(CREATE))
    assert len(brokers[0].requests(ApiKey.CREATE_TOPICS)) == 2


def test_a_listener_that_ends_each_connection_at_its_first_request_is_reported(
    loop, brokers, router
):
    """Without a login, at a listener that requires one."""
    brokers[1].hang_up(ApiKey.METADATA)

    with pytest.raises(UnreachableError, match="4 times at the first request") as caught:
        loop.run(router.send_to_controller(CREATE))

    assert not isinstance(caught.value, TimedOutError)
    assert "require authentication" in caught.value.hint
    assert brokers[1].connections_accepted == 4


def test_connections_that_end_at_their_first_request_now_and_then_are_opened_again(
    loop, brokers, router
):
    brokers[1].answer(ApiKey.METADATA, *[HANG_UP] * 3, brokers[1].metadata)
    assert sorted(loop.run(router.refresh()).brokers) == [0, 1, 2]


def test_a_client_that_was_answered_before_goes_on_trying(loop, brokers, router):
    brokers[0].answer(ApiKey.CREATE_TOPICS, *[HANG_UP] * 6, created())
    loop.run(router.send_to_controller(CREATE))
    assert len(brokers[0].requests(ApiKey.CREATE_TOPICS)) == 7


def test_the_coordinator_is_found_once_and_kept(loop, brokers, router):
    at_2 = FindCoordinatorResponse(node_id=2, host="127.0.0.1", port=brokers[2].port)
    brokers[1].answer(ApiKey.FIND_COORDINATOR, at_2)
    brokers[2].answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    loop.run(router.send_to_coordinator("g", HEARTBEAT))
    loop.run(router.send_to_coordinator("g", HEARTBEAT))
    (asked,) = brokers[1].requests(ApiKey.FIND_COORDINATOR)
    assert (asked.body.key, asked.body.key_type) == ("g", 0)
    assert loop.run(router.coordinator_of("g")).broker_id == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_coordinator_that_moved_or_still_loads_is_asked_again(loop, brokers, router, code):
    brokers[1].answer(
        ApiKey.HEARTBEAT, HeartbeatResponse(error_code=int(code)), HeartbeatResponse()
    )
    assert loop.run(router.send_to_coordinator("g", HEARTBEAT)).error_code == 0
    assert len(brokers[1].requests(ApiKey.FIND_COORDINATOR)) == 2


def test_a_missing_coordinator_is_waited_for(loop, brokers, router):
    not_yet = FindCoordinatorResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    here = FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=brokers[1].port)
    brokers[1].answer(ApiKey.FIND_COORDINATOR, not_yet, not_yet, here)
    assert loop.run(router.coordinator_of("tx", TRANSACTION_KEY_TYPE)).broker_id == 1
    assert brokers[1].requests(ApiKey.FIND_COORDINATOR)[0].body.key_type == 1


def test_an_unauthorized_group_is_not_retried(loop, brokers, router):
    denied = FindCoordinatorResponse(error_code=int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    brokers[1].answer(ApiKey.FIND_COORDINATOR, denied)
    with pytest.raises(ApiError) as caught:
        loop.run(router.send_to_coordinator("g", HEARTBEAT))
    assert caught.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert len(brokers[1].requests(ApiKey.FIND_COORDINATOR)) == 1


def test_a_leader_that_moved_is_looked_for_again(loop, brokers, router):
    loop.run(router.refresh(["t"]))
    brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
    brokers[1].answer(ApiKey.LIST_OFFSETS, offsets_of(1))
    for broker in brokers:
        broker.leaders["t", 0] = 1
    response = loop.run(router.send_to_leader(T[0], list_offsets([T[0]])))
    assert response.topics[0].partitions[0].offset == 100


def test_a_recreated_topic_is_found_although_its_leader_epochs_start_again(loop, brokers, router):
    for broker in brokers:
        broker.leader_epochs["t", 0] = 5
    loop.run(router.refresh(["t"]))
    brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}))
    brokers[1].answer(ApiKey.LIST_OFFSETS, offsets_of(1))
    for broker in brokers:
        broker.leader_epochs["t", 0] = 0
        broker.leaders["t", 0] = 1
    response = loop.run(router.send_to_leader(T[0], list_offsets([T[0]])))
    assert response.topics[0].partitions[0].offset == 100


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_callers_with_short_deadlines_eventually_find_a_recreated_topic(loop, brokers, code):
    """Found by simulation: each call ended before it discarded the metadata of the old topic."""
    router = Router(loop.runtime, [brokers[0].address], retry=RetryPolicy(attempts_max=1))
    for broker in brokers:
        broker.leader_epochs["t", 0] = 5
    loop.run(router.refresh(["t"]))
    for _ in range(3):
        brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0, {0: code}))
    brokers[1].answer(ApiKey.LIST_OFFSETS, offsets_of(1))
    for broker in brokers:
        broker.leader_epochs["t", 0] = 0
        broker.leaders["t", 0] = 1
    found = []
    while not found:
        with suppress(ApiError):
            answer = loop.run(router.send_to_leader(T[0], list_offsets([T[0]])))
            found.append(answer.topics[0].partitions[0].offset)
    assert found == [100]


def test_a_partition_that_does_not_exist_fails_before_the_deadline(loop, router):
    absent = TopicPartition("t", 9)
    with pytest.raises(ApiError, match="no such topic or partition"):
        loop.run(router.send_to_leader(absent, list_offsets([absent])))


def test_leaders_are_asked_together_each_for_its_own(loop, brokers, router):
    for broker in brokers:
        broker.answer(ApiKey.LIST_OFFSETS, offsets_of(broker.broker_id))
    outcomes = loop.run(router.send_to_leaders(T, list_offsets, read_offsets))
    assert outcomes == {T[0]: 0, T[1]: 101, T[2]: 202, T[3]: 3}
    assert [len(it.requests(ApiKey.LIST_OFFSETS)) for it in brokers] == [1, 1, 1]


def test_only_partitions_that_failed_are_asked_for_again(loop, brokers, router):
    loop.run(router.refresh(["t"]))
    moved = {3: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0, moved))
    for broker in brokers[1:]:
        broker.answer(ApiKey.LIST_OFFSETS, offsets_of(broker.broker_id))
    for broker in brokers:
        broker.leaders["t", 3] = 2
    outcomes = loop.run(router.send_to_leaders(T, list_offsets, read_offsets))
    assert outcomes == {T[0]: 0, T[1]: 101, T[2]: 202, T[3]: 203}
    last = brokers[2].requests(ApiKey.LIST_OFFSETS)[-1]
    assert [it.partition_index for it in last.body.topics[0].partitions] == [3]


def test_each_partition_ends_with_its_value_or_its_own_error(loop, brokers, router):
    denied = {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0, denied))
    brokers[1].answer(ApiKey.LIST_OFFSETS, offsets_of(1))
    absent = TopicPartition("t", 9)
    outcomes = loop.run(
        router.send_to_leaders([T[0], T[1], T[3], absent], list_offsets, read_offsets)
    )
    assert outcomes[T[0]].code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert outcomes[T[1]] == 101
    assert outcomes[T[3]] == 3
    assert outcomes[absent].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_is_silent_costs_only_its_own_partitions(loop, brokers, router):
    brokers[0].answer(ApiKey.LIST_OFFSETS, offsets_of(0))
    brokers[1].answer(ApiKey.LIST_OFFSETS, SILENCE)
    outcomes = loop.run(
        router.send_to_leaders([T[0], T[1]], list_offsets, read_offsets, timeout_ms=1_000)
    )
    assert outcomes[T[0]] == 0
    assert isinstance(outcomes[T[1]], KctlError)


def test_metadata_is_refreshed_through_any_remaining_broker(loop, brokers, router):
    loop.run(router.refresh(["t"]))
    brokers[1].stop()
    for broker in brokers:
        broker.leaders["t", 1] = 2
    brokers[2].answer(ApiKey.LIST_OFFSETS, offsets_of(2))
    outcomes = loop.run(router.send_to_leaders([T[1]], list_offsets, read_offsets))
    assert outcomes == {T[1]: 201}


def test_asking_for_topics_does_not_create_them(loop, brokers, router):
    loop.run(router.refresh(["new"]))
    (asked,) = brokers[1].requests(ApiKey.METADATA)
    assert asked.body.allow_auto_topic_creation is False
    assert [it.name for it in asked.body.topics] == ["new"]


def test_an_old_broker_is_asked_for_all_topics_so_that_it_creates_none(loop):
    old = ScriptedBroker(
        loop.runtime,
        topics={"t": 1},
        versions={ApiKey.API_VERSIONS: (0, 0), ApiKey.METADATA: (0, 1)},
    ).start()
    router = Router(loop.runtime, [old.address])
    view = loop.run(router.refresh(["new"]))
    assert old.requests(ApiKey.METADATA)[0].body.topics is None
    assert list(view.topics) == ["t"]
    assert loop.run(router.max_version(ApiKey.METADATA)) == 1
    assert loop.run(router.max_version(ApiKey.PRODUCE)) == -1
    router.close()
    old.stop()


def test_none_requests_all_topics(loop, router):
    assert list(loop.run(router.refresh(None)).topics) == ["t"]


def test_two_callers_share_one_connection(loop, brokers, router):
    brokers[1].answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    tasks = [loop.scheduler.spawn(router.send_to_any(HEARTBEAT)) for _ in range(5)]
    for task in tasks:
        loop.wait(task)
    assert brokers[1].connections_accepted == 1


def test_closing_the_router_fails_requests_in_flight_at_once(loop, brokers, router):
    brokers[1].answer(ApiKey.HEARTBEAT, SILENCE)
    task = loop.scheduler.spawn(router.send_to_any(HEARTBEAT))
    loop.until(lambda: brokers[1].requests(ApiKey.HEARTBEAT))
    router.close()
    with pytest.raises(UnreachableError):
        loop.wait(task)
