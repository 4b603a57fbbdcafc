"""One real broker with AclAuthorizer: requests of any principal go to its handlers, and answers
come back encoded and decoded."""

from kctl.broker.request import Request, RequestContext
from kctl.protocol.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.protocol.codec import decode, encode
from kctl.protocol.schema import Struct

HOST = "10.0.0.1"
CLOSED = "closed"
AUTHORIZATION_ERRORS = {29, 30, 31, 53, 65}
ACL_SETTINGS = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS;User:super",
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


def message(cls, **values):
    """A message whose arrays are given as lists of dicts."""
    fields = {field.name: field for field in cls.fields}
    for name, value in values.items():
        element = fields[name].element
        if isinstance(value, list) and not isinstance(element, str) and element is not None:
            values[name] = [message(element, **it) if isinstance(it, dict) else it for it in value]
    return cls(**values)


def codes_in(struct):
    """The error codes anywhere in a message, without 0."""
    found = set()
    for field in struct.fields:
        value = getattr(struct, field.name)
        if field.name == "error_code":
            found.add(int(value))
        elif isinstance(value, list):
            for item in value:
                found |= codes_in(item) if isinstance(item, Struct) else set()
    return found - {0}


class AclWorld:
    """A cluster with one broker, number 1, whose ACLs the tests set directly."""

    def __init__(self, cluster, **settings):
        self.cluster = cluster
        cluster.start(1, **{**ACL_SETTINGS, **settings})
        self.broker = cluster.brokers[1]
        self.authorizer = self.broker.services.acl_cache.authorizer

    def set_acls(self, *bindings):
        """Put these entries, and no others, in force: (operation, type, name, principal, Deny?)."""
        by_pattern = {pattern: [] for pattern in self.authorizer.index.patterns()}
        for operation, kind, name, principal, permission in bindings:
            entry = AclEntry(f"User:{principal}", "*", operation, permission)
            by_pattern.setdefault(AclPattern(kind, name), []).append(entry)
        for pattern, entries in by_pattern.items():
            self.authorizer.replace(pattern, entries)

    def ask(self, principal, body, version=None, *, host=HOST):
        """The answer to a client's request, or CLOSED."""
        answers = []
        api = type(body).api
        version = api.max_version if version is None else version
        body = decode(type(body), version, bytearray(b"".join(map(bytes, encode(body, version)))))

        def send(response):
            if response is not None:
                data = b"".join(map(_bytes_of, encode(response, version)))
                response = decode(api.response_class, version, data)
            answers.append(response)

        context = RequestContext("c", host, "PLAINTEXT", principal=f"User:{principal}")
        request = Request(
            api, version, 1, "app", body, context,
            self.cluster.runtime.clock.monotonic_ms(), send, lambda: answers.append(CLOSED),
        )  # fmt: skip
        self.broker._handle(request)
        self.cluster.until(lambda: answers, f"the answer to {api.name}")
        (answer,) = answers
        return answer


def _bytes_of(part):
    return part.file.pread(len(part), part.position) if hasattr(part, "file") else bytes(part)


def allow(operation, kind, name, principal):
    return operation, kind, name, principal, PermissionType.ALLOW


def deny(operation, kind, name, principal):
    return operation, kind, name, principal, PermissionType.DENY


def everything(principal):
    """Entries that allow everything."""
    return [
        allow(
            AclOperation.ALL, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", principal
        )
        for kind in ResourceType
    ]
