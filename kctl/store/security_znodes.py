"""Znodes of access control lists and delegation tokens: their paths and JSON.

Literal and prefixed patterns are in two trees. Names are those of AclAuthorizer's JSON (`Topic`,
`Allow`, `DescribeConfigs`), in any case; an entry that has another name is corrupt.

Kafka 2.7: kafka.zk.ZkData (ZkAclStore, ResourceZNode, DelegationTokenInfoZNode); KIP-48, KIP-290.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.acl import (
    OPERATIONS_BY_TEXT,
    PERMISSIONS_BY_TEXT,
    RESOURCE_TYPES_BY_TEXT,
    AclEntry,
    AclPattern,
    PatternType,
    ResourceType,
    is_principal,
)
from kctl.store.znodes import desanitize, from_json, sanitize, to_json
from kctl.work import Work, parts

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
# In the order in which AclAuthorizer creates them.
RESOURCE_TYPES = ("Group", "Cluster", "Topic", "TransactionalId", "DelegationToken")

DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "token_change_"
# Renewers of a token that are encoded or decoded between two turns for others, about 3 ms.
RENEWERS_PER_TURN = 500

# Names are found in any case, as old tools wrote them.
_OPERATIONS = {text.upper(): it for text, it in OPERATIONS_BY_TEXT.items()}
_PERMISSIONS = {text.upper(): it for text, it in PERMISSIONS_BY_TEXT.items()}


class TokenInformation(NamedTuple):
    """A delegation token without its secret; principals as `User:name`."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


# Created by AclAuthorizer as it starts, in this order, parents first as needed.
ACL_PATHS = (
    ACLS,
    *(f"{ACLS}/{name}" for name in RESOURCE_TYPES),
    PREFIXED_ACLS,
    *(f"{PREFIXED_ACLS}/{name}" for name in RESOURCE_TYPES),
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)


def acl_path(pattern: AclPattern) -> str:
    """Return `/kafka-acl/TYPE/NAME`, or `/kafka-acl-extended/prefixed/TYPE/NAME`."""
    return f"{acl_root(pattern.pattern_type)}/{pattern.resource_type.text}/{pattern.name}"


def acl_root(pattern_type: PatternType) -> str:
    """Return the path below which the patterns of one kind are, by resource type."""
    return PREFIXED_ACLS if pattern_type is PatternType.PREFIXED else ACLS


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Encode the entries of one pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.text,
            "operation": entry.operation.text,
            "host": entry.host,
        }
        for entry in entries
    ]
    return to_json({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[AclEntry]:
    """Return the entries of one pattern; none for a znode without data."""
    if not data:
        return []
    fields = from_json(data, path)
    try:
        if fields["version"] != 1:
            raise CorruptDataError(f"znode {path} has version {fields['version']}")
        return [_entry(acl) for acl in fields["acls"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None


def _entry(acl: Mapping[str, str]) -> AclEntry:
    principal, host = acl["principal"], acl["host"]
    if not is_principal(principal) or not isinstance(host, str):
        raise ValueError(f"principal {principal!r}, host {host!r}")
    operation = _OPERATIONS[acl["operation"].upper()]
    permission = _PERMISSIONS[acl["permissionType"].upper()]
    return AclEntry(principal, host, operation, permission)


def acl_change_prefix(pattern: AclPattern) -> str:
    """Return the path, without its counter, under which a change of these entries is announced."""
    is_prefixed = pattern.pattern_type is PatternType.PREFIXED
    root = EXTENDED_ACL_CHANGES if is_prefixed else ACL_CHANGES
    return f"{root}/{ACL_CHANGE_PREFIX}"


def encode_acl_change(pattern: AclPattern) -> bytes:
    """Encode an announcement: `TOPIC:name` for literal patterns, JSON for prefixed ones."""
    constant = pattern.resource_type.name
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{constant}:{pattern.name}".encode()
    return to_json(
        {
            "version": 1,
            "resourceType": constant,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_acl_change(data: bytes) -> AclPattern:
    """Return the pattern whose entries changed; Kafka before 2.0 wrote `Topic:name`."""
    try:
        if data[:1] == b"{":
            fields = from_json(data, EXTENDED_ACL_CHANGES)
            resource_type = ResourceType[fields["resourceType"]]
            return AclPattern(resource_type, fields["name"], PatternType[fields["patternType"]])
        constant, _, name = data.decode().partition(":")
        known = RESOURCE_TYPES_BY_TEXT.get(constant) or ResourceType[constant]
        return AclPattern(known, name)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"an announced change of ACLs is garbled: {error!r}") from None


def delegation_token_path(token_id: str) -> str:
    """Return `/delegation_token/tokens/ID`."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def encoding_delegation_token(token: TokenInformation) -> Work[bytes]:
    """Encode `/delegation_token/tokens/ID`, in turns."""
    renewers: list[str] = []
    for part in parts(token.renewers, RENEWERS_PER_TURN):
        renewers += map(sanitize, part)
        if len(part) == RENEWERS_PER_TURN:
            yield
    return to_json(
        {
            "issueTimestamp": token.issue_timestamp_ms,
            "renewers": renewers,
            "tokenId": token.token_id,
            "owner": sanitize(token.owner),
            "expiryTimestamp": token.expiry_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "version": 1,
        }
    )


def decoding_delegation_token(token_id: str, data: bytes) -> Work[TokenInformation]:
    """Decode `/delegation_token/tokens/ID`, in turns; raise CorruptDataError."""
    path = delegation_token_path(token_id)
    fields = from_json(data, path)
    renewers: list[str] = []
    try:
        for part in parts(fields["renewers"], RENEWERS_PER_TURN):
            renewers += map(desanitize, part)
            if len(part) == RENEWERS_PER_TURN:
                yield
        return TokenInformation(
            fields["tokenId"],
            desanitize(fields["owner"]),
            tuple(renewers),
            int(fields["issueTimestamp"]),
            int(fields["expiryTimestamp"]),
            int(fields["maxTimestamp"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None
