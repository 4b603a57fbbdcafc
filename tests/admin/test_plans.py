"""Plans of dangerous changes, and their execution, on a broker of kctl."""

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.admin.committed_offsets import (
    execute_plan,
    export_offsets,
    plan_clone,
    plan_deletion,
    plan_import,
    plan_reset,
)
from kctl.admin.config_plan import (
    apply_changes,
    describe_configs,
    explain_invalid,
    plan_changes,
)
from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.election_plan import plan_election, run_election
from kctl.admin.elections import ElectionType
from kctl.admin.group_overview import describe_groups, plan_group_deletion
from kctl.admin.offset_reset import ResetKind, ResetTarget
from kctl.admin.selection import partitions_of, select_groups, select_partitions, select_topics
from kctl.admin.topic_overview import describe_topics
from kctl.admin.topics import NewTopic
from kctl.admin.transaction_abort import (
    abort,
    abort_hanging,
    hanging_transactions,
    plan_abort,
    plan_abort_hanging,
)
from kctl.errors import KctlError, NotFoundError
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.real_loop import real_loop
from tests.support.transaction_requests import RawProducer, find_coordinators


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker(topics=["apples", "pears", "cherries", "orders"]) as broker:
        for value in ("a", "b", "c"):
            broker.produce("apples", value)
        yield broker


@pytest.fixture
def on_broker(broker):
    """Run `function(admin, ...)` on the broker."""
    with real_loop() as loop:
        admin = AdminClient.connect(loop.runtime, [(broker.host, broker.port)], 10_000)
        yield lambda function, *args, **kwargs: loop.run(function(admin, *args, **kwargs))
        admin.close()


APPLES = TopicPartition("apples", 0)
PEARS = TopicPartition("pears", 0)
ORDERS = TopicPartition("orders", 0)


async def commit(admin, group_id, offsets):
    return await admin.offsets.commit(group_id, offsets)


def test_a_glob_never_selects_an_internal_topic(on_broker):
    on_broker(commit, "fruit", {APPLES: 1})

    selected = on_broker(select_topics, ["*", "__consumer_offsets?", "peers"])

    names = [it.name for it in selected.topics]
    assert {"apples", "pears"} <= set(names)
    assert not any(name.startswith("__") for name in names)
    assert selected.missing == {"peers": "did you mean pears?"}
    named = on_broker(select_topics, ["__consumer_offsets"])
    assert [it.name for it in named.topics] == ["__consumer_offsets"]
    everything = on_broker(select_topics, [], internal=True)
    assert "__consumer_offsets" in [it.name for it in everything.topics]


def test_partitions_are_selected_in_the_order_of_the_request(on_broker):
    found = on_broker(select_partitions, {"pears": None, "apples": [0]})
    assert [(it.topic, it.partition) for it in found] == [("pears", 0), ("apples", 0)]
    assert on_broker(partitions_of, ["pears", "apples"]) == [PEARS, APPLES]
    with pytest.raises(NotFoundError, match="apples has no partition 7, only 1"):
        on_broker(select_partitions, {"apples": [7]})
    with pytest.raises(KctlError, match="No topic peers") as caught:
        on_broker(partitions_of, ["peers"])
    assert caught.value.hint == "did you mean pears?"


def test_an_overview_of_topics_has_configs_and_offsets(on_broker):
    async def create(admin):
        return await admin.topics.create([NewTopic("plums", 1, 1, {"retention.ms": "5000"})])

    on_broker(create)
    found = on_broker(describe_topics, ["plums", "apples"], with_offsets=True)

    assert found.configs["plums"] == {"retention.ms": "5000"}
    assert (found.starts[APPLES], found.ends[APPLES]) == (0, 3)
    assert on_broker(describe_topics, ["apples"]).ends == {}


def test_a_config_plan_names_what_may_delete_records_and_changes_nothing(on_broker):
    resource = ConfigResource(ResourceType.TOPIC, "cherries")
    changes = ConfigChanges({"retention.ms": "1000"})

    plan = on_broker(plan_changes, resource, changes, 2)

    assert [(it.name, it.new) for it in plan.losses] == [("retention.ms", "1000")]
    checked = on_broker(apply_changes, plan, validate_only=True)
    assert (checked.configs.error, checked.partitions.error) == (None, None)
    [before] = on_broker(describe_configs, resource, ["retention.ms"]).entries
    assert before.value == "604800000"
    on_broker(apply_changes, plan)
    [after] = on_broker(describe_configs, resource, ["retention.ms"]).entries
    assert after.value == "1000"
    assert len(on_broker(partitions_of, ["cherries"])) == 2


def test_configs_of_unknown_resources_are_an_error(on_broker):
    with pytest.raises(KctlError, match="No broker 7"):
        on_broker(describe_configs, ConfigResource(ResourceType.BROKER, "7"))
    with pytest.raises(KctlError, match="No topic appels"):
        on_broker(describe_configs, ConfigResource(ResourceType.TOPIC, "appels"))


def test_an_invalid_config_is_explained_by_the_closest_name():
    error = ApiError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.mss")
    assert "did you mean retention.ms?" in explain_invalid(error, ["retention.mss"])
    assert explain_invalid(error, ["segment.mss"]) == str(error)


