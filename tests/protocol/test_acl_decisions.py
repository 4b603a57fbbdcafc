"""Which entry decides."""

import pytest

from kctl.protocol.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)
from kctl.protocol.acl_decisions import AclIndex, Reason, canonical_host, java_host_address

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL,
)  # fmt: skip
HOST = "10.0.0.1"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def entry(operation, principal="User:alice", host="*", *, denies=False):
    permission = PermissionType.DENY if denies else PermissionType.ALLOW
    return AclEntry(principal, host, operation, permission)


def index_of(*bindings):
    index = AclIndex()
    by_pattern = {}
    for name, kind, one in bindings:
        by_pattern.setdefault(AclPattern(TOPIC, name, kind), []).append(one)
    for pattern, entries in by_pattern.items():
        index.replace(pattern, entries)
    return index


def verdict(index, operation=READ, name="orders", principal="User:alice", host=HOST, default=False):
    return index.decide(principal, host, operation, TOPIC, name, allow_if_no_acl=default)


@pytest.mark.parametrize(
    ("name", "kind"), [("orders", LITERAL), ("*", LITERAL), ("ord", PREFIXED), ("orders", PREFIXED)]
)
def test_patterns_that_apply(name, kind):
    found = verdict(index_of((name, kind, entry(READ))))
    assert found.is_allowed
    assert found.binding == AclBinding(AclPattern(TOPIC, name, kind), entry(READ))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("order", LITERAL),
        ("ord*", LITERAL),
        ("orders2", PREFIXED),
        ("*", PREFIXED),
        ("rd", PREFIXED),
    ],
)
def test_patterns_that_do_not_apply(name, kind):
    found = verdict(index_of((name, kind, entry(READ))))
    assert (found.is_allowed, found.reason) == (False, Reason.NO_ACLS)


@pytest.mark.parametrize("kinds", [(LITERAL, 97), (97, LITERAL)])
def test_a_pattern_of_a_later_type_does_not_apply_nor_replace_one_that_does(kinds):
    given = {LITERAL: entry(READ, denies=True), 97: entry(READ)}
    index = index_of(*(("orders", kind, given[kind]) for kind in kinds))
    assert verdict(index).reason is Reason.DENIED
    index.replace(AclPattern(TOPIC, "orders", 97), ())
    assert verdict(index).reason is Reason.DENIED
    assert not verdict(index_of(("orders", 97, entry(READ)))).is_allowed


def test_a_denial_wins_wherever_it_is():
    for name, kind in (("orders", LITERAL), ("*", LITERAL), ("o", PREFIXED)):
        index = index_of(
            ("orders", LITERAL, entry(ALL)),
            ("*", LITERAL, entry(ALL)),
            ("orders", PREFIXED, entry(ALL)),
            (name, kind, entry(READ, "User:*", denies=True)),
        )
        assert verdict(index).reason is Reason.DENIED
        assert verdict(index, WRITE).is_allowed


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "ALL", "DESCRIBE"])
def test_what_allows_describe(operation):
    index = index_of(("orders", LITERAL, entry(AclOperation[operation])))
    assert verdict(index, DESCRIBE).is_allowed
    denied = index_of(
        ("orders", LITERAL, entry(ALL)),
        ("orders", LITERAL, entry(AclOperation[operation], denies=True)),
    )
    # Entries that deny imply nothing.
    assert verdict(denied, DESCRIBE).is_allowed is (operation not in ("ALL", "DESCRIBE"))


def test_without_entries_the_default_decides_and_with_an_entry_for_another_it_does_not():
    assert verdict(AclIndex(), default=True).is_allowed
    index = index_of(("orders", LITERAL, entry(READ, "User:bob")))
    assert verdict(index, default=True).reason is Reason.NOT_ALLOWED


