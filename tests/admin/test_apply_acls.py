"""ACLs of `kctl apply` with scripted brokers: their order among the changes, and their failures."""

import pytest

from kctl.admin.apply_execution import apply_changes, plan_apply
from kctl.admin.apply_plan import Action, Kind, Prune
from kctl.admin.desired_state import parse_desired_state
from kctl.errors import UsageError
from kctl.protocol.acl import AclOperation, PermissionType, ResourceType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from kctl.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kctl.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kctl.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

TOPIC_AND_RULES = """
topics: {orders: {partitions: 1}}
acls:
  - {principal: alice, operations: [read, write], resources: ["topic:orders"]}
  - {principal: bob, operations: read, resources: "topic:orders", deny: true}
"""


def described(*entries):
    """Return a response with entries on topics: (topic, principal, operation, permission)."""
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=2,
                resource_name=topic,
                pattern_type=3,
                acls=[
                    AclDescription(
                        principal=principal, host="*", operation=operation, permission_type=allows
                    )
                ],
            )
            for topic, principal, operation, allows in entries
        ]
    )


@pytest.fixture
def broker(make_broker):
    """A broker without topics and ACLs, which accepts new ones."""
    broker = make_broker()
    broker.answer(ApiKey.DESCRIBE_ACLS, DescribeAclsResponse())
    broker.answer(ApiKey.CREATE_TOPICS, CreateTopicsResponse(topics=[created("orders")]))
    return broker


def created(topic):
    return CreatableTopicResult(name=topic)


def accepted(*codes):
    return CreateAclsResponse(results=[AclCreationResult(error_code=int(code)) for code in codes])


def applied(run, admin, text, **prune):
    """Plan, execute and return the changes."""
    desired = parse_desired_state(text, "cluster.yaml")
    changes = run(plan_apply(admin, desired, Prune(**prune)))
    return run(apply_changes(admin, desired, changes))


def test_entries_that_deny_come_first_and_topics_after_all_entries(broker, admin_of, run):
    broker.answer(ApiKey.CREATE_ACLS, accepted(0, 0, 0))

    changes = applied(run, admin_of(broker), TOPIC_AND_RULES)

    assert not any(it.error for it in changes)
    writes = [
        it
        for it in broker.requests()
        if it.api_key is ApiKey.CREATE_ACLS
        or (it.api_key is ApiKey.CREATE_TOPICS and not it.body.validate_only)
    ]
    assert [it.api_key for it in writes] == [ApiKey.CREATE_ACLS, ApiKey.CREATE_TOPICS]
    sent = [(it.principal, it.operation, it.permission_type) for it in writes[0].body.creations]
    assert sent == [
        ("User:bob", AclOperation.READ, PermissionType.DENY),
        ("User:alice", AclOperation.READ, PermissionType.ALLOW),
        ("User:alice", AclOperation.WRITE, PermissionType.ALLOW),
    ]


def test_each_entry_has_its_own_result(broker, admin_of, run):
    broker.answer(ApiKey.CREATE_ACLS, accepted(0, ErrorCode.INVALID_REQUEST, 0))

    changes = applied(run, admin_of(broker), TOPIC_AND_RULES)

    failed = [(it.target.kind, it.name) for it in changes if it.error]
    assert failed == [(Kind.ACL, "User:alice Read")]
    assert [it.action for it in changes] == [Action.CREATE] * 4


def test_planning_sends_no_change_and_a_file_without_rules_asks_for_none(broker, admin_of, run):
    run(plan_apply(admin_of(broker), parse_desired_state(TOPIC_AND_RULES, "f")))
    assert broker.requests(ApiKey.CREATE_ACLS) == []
    asked = len(broker.requests(ApiKey.DESCRIBE_ACLS))

    run(plan_apply(admin_of(broker), parse_desired_state("topics: {orders: {}}", "f")))

    assert len(broker.requests(ApiKey.DESCRIBE_ACLS)) == asked == 1


