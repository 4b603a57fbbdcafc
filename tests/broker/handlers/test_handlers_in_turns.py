"""Requests that name very many partitions are handled in turns, with others in between."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from kctl.broker import handlers
from kctl.broker.handlers import configs, log_dirs, write_txn_markers
from kctl.broker.replication.replica_manager import AppendResult
from kctl.broker.request import Request, RequestContext
from kctl.configs.link_configs import (
    MIRROR_SOURCE,
    MIRROR_STATUS,
    STATUS_PARTITIONS,
    status_config,
)
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kctl.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kctl.work import Pace
from tests.support.virtual_runtime import virtual_runtime

COUNT = 1_000
SPAWN = re.compile(r"^ *(?!tasks\.append)\S*scheduler\.spawn\(", re.MULTILINE)


class Recorder:
    """Stands in for the functions that the handlers call, partition by partition."""

    def __init__(self):
        self.seen = []

    def alter(self, tp, _path):
        self.seen.append(tp.partition)
        return ErrorCode.NONE if tp.partition % 2 else ErrorCode.LOG_DIR_NOT_FOUND

    def append_records(self, entries, _acks, _timeout_ms, on_done, **_):
        self.seen += [number for _, number, _ in entries]
        on_done([AppendResult(topic, number, number % 2) for topic, number, _ in entries])


@pytest.fixture
def world():
    recorder = Recorder()
    return SimpleNamespace(
        runtime=virtual_runtime(),
        config=SimpleNamespace(request_timeout_ms=1),
        alter_log_dirs=recorder,
        replica_manager=SimpleNamespace(partitions={}, append_records=recorder.append_records),
        recorder=recorder,
    )


def ask(world, handler, body):
    """Return the response, and the number of partitions handled per turn."""
    answers = []
    request = Request(
        api_key=type(body).api, api_version=0, correlation_id=1, client_id=None, body=body,
        context=RequestContext("c", "10.0.0.7", "PLAINTEXT"), received_ms=0,
        send=answers.append, close=lambda: answers.append("closed"),
    )  # fmt: skip
    handler(world, request)
    turns = [len(world.recorder.seen)]
    while not answers:
        before = len(world.recorder.seen)
        world.runtime.scheduler.turn()
        turns.append(len(world.recorder.seen) - before)
    return answers[0], turns


def test_log_dirs_of_many_replicas(world):
    topic = AlterReplicaLogDirTopic(name="t", partitions=list(range(COUNT)))
    body = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=[topic])])
    answer, turns = ask(world, log_dirs.handle_alter_replica_log_dirs, body)
    assert max(turns) <= log_dirs.MOVES_PER_TURN
    results = [(it.partition_index, it.error_code) for it in answer.results[0].partitions]
    refused = int(ErrorCode.LOG_DIR_NOT_FOUND)
    assert results == [(n, 0 if n % 2 else refused) for n in range(COUNT)]


def test_configs_of_many_topics_are_described(world, monkeypatch):
    """Each has some thirty configs, with synonyms, and takes about half a millisecond."""

    def described(_services, _request, resource, overrides, _store_error):
        world.recorder.seen.append(overrides[resource.resource_name])
        one = DescribeConfigsResourceResult(name="c")
        return DescribeConfigsResult(resource_name=resource.resource_name, configs=[one] * 30)

    async def get_entity_configs(_entity_type, names):
        return {name: name for name in names}

    monkeypatch.setattr(configs, "_described", described)
    world.metadata_cache = SimpleNamespace(contains=lambda _: True)
    world.cluster_store = SimpleNamespace(get_entity_configs=get_entity_configs)
    names = [f"t{number}" for number in range(100)]
    body = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    )
    answer, turns = ask(world, configs.handle_describe_configs, body)
    assert max(turns) <= Pace.UNITS_PER_TURN // (30 * configs.UNITS_PER_CONFIG) + 1
    assert [it.resource_name for it in answer.results] == world.recorder.seen == names


def test_the_partitions_of_a_wide_link_are_described(world, monkeypatch):
    count = 10_000
    phases = [SimpleNamespace(phase="following")] * count

    def status(_topic, numbers):
        world.recorder.seen += numbers
        return f"{len(numbers)} from {numbers[0]} on"

    overrides = {"t": {MIRROR_SOURCE: "west"}}

    async def get_entity_configs(_entity_type, _names):
        return overrides

    monkeypatch.setattr(configs, "_described", lambda *_: DescribeConfigsResult())
    world.metadata_cache = SimpleNamespace(contains=bool, partition_count=lambda _: count)
    world.cluster_store = SimpleNamespace(get_entity_configs=get_entity_configs)
    world.links = SimpleNamespace(
        status=status, among=lambda _, numbers: [phases[number] for number in numbers]
    )
    names = [MIRROR_STATUS, *(status_config(number) for number in range(count))]
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=names)
    answer, turns = ask(
        world, configs.handle_describe_configs, DescribeConfigsRequest(resources=[resource])
    )
    most = Pace.UNITS_PER_TURN // configs.UNITS_PER_LINKED + STATUS_PARTITIONS
    assert max(turns) <= most < count // 20
    [result] = answer.results
    assert len(result.configs) == count // STATUS_PARTITIONS + 1
    assert result.configs[0].value == f"following: {count}"
    assert (result.configs[-1].name, result.configs[-1].value) == (
        "mirror.status.9960", "40 from 9960 on",
    )  # fmt: skip
    assert world.recorder.seen == list(range(count))

    # Other clients name no configs: they get what has a bounded size.
    resource.configuration_keys = None
    answer, _ = ask(
        world, configs.handle_describe_configs, DescribeConfigsRequest(resources=[resource])
    )
    assert [it.name for it in answer.results[0].configs] == [MIRROR_STATUS]

    # The link has ended, which is not applied to partition 50 yet: no client can write to it.
    overrides.clear()
    world.links.among = lambda _, numbers: [it for it in numbers if it == 50]
    resource.configuration_keys = names
    answer, _ = ask(
        world, configs.handle_describe_configs, DescribeConfigsRequest(resources=[resource])
    )
    assert [it.name for it in answer.results[0].configs] == ["mirror.status.40"]


@pytest.mark.parametrize(
    ("resource_type", "units"), [(2, "UNITS_OF_TOPIC"), (4, "UNITS_OF_BROKER")]
)
def test_configs_of_many_resources_are_altered(world, monkeypatch, resource_type, units):
    """A broker may be named in many ways: its number may begin with zeros."""

    async def altered(_services, resource, _is_incremental, _validate_only):
        world.recorder.seen.append(resource.resource_name)

    monkeypatch.setattr(configs, "_alter_one", altered)
    names = ["0" * number for number in range(1, 101)]
    body = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=resource_type, resource_name=name) for name in names
        ]
    )
    _, turns = ask(world, configs.handle_incremental_alter_configs, body)
    assert max(turns) <= Pace.UNITS_PER_TURN // getattr(configs, units) + 1
    assert world.recorder.seen == names


@pytest.mark.parametrize(
    ("handler", "owner", "name"),
    [
        (log_dirs.handle_alter_replica_log_dirs, "alter_log_dirs", "alter"),
        (write_txn_markers.handle_write_txn_markers, "replica_manager", "append_records"),
    ],
)
def test_an_error_of_a_later_turn_ends_the_request(world, monkeypatch, handler, owner, name):
    if handler is log_dirs.handle_alter_replica_log_dirs:
        topic = AlterReplicaLogDirTopic(name="t", partitions=list(range(COUNT)))
        body = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d", topics=[topic])])
    else:
        topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(COUNT)))
        body = WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=[topic])])
    handle = getattr(getattr(world, owner), name)

    def failing(*arguments, **options):
        if len(world.recorder.seen) > COUNT // 2:
            raise LookupError("a bug")
        return handle(*arguments, **options)

    monkeypatch.setattr(getattr(world, owner), name, failing)
    answers = []
    request = Request(
        api_key=type(body).api, api_version=0, correlation_id=1, client_id=None, body=body,
        context=RequestContext("c", "10.0.0.7", "PLAINTEXT"), received_ms=0,
        send=answers.append, close=answers.append,
        failed=lambda _request, error: answers.append(type(error)),
    )  # fmt: skip
    handler(world, request)
    world.runtime.scheduler.settle()
    assert answers == [LookupError]


@pytest.mark.parametrize("count", [0, 1, COUNT])
def test_markers_for_many_partitions(world, count):
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count)))
    markers = [WritableTxnMarker(producer_id=n, topics=[topic]) for n in range(2)]
    body = WriteTxnMarkersRequest(markers=markers)
    answer, turns = ask(world, write_txn_markers.handle_write_txn_markers, body)
    assert max(turns) <= write_txn_markers.MARKERS_PER_TURN
    assert [it.producer_id for it in answer.markers] == [0, 1]
    for marker in answer.markers:
        results = [(it.partition_index, it.error_code) for it in marker.topics[0].partitions]
        assert results == [(n, n % 2) for n in range(count)]


def test_coroutines_of_requests_are_started_where_their_errors_are_handled():
    """An error in a coroutine that the scheduler started was logged, and its request unanswered."""
    modules = Path(handlers.__file__).parent.glob("*.py")
    assert [path.name for path in modules if SPAWN.search(path.read_text())] == []


@pytest.mark.parametrize("partitions", [0, 1, 10_000])
def test_markers_are_gathered_in_turns(partitions):
    count = 5_000 if partitions < 2 else 1
    topics = [
        WritableTxnMarkerTopic(name="t", partition_indexes=list(range(partitions)))
        for _ in range(count)
    ]
    marker = WritableTxnMarker(producer_id=7, topics=topics)
    results, waiting, turns, seen = [], [], 0, 0
    for _ in write_txn_markers._gathering([marker], results, waiting):
        assert len(waiting) - seen <= write_txn_markers.GATHERED_PER_TURN
        seen = len(waiting)
        turns += 1
    assert turns >= 4
    (result,) = results
    assert [len(topic.partitions) for topic in result.topics] == [partitions] * count
    assert len(waiting) == partitions * count


@pytest.mark.parametrize(("count", "units"), [(1_000, 0), (40, 5)])
def test_the_group_coordinator_applies_what_ended_in_turns(world, monkeypatch, count, units):
    monkeypatch.setattr(write_txn_markers, "GROUP_UNITS_PER_TURN", 20)
    applied = []

    def ending(producer_id, partition, *, is_commit):
        assert (producer_id, is_commit) == (7, True)
        applied.append(partition)
        yield from ()
        return units

    world.group_coordinator = SimpleNamespace(ending_transaction=ending)
    topic = WritableTxnMarkerTopic(
        name="__consumer_offsets", partition_indexes=list(range(0, 2 * count, 2))
    )
    marker = WritableTxnMarker(producer_id=7, transaction_result=True, topics=[topic])
    answers = []
    request = Request(
        api_key=WriteTxnMarkersRequest.api, api_version=0, correlation_id=1, client_id=None,
        body=WriteTxnMarkersRequest(markers=[marker]),
        context=RequestContext("c", "10.0.0.7", "PLAINTEXT"), received_ms=0,
        send=answers.append, close=lambda: answers.append("closed"),
    )  # fmt: skip
    write_txn_markers.handle_write_txn_markers(world, request)
    longest = len(applied)
    while not answers:
        before = len(applied)
        world.runtime.scheduler.turn()
        longest = max(longest, len(applied) - before)
    assert applied == list(range(0, 2 * count, 2))
    assert longest <= 20 // (1 + units) + 1
