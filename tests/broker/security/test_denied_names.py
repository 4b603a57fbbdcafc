"""What a broker remembers of names that clients may not access is bounded in size."""

from types import SimpleNamespace

import pytest

from kctl.broker.security import audit_log as audit_log_module
from kctl.broker.security import authorizer as authorizer_module
from kctl.broker.security.audit_log import LINES_MAX
from kctl.broker.security.authorizer import AclAuthorizer
from kctl.configs.authorizer_settings import AuthorizerSettings
from kctl.protocol.acl import (
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)

HOST = "10.0.0.1"
DESCRIBE, GROUP = AclOperation.DESCRIBE, ResourceType.GROUP
LONG = "\N{GRINNING FACE}" * 8_000


@pytest.fixture
def lines():
    return []


@pytest.fixture
def authorizer(lines):
    settings = AuthorizerSettings(super_users=frozenset(), allow_everyone_if_no_acl_found=False)
    return AclAuthorizer(settings, SimpleNamespace(info=lines.append), lambda: 0)


def is_allowed(authorizer, name):
    return authorizer.is_allowed("User:eve", HOST, DESCRIBE, GROUP, name)


def test_verdicts_on_very_long_names_are_right_and_not_remembered(authorizer):
    pattern = AclPattern(GROUP, LONG, PatternType.PREFIXED)
    entry = AclEntry("User:eve", "*", DESCRIBE, PermissionType.ALLOW)
    names = [LONG, LONG + "a", "another" + LONG]
    assert [is_allowed(authorizer, name) for name in names * 2] == [False] * 6
    authorizer.replace(pattern, [entry])
    assert [is_allowed(authorizer, name) for name in names * 2] == [True, True, False] * 2
    assert not authorizer._verdicts
    is_allowed(authorizer, "x" * authorizer_module.NAME_MAX)
    assert len(authorizer._verdicts) == 1


def test_the_audit_log_remembers_as_much_of_a_name_as_it_shows(authorizer, lines):
    for number in range(2 * LINES_MAX):
        authorizer.audit_log.deny(
            "User:eve", HOST, DESCRIBE, GROUP, f"{LONG}{number}", "FIND_COORDINATOR", 1
        )
    assert len(lines) == LINES_MAX, "names that look alike are limited together"
    ((_, _, _, name),) = authorizer.audit_log._subjects
    assert len(name) <= audit_log_module.NAME_MAX + len("...")
