"""Requests that name very many topics, partitions or features: each turn does a bounded part."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from kctl.broker.authorization import OnCluster, _refusing_users
from kctl.broker.controller.reassignment_requests import altered, listed, targets_of
from kctl.broker.error_responses import MIRRORED_PER_TURN, error_response, rejecting
from kctl.broker.fetch_session import FetchSessionCache
from kctl.broker.handlers import (
    elections,
    features,
    fetch,
    leader_and_isr,
    log_dirs,
    transactions,
    write_txn_markers,
)
from kctl.broker.metadata_cache import PARTITIONS_PER_TURN, TOPICS_PER_TURN, MetadataCache
from kctl.broker.replication.leadership import Leadership
from kctl.broker.replication.log_dirs import REPLICAS_PER_TURN, describe_log_dirs
from kctl.broker.request import Request, RequestContext
from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.protocol.acl import AclOperation
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kctl.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kctl.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kctl.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from kctl.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kctl.work import Pace, at_once
from tests.support.builds import needs_sources
from tests.support.virtual_runtime import virtual_runtime

COUNT = 5_000
NUMBERS = list(range(COUNT))
NAMES = [f"t{number}" for number in NUMBERS]
# One topic with all partitions, and all topics with one.
SHAPES = [[("wide", NUMBERS)], [(name, [0]) for name in NAMES]]


def request_of(body, answers):
    return Request(
        api_key=type(body).api, api_version=type(body).max_version, correlation_id=1,
        client_id=None, body=body, context=RequestContext("c", "10.0.0.7", "PLAINTEXT"),
        received_ms=0, send=answers.append, close=lambda: answers.append("closed"),
    )  # fmt: skip


def turns_of(work):
    """Return the number of turns that `work` takes, and its result."""
    turns = 1
    try:
        while True:
            next(work)
            turns += 1
    except StopIteration as stop:
        return turns, stop.value


def added(shape):
    topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in shape]
    return AddPartitionsToTxnRequest(topics=topics)


def transaction_world(shape, coordinator):
    topics = {name: dict.fromkeys(numbers) for name, numbers in shape}
    return SimpleNamespace(
        runtime=virtual_runtime(),
        metadata_cache=SimpleNamespace(snapshot=SimpleNamespace(topics=topics)),
        transaction_coordinator=SimpleNamespace(add_partitions=coordinator),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_partitions_of_a_transaction_are_looked_up_in_turns(shape):
    world = transaction_world(shape, None)
    codes, partitions, seen = [], [], 0
    work = transactions._looking_up(world, request_of(added(shape), []), codes, partitions)
    for _ in work:
        assert len(codes) - seen <= transactions.PARTITIONS_PER_TURN
        seen = len(codes)
    assert len(codes) - seen <= transactions.PARTITIONS_PER_TURN
    assert codes == [0] * COUNT
    assert partitions == [TopicPartition(name, n) for name, numbers in shape for n in numbers]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_answer_about_many_partitions_of_a_transaction_is_made_in_turns(shape):
    turns, response = turns_of(transactions._added(added(shape), NUMBERS))
    assert turns >= COUNT // transactions.PARTITIONS_PER_TURN
    results = [it for topic in response.results for it in topic.results]
    assert [it.error_code for it in results] == NUMBERS
    assert [topic.name for topic in response.results] == [name for name, _ in shape]


def test_permissions_on_many_topics_are_looked_up_in_turns():
    seen = []

    class Denied:
        def allows(self, _operation, _type, name, *, count):
            seen.append((name, count))
            return False

    request = request_of(added(SHAPES[1]), [])
    request.access = Denied()
    before = 0
    for _ in transactions._writable(request):
        assert len(seen) - before <= transactions.ACCESSES_PER_TURN
        before = len(seen)
    assert seen == [(name, 1) for name in NAMES]


@pytest.mark.parametrize("shape", SHAPES)
def test_one_unknown_partition_among_many_refuses_them_all(shape):
    def coordinator(*_):
        raise AssertionError("nothing is added")

    world = transaction_world(shape, coordinator)
    del world.metadata_cache.snapshot.topics[shape[-1][0]]
    answers = []
    transactions.handle_add_partitions_to_txn(world, request_of(added(shape), answers))
    world.runtime.scheduler.settle()
    codes = [it.error_code for topic in answers[0].results for it in topic.results]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    count = len(shape[-1][1])
    others = [ErrorCode.OPERATION_NOT_ATTEMPTED] * (COUNT - count)
    assert codes == others + [unknown] * count


def refused_bodies():
    yield added(SHAPES[0])
    yield added(SHAPES[1])
    yield ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=name, partition_id=[0]) for name in NAMES]
    )
    topics = [AlterReplicaLogDirTopic(name="wide", partitions=NUMBERS)]
    yield AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=topics)])
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES]
    yield AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=topics)])
    topics = [WritableTxnMarkerTopic(name="wide", partition_indexes=NUMBERS)]
    yield WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=topics)])
    partitions = [ReassignablePartition(partition_index=number) for number in NUMBERS]
    yield AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="wide", partitions=partitions)]
    )


@pytest.mark.parametrize("body", list(refused_bodies()))
def test_a_refusal_of_many_elements_is_made_in_turns(body):
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    turns, response = turns_of(rejecting(request_of(body, []), code))
    assert turns >= COUNT // MIRRORED_PER_TURN
    assert response == error_response(request_of(body, []), code)


def test_a_guard_refuses_many_elements_in_turns():
    answers = []
    request = request_of(next(refused_bodies()), answers)
    request.access = SimpleNamespace(allows_cluster=lambda _: False)
    world = SimpleNamespace(runtime=virtual_runtime())
    assert OnCluster(AclOperation.ALTER)(world, request) is None
    assert answers == []
    world.runtime.scheduler.settle()
    assert len(answers) == 1


def elect(world, body):
    answers, turns = [], 0
    elections.handle_elect_leaders(world, request_of(body, answers))
    while not answers:
        world.runtime.scheduler.turn()
        turns += 1
    return turns, answers[0]


def test_results_of_many_elections_are_examined_in_turns():
    runtime = virtual_runtime()
    world = SimpleNamespace(
        runtime=runtime,
        metadata_cache=None,
        topic_waits=SimpleNamespace(wait=lambda *_: done(runtime, None)),
        controller=SimpleNamespace(
            context=SimpleNamespace(leadership={}),
            ask=lambda _: done(runtime, ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)),
        ),
    )
    topics = [TopicPartitions(topic="wide", partition_id=NUMBERS)]
    turns, response = elect(world, ElectLeadersRequest(topic_partitions=topics, timeout_ms=1))
    # All are answered, and looked at once more.
    assert turns >= 2 * COUNT // Pace.UNITS_PER_TURN
    (topic,) = response.replica_election_results
    assert [it.partition_id for it in topic.partition_result] == NUMBERS


def done(runtime, result):
    future = runtime.scheduler.future()
    future.set_result(result)
    return future


class Turns:
    """Counts the turns of a Pace, and runs its coroutines to their end."""

    def __init__(self):
        self.count = 0
        self.runtime = virtual_runtime()
        self.pace = Pace(self._turn)

    async def _turn(self):
        self.count += 1

    def run(self, coroutine):
        task = self.runtime.scheduler.spawn(coroutine, "test")
        self.runtime.scheduler.settle()
        return task.result()


def test_reassignments_of_many_partitions_are_read_and_answered_at_a_pace():
    turns = Turns()
    partitions = [ReassignablePartition(partition_index=n, replicas=[n]) for n in NUMBERS]
    topics = [ReassignableTopic(name="wide", partitions=partitions)]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    targets = turns.run(targets_of(request, turns.pace))
    assert targets == {TopicPartition("wide", n): (n,) for n in NUMBERS}
    assert turns.count >= COUNT // Pace.UNITS_PER_TURN - 1
    before = turns.count
    response = turns.run(altered(dict.fromkeys(targets, (1, None)), turns.pace))
    assert [it.partition_index for it in response.responses[0].partitions] == NUMBERS
    assert turns.count - before >= COUNT // Pace.UNITS_PER_TURN - 1
    before = turns.count
    asked = [ListPartitionReassignmentsTopics(name="wide", partition_indexes=NUMBERS)]
    request = ListPartitionReassignmentsRequest(topics=asked)
    context = SimpleNamespace(reassigning={})
    assert turns.run(listed(context, request, turns.pace)).topics == []
    assert turns.count - before >= COUNT // Pace.UNITS_PER_TURN - 1


@pytest.mark.parametrize("shape", SHAPES)
def test_moves_of_many_replicas_are_read_in_turns(shape):
    topics = [AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in shape]
    body = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=topics)])
    turns, wanted = turns_of(log_dirs._moves(body))
    assert turns >= COUNT // log_dirs.GATHERED_PER_TURN
    assert len(wanted) == COUNT


def test_many_updates_of_features_are_answered_in_turns():
    updates = [FeatureUpdateKey(feature=name) for name in NAMES]
    body = UpdateFeaturesRequest(feature_updates=updates)
    turns, response = turns_of(features._results(body))
    assert turns >= COUNT // features.UPDATES_PER_TURN
    assert response == at_once(features._results(body))
    assert [it.feature for it in response.results] == NAMES


def test_many_markers_without_partitions_are_gathered_in_turns():
    markers = [WritableTxnMarker(producer_id=number) for number in NUMBERS]
    results = []
    turns, _ = turns_of(write_txn_markers._gathering(markers, results, []))
    assert turns >= COUNT // write_txn_markers.GATHERED_PER_TURN
    assert [it.producer_id for it in results] == NUMBERS


def fetched(shape, session_id=0, session_epoch=0):
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=n) for n in numbers])
        for name, numbers in shape
    ]
    return FetchRequest(
        replica_id=-1, session_id=session_id, session_epoch=session_epoch, topics=topics
    )


class ReadableIfEven:
    """Allows to read topics with an even number, and notes which it was asked for."""

    def __init__(self):
        self.seen = []

    def allows(self, _operation, _type, name, *, count):
        self.seen.append((name, count))
        return int(name[1:]) % 2 == 0


def fetching_world(reads):
    """A broker whose fetches end in `reads`, as (topic, partition), and return nothing."""

    def fetch(_params, partitions, on_done, _on_error):
        reads.append([(topic, it.partition) for topic, it in partitions])
        on_done([])

    return SimpleNamespace(
        runtime=virtual_runtime(),
        config=SimpleNamespace(fetch_max_bytes=1_000),
        client_quotas=SimpleNamespace(is_enabled=False),
        fetch_sessions=FetchSessionCache(10, lambda _bound: 100),
        replica_manager=SimpleNamespace(fetch=fetch),
    )


@needs_sources
def test_topics_of_a_fetch_are_judged_in_turns():
    access, reads, answers = ReadableIfEven(), [], []
    world = fetching_world(reads)
    shape = [(name, [0, 1]) for name in NAMES]
    # The first one is large itself, the second continues a large session.
    for body, release in ((fetched(shape), lambda: None), (fetched([], 101, 1), None)):
        access.seen.clear()
        reads.clear()
        answers.clear()
        request = request_of(body, answers)
        request.access, request.release = access, release
        fetch.handle_fetch(world, request)
        before = 0
        while not answers:
            assert len(access.seen) - before <= fetch.TOPICS_JUDGED_PER_TURN
            before = len(access.seen)
            world.runtime.scheduler.turn()
        assert access.seen == [(name, 2) for name in NAMES]
        assert reads == [[(name, n) for name in NAMES[::2] for n in (0, 1)]]
        assert answers[0].session_id == 101
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [
            (it.topic, [(each.partition, each.error_code) for each in it.partition_responses])
            for it in answers[0].responses
        ] == [(name, [(0, refused), (1, refused)]) for name in NAMES[1::2]]


def test_topics_of_a_fetch_that_was_decoded_at_once_are_judged_in_turns():
    access, reads, answers = ReadableIfEven(), [], []
    world = fetching_world(reads)
    names = NAMES[: 2 * fetch.TOPICS_JUDGED_PER_TURN + 1]
    request = request_of(fetched([(name, [0]) for name in names]), answers)
    request.access = access
    fetch.handle_fetch(world, request)
    seen = [len(access.seen)]
    while not answers:
        world.runtime.scheduler.turn()
        seen.append(len(access.seen))
    assert seen[-1] == len(names)
    steps = [after - before for before, after in pairwise([0, *seen])]
    assert max(steps) == fetch.TOPICS_JUDGED_PER_TURN


@needs_sources
def test_a_small_fetch_is_read_without_a_turn():
    reads, answers = [], []
    request = request_of(fetched([("t2", [0]), ("t3", [0])]), answers)
    request.access = ReadableIfEven()
    fetch.handle_fetch(fetching_world(reads), request)
    assert reads == [[("t2", 0)]]
    assert [it.topic for it in answers[0].responses] == ["t3"]


@needs_sources
def test_the_response_to_a_fetch_of_many_topics_is_put_together_in_turns(monkeypatch):
    monkeypatch.setattr(fetch, "_partition_response", lambda _services, it, _version: it)
    results = [(name, name) for name in NAMES]
    context = SimpleNamespace(session=None, session_id=0)
    turns, response = turns_of(fetch._response_in_parts(None, context, results, 11))
    # The partitions first, and then their topics.
    assert turns >= 2 * (COUNT // fetch.PARTITIONS_PER_TURN)
    assert [it.topic for it in response.responses] == NAMES


def test_changes_of_many_users_are_refused_in_turns():
    upsertions = [ScramCredentialUpsertion(name=name) for name in NAMES]
    request = request_of(AlterUserScramCredentialsRequest(upsertions=upsertions), [])
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    turns, response = turns_of(_refusing_users(request, code, "no"))
    assert turns >= COUNT // MIRRORED_PER_TURN
    assert [it.user for it in response.results] == sorted(NAMES)


# --- the controller's requests


@pytest.mark.parametrize("has_partitions", [False, True])
def test_the_names_of_many_topics_are_checked_in_turns(has_partitions):
    states = [LeaderAndIsrPartitionState(partition_index=0)] if has_partitions else []
    topics = [LeaderAndIsrTopicState(topic_name=it, partition_states=states) for it in NAMES]
    body = LeaderAndIsrRequest(topic_states=topics)
    turns, found = turns_of(leader_and_isr.new_topics(body, {("t7", 0)}))
    assert turns >= COUNT // leader_and_isr.CHECKED_PER_TURN
    assert found == ([name for name in NAMES if name != "t7"] if has_partitions else [])
    topics[-1].topic_name = "../t"
    with pytest.raises(CorruptDataError):
        turns_of(leader_and_isr.new_topics(body, {}))


def test_topics_without_partitions_take_their_turns():
    replicas = SimpleNamespace(
        on_offline=lambda _: None, controller_epoch=1, broker_id=1, partitions={}
    )
    leadership = Leadership(replicas, None, None, lambda: 1)
    for work in (
        leadership.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_epoch=1,
                topic_states=[LeaderAndIsrTopicState(topic_name=name) for name in NAMES],
            )
        ),
        leadership.stop_replicas(
            StopReplicaRequest(
                controller_epoch=1,
                topic_states=[StopReplicaTopicState(topic_name=name) for name in NAMES],
            )
        ),
    ):
        turns, response = turns_of(work)
        assert turns >= COUNT // 500
        assert (response.error_code, response.partition_errors) == (0, [])
    turns, _ = turns_of(leadership.apply_metadata((name, None) for name in NAMES))
    assert turns >= COUNT // 500


def test_the_metadata_of_many_topics_are_merged_in_turns():
    cache = MetadataCache(1)

    def update(names, index):
        states = [UpdateMetadataPartitionState(partition_index=index, leader=1, isr=[1])]
        topics = [UpdateMetadataTopicState(topic_name=it, partition_states=states) for it in names]
        return UpdateMetadataRequest(controller_id=1, topic_states=topics)

    work = cache.updating(update(NAMES, 0))
    assert COUNT // PARTITIONS_PER_TURN + COUNT // TOPICS_PER_TURN > 2
    next(work)
    next(work)
    # Another update ends in between: neither is lost.
    cache.update(update(["t1", "other"], 1))
    turns, _ = turns_of(work)
    assert turns > 2
    assert set(cache.topics()) == {*NAMES, "other"}
    assert cache.partitions_of("t1") == [0, 1]
    assert cache.snapshot.version == 2


def log(number, directory="/a"):
    return SimpleNamespace(
        topic_partition=TopicPartition("t", number), log_directory=directory, size=number,
        high_watermark=3, log_end_offset=2, is_closed=False,
    )  # fmt: skip


def test_the_replicas_of_log_directories_are_described_in_turns():
    logs = [log(number, "/" + "ab"[number % 2]) for number in NUMBERS]
    failed = []
    manager = SimpleNamespace(
        live_log_dirs=["/a", "/b"], offline_log_dirs=failed, all_logs=lambda: logs,
        get_log=lambda tp: logs[tp.partition], futures=SimpleNamespace(all=lambda: [log(7, "/b")]),
    )  # fmt: skip
    services = SimpleNamespace(replica_manager=SimpleNamespace(log_manager=manager))
    turns, response = turns_of(log_dirs._described(services, DescribeLogDirsRequest(topics=None)))
    assert turns > COUNT // REPLICAS_PER_TURN
    first, second = response.results
    assert [it.partition_index for it in first.topics[0].partitions] == NUMBERS[::2]
    assert [it.partition_index for it in second.topics[0].partitions] == [*NUMBERS[1::2], 7]
    assert (first.topics[0].partitions[1].partition_size, second.log_dir) == (2, "/b")
    assert [it.is_future_key for it in second.topics[0].partitions].count(True) == 1

    wanted = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic="t", partition_index=[4, 10**6])]
    )
    _, response = turns_of(log_dirs._described(services, wanted))
    assert [it.partition_index for it in response.results[0].topics[0].partitions] == [4]
    # Every topic of a directory is named, also without a partition that was requested.
    assert [(it.name, it.partitions) for it in response.results[1].topics] == [("t", [])]

    # A directory fails meanwhile: it has an error, and no replicas.
    work = describe_log_dirs(manager)
    next(work)
    manager.live_log_dirs.remove("/b")
    failed.append("/b")
    for each in logs[1::2]:
        each.is_closed = True
    _, (live, offline) = turns_of(work)
    assert (live.path, live.error_code, len(live.replicas)) == ("/a", 0, COUNT // 2)
    assert (offline.path, offline.error_code) == ("/b", ErrorCode.KAFKA_STORAGE_ERROR)
    assert offline.replicas == []
