"""Configs in a cluster: every broker reads them from the store, not from its own copy."""

import pytest

from kctl.admin.topics import NewTopic
from kctl.broker.config.config_changes import OVERRIDES_MAX, check_override_count
from kctl.errors import UsageError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import (
    alter_configs,
    create_partitions,
    describe_configs,
    incremental_alter_configs,
)
from kctl.store.znodes import TOPIC_CONFIGS
from tests.support.broker_cluster import running_brokers

TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE = 2, 4, 8


@pytest.fixture
def cluster(tmp_path):
    with running_brokers(tmp_path) as cluster:
        cluster.start(1, 2)
        admin = cluster.admin()
        (result,) = cluster.run(admin.topics.create([NewTopic("t", assignment={0: [1, 2]})]))
        assert result.error is None
        for broker_id in (1, 2):
            cluster.until(lambda b=broker_id: cluster.partition(b, "t"), "every replica")
        yield cluster


def set_one(cluster, broker_id, name, value):
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name="t",
                configs=[incremental_alter_configs.AlterableConfig(name=name, value=value)],
            )
        ]
    )
    answer = cluster.run(cluster.router().send_to_broker(broker_id, request))
    assert answer.responses[0].error_code == 0


def described(cluster, broker_id):
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name="t", configuration_keys=None
            )
        ]
    )
    answer = cluster.run(cluster.router().send_to_broker(broker_id, request))
    return {c.name: c.value for c in answer.results[0].configs if c.config_source == 1}


def test_a_config_that_a_broker_has_not_received_yet_is_kept_and_described(cluster):
    """
    store       retention.ms=1              broker 2 has heard nothing of it
    broker 2    segment.ms=2                changes, and describes, what is in the store
    """
    store = cluster.brokers[1].services.cluster_store
    # Written without being announced: as if the announcement had not arrived yet.
    cluster.run(store.set_entity_config(TOPIC_CONFIGS, "t", {"retention.ms": "1"}))
    assert cluster.brokers[2].services.dynamic_configs.topic("t") == {}
    assert described(cluster, 2) == {"retention.ms": "1"}
    set_one(cluster, 2, "segment.ms", "2")
    assert described(cluster, 1) == {"retention.ms": "1", "segment.ms": "2"}


def test_settings_sent_to_each_broker_in_turn_are_all_kept(cluster):
    names = ("retention.ms", "segment.ms", "flush.ms", "segment.jitter.ms", "file.delete.delay.ms")
    for number, name in enumerate(names):
        set_one(cluster, 1 + number % 2, name, str(number + 1))
    assert described(cluster, 1).keys() == described(cluster, 2).keys() == set(names)


def test_partitions_that_are_added_keep_a_reassignment_that_began_meanwhile(cluster):
    """CreatePartitions reads, then writes; the controller's writes in between are kept."""
    store = cluster.brokers[1].services.cluster_store
    moving = ReplicaAssignment((2, 1), (), ())

    class Meanwhile:
        """The creator's store, to which another client writes just before its first write."""

        def __init__(self):
            self.is_done = False

        def __getattr__(self, name):
            return getattr(store, name)

        async def update_topic_assignment(self, topic, update, *fence):
            def interrupted(before):
                if not self.is_done:
                    self.is_done = True
                    changed = {**before, 0: moving}
                    cluster.runtime.scheduler.spawn(store.set_topic_assignment(topic, changed))
                return update(before)

            await store.update_topic_assignment(topic, interrupted, *fence)

    active = next(b for b in cluster.brokers.values() if b.services.controller.is_active)
    creator = active.services.topic_creator
    creator._store = Meanwhile()
    request = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)],
        timeout_ms=10_000,
    )
    broker_id = active.services.broker_id
    answer = cluster.run(cluster.router().send_to_broker(broker_id, request))
    assert answer.results[0].error_code == 0
    assignment = cluster.run(store.get_topic_assignment("t"))
    assert assignment.keys() == {0, 1, 2}
    assert assignment[0] == moving