@pytest.mark.parametrize(
    ("principal", "host", "applies"),
    [
        ("User:alice", "*", True),
        ("User:*", HOST, True),
        ("User:Alice", "*", False),
        ("Group:alice", "*", False),
        ("Group:*", "*", False),
        ("User:alice", "10.0.0.2", False),
        ("User:alice", "10.0.0.0/8", False),
    ],
)
def test_principals_and_hosts_are_compared_as_text(principal, host, applies):
    assert (
        verdict(index_of(("orders", LITERAL, entry(READ, principal, host)))).is_allowed is applies
    )


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("2001:db8::00ff:0", "2001:db8:0:0:0:0:ff:0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("a name", "a name"),
    ],
)
def test_hosts_are_written_as_java_writes_them(host, text):
    assert java_host_address(host) == text


def test_a_host_of_a_new_entry_is_an_address_or_any():
    assert canonical_host("*") == "*"
    assert canonical_host("::1") == "0:0:0:0:0:0:0:1"
    assert canonical_host("localhost") is None


OTHERS = [("orders", LITERAL, entry(READ, f"User:{number}")) for number in range(20)]


@pytest.mark.parametrize("others", [[], OTHERS])
@pytest.mark.parametrize("principal", ["User:alice", "User:*"])
@pytest.mark.parametrize("host", [HOST, "*"])
def test_a_crowded_pattern_decides_as_one_with_few_entries_does(others, principal, host):
    denied = ("orders", LITERAL, entry(WRITE, principal, host, denies=True))
    first, second = (("orders", LITERAL, entry(it, principal, host)) for it in (ALL, READ))
    index = index_of(*others[:10], first, second, denied, *others[10:])
    # The first entry that allows it is the one that is named.
    assert verdict(index).binding.entry == first[2]
    assert verdict(index, WRITE).binding.entry == denied[2]
    assert verdict(index, host="10.0.0.2").is_allowed is (host == "*")
    assert verdict(index, principal="User:bob").is_allowed is (principal == "User:*")
    assert verdict(index, principal="User:*", host="*").is_allowed is (
        (principal, host) == ("User:*", "*")
    )


class Compared(str):
    """A principal that counts with how many texts it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    count = 0

    def __eq__(self, other):
        Compared.count += 1
        return str.__eq__(self, other)


def test_a_decision_does_not_look_at_all_entries_of_its_pattern():
    entries = [entry(READ, Compared(f"User:{number}")) for number in range(10_000)]
    index = AclIndex()
    index.replace(AclPattern(TOPIC, "*"), entries)
    Compared.count = 0
    assert not verdict(index).is_allowed
    assert verdict(index, principal="User:9999").is_allowed
    assert Compared.count < 20


def test_entries_that_are_removed_no_longer_decide():
    index = AclIndex()
    long, short = (AclPattern(TOPIC, name, PREFIXED) for name in ("orde", "o"))
    index.replace(long, [entry(READ, denies=True)])
    index.replace(short, [entry(READ)])
    assert not verdict(index).is_allowed
    assert index.replace(long, [])
    assert not index.replace(long, [])
    assert verdict(index).is_allowed
    index.replace(short, [])
    assert verdict(index).reason is Reason.NO_ACLS


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (AclFilter(), {"orders", "*", "ord"}),
        (AclFilter(name="orders"), {"orders"}),
        (AclFilter(name="orders", pattern_type=PatternType.MATCH), {"orders", "*", "ord"}),
        (AclFilter(name="other", pattern_type=PatternType.MATCH), {"*"}),
        (AclFilter(pattern_type=PREFIXED), {"ord"}),
        (AclFilter(resource_type=GROUP), set()),
        (AclFilter(name="ord", pattern_type=LITERAL), set()),
    ],
)
def test_filters(wanted, names):
    patterns = [
        AclPattern(TOPIC, "orders"), AclPattern(TOPIC, "*"), AclPattern(TOPIC, "ord", PREFIXED),
    ]  # fmt: skip
    assert {it.name for it in patterns if wanted.matches(AclBinding(it, entry(READ)))} == names
