"""Znodes of access control lists and delegation tokens: their paths, and their JSON both ways.

Literal and prefixed patterns live in two trees. Names are those of AclAuthorizer's JSON
(`Topic`, `Allow`, `DescribeConfigs`) and go unchecked: what they mean is the authorizer's business.

Kafka 2.7: kafka.zk.ZkData (ZkAclStore, ResourceZNode, DelegationTokenInfoZNode); KIP-48, KIP-290.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.store.znodes import desanitize, from_json, sanitize, to_json

ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
RESOURCE_TYPES = ("Group", "Cluster", "Topic", "TransactionalId", "DelegationToken")

DELEGATION_TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "token_change_"

_RESOURCE_CONSTANTS = {
    "Group": "GROUP",
    "Cluster": "CLUSTER",
    "Topic": "TOPIC",
    "TransactionalId": "TRANSACTIONAL_ID",
    "DelegationToken": "DELEGATION_TOKEN",
}
_RESOURCE_TYPES = {constant: name for name, constant in _RESOURCE_CONSTANTS.items()}


class AccessControlEntry(NamedTuple):
    """Whether a principal may do an operation from a host."""

    principal: str
    permission_type: str
    operation: str
    host: str


class ResourcePattern(NamedTuple):
    """What entries are about: all resources of this name, or whose names begin with it."""

    resource_type: str
    name: str
    is_prefixed: bool = False


class TokenInformation(NamedTuple):
    """A delegation token without its secret; principals as `User:name`."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


# Made by AclAuthorizer as it starts, in this order, parents first as needed.
ACL_PATHS = (
    ACLS,
    *(f"{ACLS}/{name}" for name in RESOURCE_TYPES),
    PREFIXED_ACLS,
    *(f"{PREFIXED_ACLS}/{name}" for name in RESOURCE_TYPES),
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)


def acl_path(pattern: ResourcePattern) -> str:
    """`/kafka-acl/TYPE/NAME`, or `/kafka-acl-extended/prefixed/TYPE/NAME`."""
    root = PREFIXED_ACLS if pattern.is_prefixed else ACLS
    return f"{root}/{pattern.resource_type}/{pattern.name}"


def encode_acls(entries: Iterable[AccessControlEntry]) -> bytes:
    """The entries of one pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission_type,
            "operation": entry.operation,
            "host": entry.host,
        }
        for entry in entries
    ]
    return to_json({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[AccessControlEntry]:
    """The entries of one pattern; none for a znode without data."""
    if not data:
        return []
    fields = from_json(data, path)
    try:
        if fields["version"] != 1:
            raise CorruptDataError(f"znode {path} has version {fields['version']}")
        return [
            AccessControlEntry(a["principal"], a["permissionType"], a["operation"], a["host"])
            for a in fields["acls"]
        ]
    except (KeyError, TypeError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None


def acl_change_prefix(pattern: ResourcePattern) -> str:
    """The path, less its counter, under which a change of these entries is announced."""
    root = EXTENDED_ACL_CHANGES if pattern.is_prefixed else ACL_CHANGES
    return f"{root}/{ACL_CHANGE_PREFIX}"


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """`TOPIC:name` for literal patterns, JSON for prefixed ones."""
    constant = _RESOURCE_CONSTANTS[pattern.resource_type]
    if not pattern.is_prefixed:
        return f"{constant}:{pattern.name}".encode()
    return to_json(
        {
            "version": 1,
            "resourceType": constant,
            "name": pattern.name,
            "patternType": "PREFIXED",
        }
    )


def decode_acl_change(data: bytes) -> ResourcePattern:
    """Whose entries changed; Kafka before 2.0 wrote `Topic:name`."""
    try:
        if data[:1] == b"{":
            fields = from_json(data, EXTENDED_ACL_CHANGES)
            is_prefixed = fields["patternType"] == "PREFIXED"
            return ResourcePattern(
                _RESOURCE_TYPES[fields["resourceType"]], fields["name"], is_prefixed
            )
        constant, _, name = data.decode().partition(":")
        return ResourcePattern(_RESOURCE_TYPES.get(constant) or _known_type(constant), name)
    except (KeyError, ValueError) as error:
        raise CorruptDataError(f"an announced change of ACLs is garbled: {error!r}") from None


def _known_type(name: str) -> str:
    if name not in _RESOURCE_CONSTANTS:
        raise KeyError(name)
    return name


def delegation_token_path(token_id: str) -> str:
    """`/delegation_token/tokens/ID`."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def encode_delegation_token(token: TokenInformation) -> bytes:
    """`/delegation_token/tokens/ID`."""
    return to_json(
        {
            "issueTimestamp": token.issue_timestamp_ms,
            "renewers": [sanitize(renewer) for renewer in token.renewers],
            "tokenId": token.token_id,
            "owner": sanitize(token.owner),
            "expiryTimestamp": token.expiry_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "version": 1,
        }
    )


def decode_delegation_token(token_id: str, data: bytes) -> TokenInformation:
    """`/delegation_token/tokens/ID`."""
    path = delegation_token_path(token_id)
    fields = from_json(data, path)
    try:
        return TokenInformation(
            fields["tokenId"],
            desanitize(fields["owner"]),
            tuple(desanitize(renewer) for renewer in fields["renewers"]),
            int(fields["issueTimestamp"]),
            int(fields["expiryTimestamp"]),
            int(fields["maxTimestamp"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"znode {path} lacks or garbles a field: {error!r}") from None