def test_pruning_concerns_the_resources_of_the_file_and_denials_go_last(broker, admin_of, run):
    allow, deny = int(PermissionType.ALLOW), int(PermissionType.DENY)
    read, write = int(AclOperation.READ), int(AclOperation.WRITE)
    broker.answer(
        ApiKey.DESCRIBE_ACLS,
        described(
            ("orders", "User:bob", read, deny),
            ("orders", "User:carol", read, allow),
            ("invoices", "User:carol", read, allow),
            ("audit", "User:carol", read, allow),
            ("audit", "User:alice", write, allow),
        ),
    )
    failed = DeleteAclsMatchingAcl(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    broker.answer(
        ApiKey.DELETE_ACLS,
        DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(),
                DeleteAclsFilterResult(matching_acls=[failed]),
                DeleteAclsFilterResult(),
            ]
        ),
    )
    text = """
topics: {orders: {}}
acls: [{principal: alice, operations: write, resources: "topic:audit"}]
"""

    assert [it.action for it in applied(run, admin_of(broker), text)] == [Action.CREATE]
    changes = applied(run, admin_of(broker), text, acls=True)

    [request] = broker.requests(ApiKey.DELETE_ACLS)
    sent = [(it.resource_name_filter, it.principal_filter) for it in request.body.filters]
    assert sent == [("orders", "User:carol"), ("audit", "User:carol"), ("orders", "User:bob")]
    assert [it.target.name for it in changes if it.error] == ["topic:audit"]


IDEMPOTENT = "{principal: a, producer: true, idempotent: true, resources: 'topic:t'}"
ALTER = "{principal: a, operations: alter, resources: cluster}"


@pytest.mark.parametrize(("rules", "is_concerned"), [(IDEMPOTENT, False), (ALTER, True)])
def test_the_brokers_keep_their_permission_beside_an_idempotent_producer(rules, is_concerned):
    desired = parse_desired_state(f"acls: [{rules}]", "f")
    kinds = {it.resource_type for it in desired.acl_patterns()}
    assert (ResourceType.CLUSTER in kinds) is is_concerned


def test_brokers_without_an_authorizer_stop_the_plan(broker, admin_of, run):
    broker.answer(
        ApiKey.DESCRIBE_ACLS,
        DescribeAclsResponse(error_code=int(ErrorCode.SECURITY_DISABLED), error_message="none"),
    )
    with pytest.raises(ApiError) as caught:
        applied(run, admin_of(broker), TOPIC_AND_RULES)
    assert caught.value.code is ErrorCode.SECURITY_DISABLED
    assert broker.requests(ApiKey.CREATE_TOPICS) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{principal: a, operation: read}", "acls[0]: unknown key operation"),
        ("{principal: a, operations: fly, resources: 'topic:t'}", "acls[0]: 'fly' is not an op"),
        ("{principal: a, operations: read}", "acls[0]: operations or resources are missing"),
        ("{operations: read, resources: 'topic:t'}", "acls[0]: A principal must not be empty"),
        ("{principal: 7, operations: read, resources: 'topic:t'}", "principal is not a text"),
        ("{principal: a, operations: read, resources: [7]}", "resources must be a list of texts"),
        ("{principal: a, operations: read, resources: t}", "acls[0]: 't' is not a resource"),
        ("{principal: a, producer: 1, resources: 'topic:t'}", "producer must be true or false"),
        ("{principal: a, producer: true, resources: 'group:t'}", "producer does not use group:t"),
        ("{principal: a, idempotent: true, resources: 'topic:t'}", "idempotent needs producer"),
        (
            "{principal: a, consumer: true, deny: true, resources: 'topic:t'}",
            "exclude producer and consumer",
        ),
        ("{principal: a, operations: read, resources: cluster, host: h}", "is not an IP address"),
        ("7", "acls[0]: expected keys and values"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(rule, message):
    with pytest.raises(UsageError) as caught:
        parse_desired_state(f"acls: [{rule}]", "cluster.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml: acls[0]")
    assert caught.value.hint