def test_a_reassignment_keeps_partitions_that_the_controller_has_not_noticed(cluster):
    store = cluster.brokers[1].services.cluster_store
    active = next(b for b in cluster.brokers.values() if b.services.controller.is_active)
    controller = active.services.controller
    known = dict(controller.context.topics["t"])
    assert known.keys() == {0}
    added = {**known, 1: ReplicaAssignment((1,))}

    async def story():
        await store.set_topic_assignment("t", added)
        # The controller's event for it is queued: its context is unchanged.
        assert controller.context.topics["t"].keys() == {0}
        await controller._procedures.reassignment._write(TopicPartition("t", 0), known[0])
        return await store.get_topic_assignment("t")

    assert cluster.run(story()).keys() == {0, 1}


def test_alter_configs_that_names_a_topic_twice_changes_nothing(cluster):
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name="t",
                configs=[alter_configs.AlterableConfig(name="segment.ms", value=value)],
            )
            for value in ("7", "8")
        ]
    )
    answer = cluster.run(cluster.router().send_to_broker(1, request))
    assert [it.error_code for it in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert described(cluster, 1) == {}


@pytest.mark.parametrize("module", [alter_configs, incremental_alter_configs])
@pytest.mark.parametrize(
    ("kind", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "1"), (BROKER_RESOURCE, "")]
)
def test_a_resource_with_too_many_configs_is_refused_and_others_are_altered(
    cluster, module, kind, name
):
    """Each resource is altered in one turn of the loop."""
    is_incremental = module is incremental_alter_configs
    request_type = (
        module.IncrementalAlterConfigsRequest if is_incremental else module.AlterConfigsRequest
    )
    wide = [f"c{number}" for number in range(OVERRIDES_MAX + 1)]
    resources = [
        module.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=resource_name,
            configs=[module.AlterableConfig(name=it, value="7") for it in names],
        )
        for resource_type, resource_name, names in (
            (kind, name, wide),
            *([(TOPIC_RESOURCE, "t", ["segment.ms"])] if kind != TOPIC_RESOURCE else ()),
        )
    ]
    answer = cluster.run(cluster.router().send_to_broker(1, request_type(resources=resources)))
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert f"a resource may have {OVERRIDES_MAX}" in answer.responses[0].error_message
    assert [it.error_code for it in answer.responses[1:]] == [0] * (len(resources) - 1)
    assert described(cluster, 1) == ({} if kind == TOPIC_RESOURCE else {"segment.ms": "7"})


def test_the_overrides_of_a_broker_do_not_grow_without_bound(cluster):
    def changed(first, count):
        names = [f"c{number}" for number in range(first, first + count)]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name="1",
            configs=[incremental_alter_configs.AlterableConfig(name=it, value="7") for it in names],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        return cluster.run(cluster.router().send_to_broker(1, request)).responses[0].error_code

    assert changed(0, OVERRIDES_MAX) == 0
    assert changed(OVERRIDES_MAX, 1) == ErrorCode.INVALID_REQUEST
    assert changed(0, 1) == 0


def test_a_resource_that_has_too_many_overrides_may_only_lose_some():
    before_count = 2 * OVERRIDES_MAX
    check_override_count(before_count - 1, before_count)
    for count in (before_count, before_count + 1):
        with pytest.raises(UsageError, match=f"{count} configs"):
            check_override_count(count, before_count)


def test_configs_are_described_whatever_names_are_asked_for(cluster):
    """Names that a resource does not have cost no more than their bytes."""
    names = [*(f"x{number}" for number in range(20_000)), "segment.ms", "advertised.listeners"]
    for kind, name, expected in (
        (TOPIC_RESOURCE, "t", ["segment.ms"]),
        (BROKER_RESOURCE, "1", ["advertised.listeners"]),
        (LOGGER_RESOURCE, "1", []),
    ):
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=names
                )
            ]
        )
        answer = cluster.run(cluster.router().send_to_broker(1, request))
        assert [it.name for it in answer.results[0].configs] == expected
