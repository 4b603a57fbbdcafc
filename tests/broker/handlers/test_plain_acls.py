"""T23: the fast paths serve what ACLs allow at that moment, and leave the rest to the guards."""

from dataclasses import replace
from random import Random  # noqa: TID251 - only ever seeded

import pytest

from kctl.broker.security.authorizer import AclAuthorizer
from kctl.configs.authorizer_settings import AuthorizerSettings
from kctl.protocol.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.runtime.trace import NullTrace
from tests.broker.handlers import test_plain_commits as commits
from tests.broker.handlers import test_plain_produce as produce

STEPS = 5_000
TOPIC = AclPattern(ResourceType.TOPIC, "t")
GROUP = AclPattern(ResourceType.GROUP, "simple")
CLUSTER = AclPattern(ResourceType.CLUSTER, CLUSTER_NAME)
WRITE, READ = AclOperation.WRITE, AclOperation.READ
ALICE = replace(produce.CONTEXT, principal="User:alice")


@pytest.fixture
def authorizer():
    return AclAuthorizer(AuthorizerSettings(), NullTrace(), lambda: 0)


def allow(authorizer, pattern, operation, *, is_allowed=True):
    entry = AclEntry("User:alice", "*", operation, PermissionType.ALLOW)
    authorizer.replace(pattern, [entry] if is_allowed else [])


def is_taken(road, frame, context=ALICE):
    return road.answer(frame, lambda _: None, context)


def test_nothing_is_appended_after_a_change_that_denies_it(tmp_path, authorizer):
    broker = produce.Broker(tmp_path, has_fast_path=True)
    broker.ask(produce.plain_frame())
    broker.road._authorizer = authorizer
    frame, rng, is_allowed = produce.plain_frame(), Random(23), False
    for _ in range(STEPS):
        if rng.random() < 0.3:
            is_allowed = not is_allowed
            allow(authorizer, TOPIC, WRITE, is_allowed=is_allowed)
        end = broker.world.partition.log.log_end_offset
        assert is_taken(broker.road, frame) is is_allowed
        assert broker.world.partition.log.log_end_offset == end + is_allowed
    assert not is_taken(broker.road, frame, replace(ALICE, principal="User:bob"))


def test_a_batch_of_an_idempotent_producer_needs_its_permission_whatever_the_head(
    tmp_path, authorizer
):
    """CVE-2018-17196: plain batches before it, with the same head, do not help."""
    broker = produce.Broker(tmp_path, has_fast_path=True)
    broker.ask(produce.plain_frame())
    broker.road._authorizer = authorizer
    allow(authorizer, TOPIC, WRITE)
    assert is_taken(broker.road, produce.plain_frame())
    records = produce.batch(b"v", producer_id=9, producer_epoch=0, base_sequence=0)
    partition = produce.PartitionProduceData(partition_index=0, records=records)
    topics = [produce.TopicProduceData(name="t", partitions=[partition])]
    body = produce.ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topics=topics)
    idempotent = produce.frame_of(body, 8, "client", 0)
    assert not is_taken(broker.road, idempotent)
    allow(authorizer, CLUSTER, AclOperation.IDEMPOTENT_WRITE)
    assert is_taken(broker.road, idempotent)


def test_a_commit_needs_the_group_and_the_topic(authorizer):
    broker = commits.Broker()
    broker.ask(commits.plain_frame(1))
    broker.ask(commits.plain_frame(1))
    assert broker.short_answers == 1
    broker.road._authorizer = authorizer
    rng, allowed = Random(23), {TOPIC: False, GROUP: False}
    for number in range(STEPS // 10):
        pattern = rng.choice([TOPIC, GROUP])
        allowed[pattern] = not allowed[pattern]
        allow(authorizer, pattern, READ, is_allowed=allowed[pattern])
        before = broker.committed("simple").offset
        taken = is_taken(broker.road, commits.plain_frame(2 + number))
        broker.world.scheduler.settle()
        assert taken is all(allowed.values())
        assert broker.committed("simple").offset == (2 + number if taken else before)
