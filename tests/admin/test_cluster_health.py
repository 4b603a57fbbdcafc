"""Problems of a cluster, judged from facts."""

import pytest

from kctl.admin.cluster_health import (
    CHECKS,
    HealthFacts,
    Severity,
    judge,
    judge_identity,
)
from kctl.admin.configs import ConfigResource, ResourceType
from kctl.admin.log_dirs import LogDirDescription, ReplicaSize
from kctl.admin.reassignment import MoveProgress
from kctl.admin.replication_throttle import Leftover
from kctl.admin.topics import PartitionDescription
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.storage.meta_properties import MetaProperties

TP = TopicPartition("t", 0)
THROTTLE = Leftover(ConfigResource(ResourceType.BROKER, "1"), {"a.rate": "5"})


def partition(leader=1, replicas=(1, 2), isr=(1, 2)):
    return PartitionDescription("t", 0, leader, 0, list(replicas), list(isr), [])


def facts(**given):
    healthy = {"controller_id": 1, "brokers": [1, 2], "partitions": [partition()]}
    return HealthFacts(**{**healthy, "min_isr": {"t": 2}, **given})


def test_a_healthy_cluster_has_no_findings():
    assert judge(facts()) == []


@pytest.mark.parametrize(
    ("given", "check", "subject", "detail"),
    [
        ({"controller_id": -1}, "controller", "cluster", "no broker is controller"),
        ({"silent": {2: "does not answer"}}, "broker", "broker 2", "does not answer"),
        (
            {"partitions": [partition(replicas=(1, 2, 3), isr=(1, 2, 3))]},
            "broker",
            "broker 3",
            "has replicas, but is not alive",
        ),
        ({"partitions": [partition(leader=-1)]}, "offline", "t-0", "no leader; replicas 1,2"),
        ({"partitions": [partition(leader=2)]}, "leader not preferred", "t-0", "led by 2, not 1"),
        ({"throttles": [THROTTLE]}, "leftover throttle", "broker 1", "a.rate"),
        (
            {"log_dirs": [LogDirDescription(1, "/d", [], ApiError(ErrorCode.KAFKA_STORAGE_ERROR))]},
            "log directory",
            "broker 1: /d",
            str(ApiError(ErrorCode.KAFKA_STORAGE_ERROR)),
        ),
    ],
)
def test_each_problem_is_found(given, check, subject, detail):
    [found] = judge(facts(**given))
    assert (found.check, found.subject, found.detail) == (check, subject, detail)
    assert found.severity is CHECKS[check]


def test_an_unassigned_replica_is_a_leftover():
    """Broker 2 was down when the replica was moved, or the topic deleted."""
    old, young = TopicPartition("old", 0), TopicPartition("young", 0)

    def directory(*partitions):
        replicas = [ReplicaSize(tp, 100, 0, is_future=False) for tp in partitions]
        return LogDirDescription(2, "/d", replicas)

    [found] = judge(facts(log_dirs=[directory(TP, old)], log_dirs_later=[directory(old, young)]))
    assert (found.check, found.subject) == ("leftover replica", "broker 2: old-0")
    assert found.detail.startswith("is in /d")
    # A topic was deleted or created between the requests.
    assert judge(facts(log_dirs=[directory(old)], log_dirs_later=[directory(young)])) == []


def test_a_small_isr_is_critical_only_below_the_minimum():
    small = [partition(isr=(1,))]
    assert [it.check for it in judge(facts(partitions=small))] == [
        "under min ISR",
        "under-replicated",
    ]
    [found] = judge(facts(partitions=small, min_isr={"t": 1}))
    assert (found.severity, found.detail) == (Severity.WARNING, "out of sync: 2")


def test_a_move_is_stuck_if_its_broker_is_gone_or_nothing_was_copied():
    first = MoveProgress(TP, (2,), (), 10, 100)
    for later, brokers, stuck in (
        (MoveProgress(TP, (2,), (), 11, 100), [1, 2], 0),
        (MoveProgress(TP, (2,), (), 10, 100), [1, 2], 1),
        (MoveProgress(TP, (2,), (), 11, 100), [1], 1),
    ):
        given = facts(
            brokers=brokers, partitions=[], moving=[first], moving_later=[later],
            throttles=[THROTTLE],
        )  # fmt: skip
        assert [it.check for it in judge(given)] == ["stuck reassignment"] * stuck


def test_replicas_that_are_being_added_are_not_missing():
    """Nor is the leader wrong before they are in place."""
    moved = partition(leader=1, replicas=(3, 2, 1), isr=(1, 2))
    first, later = (MoveProgress(TP, (3,), (1,), done, 100) for done in (10, 11))
    given = {"brokers": [1, 2, 3], "moving": [first], "moving_later": [later]}
    assert judge(facts(partitions=[moved], **given)) == []
    lost = partition(leader=1, replicas=(3, 2, 1), isr=(1,))
    [found, _] = judge(facts(partitions=[lost], **given))
    assert (found.check, found.detail) == ("under min ISR", "ISR 1, at least 2 needed for acks=all")


def test_a_move_between_directories_needs_no_other_broker_but_may_be_stuck():
    first = MoveProgress(TP, ("1:/new",), ("1:/old",), 10, 100, broker_id=1)
    given = facts(brokers=[1, 2], moving=[first], moving_later=[first])
    assert [it.check for it in judge(given)] == ["stuck reassignment"]


def test_a_directory_of_another_cluster_or_broker_is_reported():
    assert judge_identity("/d", MetaProperties(1, "c"), "c", 1) is None
    assert judge_identity("/d", MetaProperties(1, None), "c", 1) is None
    found = judge_identity("/d", MetaProperties(2, "x"), "c", 1)
    assert found.detail == "cluster.id x, not c; broker.id 2, not 1"
