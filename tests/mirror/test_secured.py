"""A mirror between clusters with TLS, SASL and ACLs: it needs what docs/mirroring.md lists, and
names at once what it lacks."""

import json

import pytest

from kctl.cli import app
from kctl.testing.kafka_broker import KafkaBroker

SOURCE = {
    "topic:orders": {"Read", "Describe", "DescribeConfigs"},
    "group:readers": {"Describe"},
}
_OF_TOPICS = {"Create", "Alter", "Read", "Write", "Describe", "AlterConfigs", "DescribeConfigs"}
TARGET = {
    "topic:orders": _OF_TOPICS,
    "topic:kctl-mirror.m.map": _OF_TOPICS,
    "group:kctl-mirror.m": {"Read"},
    "transactional-id:kctl-mirror.m.1": {"Write", "Describe"},
    "group:readers": {"Read"},
}


def broker(permissions, principal, *, without=(), **more):
    """Return a broker at which `principal` has `permissions`, except for `without`."""
    rules = ", ".join(
        f"{','.join(sorted(left))} {where}"
        for where, operations in permissions.items()
        if (left := {it for it in operations if (where, it) != without})
    )
    return KafkaBroker(acls=[f"User:{principal}: {rules}"], **more)


@pytest.fixture
def mirror(capfdbinary, monkeypatch, tmp_path):
    """Run a mirror once; return its exit status, its report and its errors."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def run(source, target, *words):
        capfdbinary.readouterr()
        status = app.run(
            ["mirror", "run", "--source", source.bootstrap_servers,
             "--target", target.bootstrap_servers, "--topics", "orders", "--groups", "readers",
             "--name", "m", "--once", "-o", "json", *words]
        )  # fmt: skip
        captured = capfdbinary.readouterr()
        return status, json.loads(captured.out or b"[]"), captured.err.decode()

    return run


def test_the_permissions_of_the_documentation_are_enough_over_tls_and_scram(mirror, tmp_path):
    secured = {"users": {"mirror": "secret"}, "security": "SASL_SSL"}
    with (
        broker(SOURCE, "mirror", topics=["orders:2"], **secured) as source,
        broker(TARGET, "mirror", **secured) as target,
    ):
        for value in "123":
            source.produce("orders", value, partition=0)
        words = []
        for side, it in (("source", source), ("target", target)):
            settings = it.java_properties("mirror", mechanism="SCRAM-SHA-512")
            file = tmp_path / side
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            words += [f"--{side}-config", str(file)]

        status, report, errors = mirror(source, target, *words)

        assert (status, errors) == (0, "")
        assert sum(it["records"] for it in report) == 3
        assert [it.value for it in target.records("orders")] == [b"1", b"2", b"3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "where", "operation"),
    [
        ("source", "topic:orders", "Read"),
        ("source", "topic:orders", "DescribeConfigs"),
        ("target", "topic:orders", "Create"),
        ("target", "topic:orders", "Read"),
        ("target", "topic:orders", "Write"),
        ("target", "topic:kctl-mirror.m.map", "Create"),
        ("target", "topic:kctl-mirror.m.map", "Write"),
        ("target", "group:kctl-mirror.m", "Read"),
        ("target", "transactional-id:kctl-mirror.m.1", "Write"),
    ],
)
def test_a_missing_permission_ends_the_mirror_and_is_named(mirror, side, where, operation):
    lacking = {"without": (where, operation)}
    with (
        broker(
            SOURCE, "ANONYMOUS", topics=["orders"], **(lacking if side == "source" else {})
        ) as source,
        broker(TARGET, "ANONYMOUS", **(lacking if side == "target" else {})) as target,
    ):
        source.produce("orders", "1")

        status, report, errors = mirror(source, target)

        assert (status, sum(it["records"] for it in report)) == (1, 0)
        assert "authoriz" in errors.lower()
        assert where.partition(":")[2] in errors
        # What describes a group lacks Describe, which Read includes.
        assert operation in errors or where.startswith("group")
        # It does not try again: one refusal for each kind of request.
        denied = [it for it in (*source.log_lines, *target.log_lines) if "is Denied" in it]
        assert len(denied) < 20
        assert target.end_offsets("orders").get(0, 0) <= 1
