"""Entries of brokers whose operations, types and permissions kctl does not know."""

import pytest

from kctl.admin.apply_execution import plan_apply
from kctl.admin.apply_plan import Prune
from kctl.admin.desired_state import parse_desired_state
from kctl.protocol.acl import AclOperation, AclPattern, ResourceType
from kctl.protocol.acl_decisions import Reason
from kctl.protocol.acl_text import pattern_text
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from kctl.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

LITERAL, ALLOW = 3, 3
TOPIC, TRANSACTIONAL_ID = 2, 5
READ, TWO_PHASE_COMMIT = 3, 15


def described(*entries):
    """Return a response with entries of alice: (resource type, name, pattern type, operation,
    permission)."""
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal="User:alice",
                        host="*",
                        operation=operation,
                        permission_type=permission,
                    )
                ],
            )
            for resource_type, name, pattern_type, operation, permission in entries
        ]
    )


@pytest.fixture
def listed(make_broker, admin_of, run):
    """Return the entries that kctl lists for those that a broker has."""

    def of(*entries):
        broker = make_broker()
        broker.answer(ApiKey.DESCRIBE_ACLS, described(*entries))
        return run(admin_of(broker).acls.list_acls())

    return of


def test_two_phase_commit_has_its_name(listed):
    """The operation that Kafka 4 has for transactional ids (KIP-939)."""
    (binding,) = listed((TRANSACTIONAL_ID, "shop", LITERAL, TWO_PHASE_COMMIT, ALLOW))

    assert binding.entry.operation is AclOperation.TWO_PHASE_COMMIT
    assert binding.entry.operation.text == "TwoPhaseCommit"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            (TOPIC, "t", LITERAL, 99, ALLOW),
            "Allow UNKNOWN(99) for User:alice from host * on Topic:LITERAL:t",
        ),
        (
            (98, "t", LITERAL, READ, ALLOW),
            "Allow Read for User:alice from host * on UNKNOWN(98):LITERAL:t",
        ),
        (
            (TOPIC, "t", 97, READ, ALLOW),
            "Allow Read for User:alice from host * on Topic:UNKNOWN(97):t",
        ),
        (
            (TOPIC, "t", LITERAL, READ, 96),
            "UNKNOWN(96) Read for User:alice from host * on Topic:LITERAL:t",
        ),
        (
            (0, "t", 0, 0, 0),
            "UNKNOWN(0) UNKNOWN(0) for User:alice from host * on UNKNOWN(0):UNKNOWN(0):t",
        ),
    ],
)
def test_what_is_unknown_is_shown_with_its_number(listed, entry, text):
    (binding,) = listed(entry)

    assert str(binding) == text


def test_patterns_that_are_unknown_are_shown_with_their_numbers(listed):
    found = listed((98, "t", LITERAL, READ, ALLOW), (TOPIC, "t", 97, READ, ALLOW))

    assert [pattern_text(it.pattern) for it in found] == ["topic:t UNKNOWN(97)", "UNKNOWN(98):t"]


def test_entries_that_are_unknown_are_sorted_among_the_others(listed):
    found = listed((TOPIC, "t", LITERAL, 99, ALLOW), (TOPIC, "t", LITERAL, READ, ALLOW))

    assert [it.entry.operation for it in found] == [READ, 99]


def test_unknown_entry_is_deleted_by_its_number(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(ApiKey.DESCRIBE_ACLS, described((TOPIC, "t", LITERAL, 99, ALLOW)))
    broker.answer(ApiKey.DELETE_ACLS, DeleteAclsResponse(filter_results=[DeleteAclsFilterResult()]))
    admin = admin_of(broker)

    (result,) = run(admin.acls.delete_acls(run(admin.acls.list_acls())))

    assert result.error is None
    (request,) = broker.requests(ApiKey.DELETE_ACLS)
    assert [it.operation for it in request.body.filters] == [99]


def test_unknown_entry_allows_nothing(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(
        ApiKey.DESCRIBE_ACLS,
        described((TOPIC, "t", 97, READ, ALLOW), (TOPIC, "t", LITERAL, READ, 96)),
    )
    topic = AclPattern(ResourceType.TOPIC, "t")

    (verdict,) = run(
        admin_of(broker).acls.check("User:alice", [AclOperation.READ], topic, "10.0.0.1")
    )

    assert (verdict.is_allowed, verdict.reason) == (False, Reason.DENIED)


def test_apply_plans_the_deletion_of_an_unknown_entry(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(ApiKey.DESCRIBE_ACLS, described((TOPIC, "t", LITERAL, 99, ALLOW)))
    text = 'acls: [{principal: alice, operations: [read], resources: ["topic:t"]}]'

    changes = run(
        plan_apply(admin_of(broker), parse_desired_state(text, "c.yaml"), Prune(acls=True))
    )

    assert "User:alice UNKNOWN(99)" in [it.name for it in changes]