def test_every_partition_has_its_own_result_of_an_election(make_broker, admin_of, run):
    """The controller's results are sorted; the request is not."""
    broker = make_broker(topics={"a": 1, "b": 1})
    broker.answer(
        ApiKey.ELECT_LEADERS,
        ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic="a", partition_result=[PartitionResult()]),
                ReplicaElectionResult(
                    topic="b",
                    partition_result=[PartitionResult(error_code=ErrorCode.ELECTION_NOT_NEEDED)],
                ),
            ]
        ),
    )
    admin = admin_of(broker)

    plan = run(plan_election(admin, ElectionType.PREFERRED, {"b": None, "a": None}))
    results = run(run_election(admin, plan))

    assert (plan.candidates, len(plan.requested)) == ([], 2)
    assert {it.before.topic: it.is_needed for it in results} == {"a": True, "b": False}


def test_an_overview_of_groups_has_their_lag(on_broker):
    on_broker(commit, "basket", {APPLES: 1})

    found = on_broker(describe_groups, ["basket", "baskets"])

    [(group, [lag])] = found.groups
    assert (group.group_id, lag.lag) == ("basket", 2)
    assert found.missing == {"baskets": "did you mean basket?"}


def test_groups_are_selected_by_globs_and_planned_for_deletion(on_broker):
    for name in ("box-1", "box-2"):
        on_broker(commit, name, {APPLES: 1})

    assert on_broker(select_groups, ["crate", "box-*"]) == ["crate", "box-1", "box-2"]
    planned = on_broker(plan_group_deletion, ["crate", "box-1"])
    assert [(it.group_id, it.error is None) for it in planned] == [
        ("crate", False),
        ("box-1", True),
    ]
    with pytest.raises(KctlError, match="No group none-"):
        on_broker(select_groups, ["none-*"], must_be_complete=True)


def test_offsets_are_cloned_exported_and_imported(on_broker):
    on_broker(commit, "origin", {APPLES: 2})

    plan = on_broker(plan_clone, "origin", "copy")
    assert plan.possible == 1
    with pytest.raises(KctlError, match="No group copy"):
        on_broker(export_offsets, ["copy"])
    on_broker(execute_plan, plan)
    exported = on_broker(export_offsets, ["copy"], {"apples": None})
    assert exported == {"copy": {APPLES: 2}}

    imported = on_broker(plan_import, {"copy": {APPLES: 9}})
    [step] = imported.steps["copy"]
    assert (step.new_offset, step.note) == (3, "9 is after the end")
    assert on_broker(execute_plan, imported) == {"copy": {APPLES: None}}
    with pytest.raises(NotFoundError, match="no committed offsets for topic pears"):
        on_broker(export_offsets, ["copy"], {"pears": None})


def test_a_reset_covers_its_scope_or_all_committed_partitions(on_broker):
    on_broker(commit, "again", {APPLES: 2})
    target = ResetTarget(ResetKind.POSITION, Position(PositionKind.EARLIEST))

    whole = on_broker(plan_reset, "again", None, target)
    scoped = on_broker(plan_reset, "again", {"pears": [0]}, target)

    assert [(it.partition, it.new_offset) for it in whole.steps["again"]] == [(APPLES, 0)]
    assert [it.partition for it in scoped.steps["again"]] == [PEARS]


def test_a_deletion_of_offsets_names_only_committed_partitions(on_broker):
    on_broker(commit, "old", {APPLES: 2})
    assert on_broker(plan_deletion, "old") == {APPLES: 2}
    assert on_broker(plan_deletion, "old", {"apples": [0]}) == {APPLES: 2}
    with pytest.raises(NotFoundError, match="No committed offset for partition 5 of apples"):
        on_broker(plan_deletion, "old", {"apples": [5]})


@pytest.fixture
def begun(broker, on_broker):
    """A producer with an open transaction in orders-0."""
    address = f"{broker.host}:{broker.port}"
    find_coordinators(address, "order", "order")
    producer = RawProducer(address, "order")
    assert producer.init() is ErrorCode.NONE
    assert producer.add("orders", 0) == [ErrorCode.NONE]
    assert producer.produce("orders", "open") is ErrorCode.NONE
    yield producer
    producer.close()


def test_an_abort_ends_the_transactions_of_known_ids_and_creates_no_others(begun, on_broker):
    with pytest.raises(KctlError, match="it belongs to transactional id order"):
        on_broker(plan_abort_hanging, ORDERS)

    plan = on_broker(plan_abort, ["order", "unknown", "order"])
    assert [it.is_open for it in plan.transactions] == [True]
    assert plan.missing == ["unknown"]
    [result] = on_broker(abort, plan)

    assert result.error is None
    assert on_broker(plan_abort, ["unknown"]).missing == ["unknown"]
    assert on_broker(hanging_transactions, "orders") == []
    assert on_broker(plan_abort_hanging, ORDERS) == []
    assert on_broker(abort_hanging, []) == []
    with pytest.raises(KctlError, match="orders has no partition 3"):
        on_broker(plan_abort_hanging, TopicPartition("orders", 3))
