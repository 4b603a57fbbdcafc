"""The text form of ACLs."""

import pytest

from kctl.errors import UsageError
from kctl.protocol.acl_text import parse_acls, parse_pattern, pattern_text


@pytest.mark.parametrize(
    ("text", "bindings"),
    [
        (
            "alice: Read topic:orders",
            ["Allow Read for User:alice from host * on Topic:LITERAL:orders"],
        ),
        (
            "User:CN=a,O=b: read,Describe group:g-*, deny write topic:* from 10.0.0.1",
            [
                "Allow Read for User:CN=a,O=b from host * on Group:PREFIXED:g-",
                "Allow Describe for User:CN=a,O=b from host * on Group:PREFIXED:g-",
                "Deny Write for User:CN=a,O=b from host 10.0.0.1 on Topic:LITERAL:*",
            ],
        ),
        ("*: all cluster", ["Allow All for User:* from host * on Cluster:LITERAL:kafka-cluster"]),
    ],
)
def test_rules(text, bindings):
    assert [str(it) for it in parse_acls(text)] == bindings


@pytest.mark.parametrize("text", ["", "alice", "alice: read", "alice: topic:t", ": read topic:t"])
def test_what_is_not_a_rule(text):
    with pytest.raises(UsageError):
        parse_acls(text)


@pytest.mark.parametrize(
    "text", ["topic:t", "topic:t*", "group:*", "transactional-id:x", "cluster"]
)
def test_patterns_are_written_as_they_are_read(text):
    assert pattern_text(parse_pattern(text)) == text
