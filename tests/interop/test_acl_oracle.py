"""T21: kctl's decisions are those of Apache Kafka's AclAuthorizer, and either reads what the other
writes to the store.

Both use the metadata of one `kctl serve --zookeeper-port`. KCTL_ACL_VERDICTS: how many.
"""

import os
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.protocol.acl import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)
from kctl.protocol.acl_decisions import AclIndex, java_host_address
from kctl.runtime.real import make_runtime
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker

pytestmark = pytest.mark.kafka

VERDICTS = int(os.environ.get("KCTL_ACL_VERDICTS", "1000"))
PER_SET = 50
PATIENCE_S = 120
ORACLE = Path(__file__).parents[1] / "support" / "java" / "AclOracle.java"
PRINCIPALS = [
    "User:alice", "User:bob", "User:Alice", "User:a:b", "User:CN=x,O=y", "User:*", "Group:alice",
    "User:root",
]  # fmt: skip
HOSTS = ["127.0.0.1", "10.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::1"]
ENTRY_HOSTS = ["*", "127.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1", "::1", "fe80:0:0:0:0:0:0:1"]
NAMES = ["a", "ab", "abc", "abcd", "b", "*", "ü", "a b", "a-1", "abC"]
TYPES = [it for it in ResourceType if it in SUPPORTED_OPERATIONS and it is not ResourceType.CLUSTER]
OPERATIONS = [it for it in AclOperation if it <= AclOperation.IDEMPOTENT_WRITE]


class Oracle:
    """The Java process."""

    def __init__(self, zookeeper):
        *options, _ = apache_kafka.java_command("2.7.2", "-", level="ERROR")
        self._process = subprocess.Popen(
            [*options, str(ORACLE), zookeeper, "User:root"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, *words):
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the oracle is gone"
        return answer.rstrip("\n")

    def close(self):
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


def words_of(binding):
    pattern, entry = binding
    return (
        pattern.resource_type.name, pattern.name, pattern.pattern_type.name, entry.principal,
        entry.host, entry.operation.name, entry.permission.name,
    )  # fmt: skip


def random_bindings(random):
    return [
        AclBinding(
            AclPattern(
                random.choice(TYPES[:2]),
                random.choice(NAMES),
                random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            ),
            AclEntry(
                random.choice(PRINCIPALS),
                random.choice(ENTRY_HOSTS),
                random.choice(OPERATIONS),
                random.choice([PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY]),
            ),
        )
        for _ in range(random.randrange(1, 12))
    ]


class Kctl:
    """The admin client of the broker."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._runtime = make_runtime()
        self._admin = AdminClient.connect(self._runtime, [(host, int(port))], 120_000)

    def run(self, coroutine):
        return self._runtime.scheduler.run_until(self._runtime.scheduler.spawn(coroutine))

    def list(self):
        return self.run(self._admin.acls.list_acls())

    def create(self, bindings):
        assert not any(it.error for it in self.run(self._admin.acls.create_acls(bindings)))

    def clear(self):
        self.run(self._admin.acls.delete_acls(self.list()))

    def close(self):
        self._admin.close()
        self._runtime.scheduler.close()


def until_equal(kctl, oracle):
    """Wait until both sides list the same entries, and return them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = kctl.list()
        expected = "\t".join(sorted(" ".join(words_of(it)) for it in found))
        if all(oracle.ask("list", kind) == expected for kind in ("strict", "open")):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def index_of(bindings):
    index, by_pattern = AclIndex(), {}
    for pattern, entry in bindings:
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        index.replace(pattern, entries)
    return index


@pytest.fixture
def both(tmp_path):
    port = apache_kafka.free_port()
    options = [
        "-c", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "-c", "super.users=User:ANONYMOUS;User:root",
    ]  # fmt: skip
    with KctlBroker(tmp_path, "--zookeeper-port", str(port), *options) as broker:
        oracle, kctl = Oracle(f"127.0.0.1:{port}"), Kctl(broker.address)
        try:
            yield kctl, oracle
        finally:
            kctl.close()
            oracle.close()


def test_verdicts_are_those_of_apache_kafka(both):
    kctl, oracle = both
    random = Random(21)
    different = []
    for number in range(max(1, VERDICTS // PER_SET)):
        bindings = random_bindings(random)
        if number % 2:
            kctl.create(bindings)
        else:
            for binding in bindings:
                assert oracle.ask("create", *words_of(binding)) == "created"
        found = until_equal(kctl, oracle)
        assert set(found) == set(bindings)
        index = index_of(found)
        for _ in range(PER_SET):
            access = (random.choice(PRINCIPALS), random.choice(HOSTS), random.choice(OPERATIONS))
            resource = (random.choice(TYPES[:3]), random.choice(NAMES))
            mode = random.choice(["strict", "open"])
            principal, host, operation = access
            ours = (
                principal == "User:root"
                or index.decide(
                    principal,
                    java_host_address(host),
                    operation,
                    *resource,
                    allow_if_no_acl=mode == "open",
                ).is_allowed
            )
            words = (principal, host, operation.name, resource[0].name, resource[1])
            if oracle.ask(mode, *words) != ("allowed" if ours else "denied"):
                different.append((mode, words, found))
        if number % 3:
            kctl.clear()
        else:
            oracle.ask("clear")
        assert until_equal(kctl, oracle) == []
    assert different == []
