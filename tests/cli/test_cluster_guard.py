"""The cluster guard: every writing command passes through it."""

import os
import pty
import shlex

import pytest

from tests.cli import bad_input, test_bad_input

# Commands that write and are not declared as such, as their options decide.
BY_OPTION = {
    "reassign kafka": "reassign kafka --execute --reassignment-json-file {plan}",
    "consume": "consume t -g g --exit",
    "api": "api DeleteTopics -y",
}
# Commands that work on files with their lines in VALID.
LOCAL = bad_input._LOCAL


def connects(spec):
    """Return whether the command has the options of all commands that connect."""
    return {"profile", "expect_cluster"} <= {it.name for it in spec.options}


def writing():
    """Return a command line of every command that can change a cluster."""
    declared = {
        " ".join(spec.path)
        for spec in bad_input.specs()
        if any(it.name == "dry_run" for it in spec.options) and connects(spec)
    }
    lines = {path: f"{path} {bad_input.VALID[path]}" for path in declared - LOCAL}
    return {**lines, **BY_OPTION}


def reading():
    remote = {" ".join(spec.path) for spec in bad_input.specs() if connects(spec)}
    return sorted(remote - set(writing()) - LOCAL - {"export"})


paths = test_bad_input.paths


@pytest.fixture
def read_only(kctl):
    """A read-only profile of a cluster that does not exist."""
    added = kctl("profile", "add", "audit", "-b", "127.0.0.1:1", "--read-only", "--timeout", "2s")
    assert added.status == 0, added.err


def test_writing_commands_are_recognized_by_their_declaration():
    """A command with --dry-run writes; the tests below run each of them, also later ones."""
    assert set(writing()) >= {
        "api", "apply", "broker decommission", "config alter", "consume",
        "elect preferred", "elect unclean", "group clone-offsets", "group delete",
        "group delete-offsets", "group import-offsets", "group reset-offsets", "produce",
        "reassign cancel", "reassign execute", "reassign kafka", "records delete",
        "throttle set", "throttle sweep", "topic alter", "topic create", "topic delete",
        "topic purge", "txn abort", "user create", "user delete",
    }  # fmt: skip


@pytest.mark.parametrize("command", sorted(writing()))
def test_a_read_only_profile_refuses_every_writing_command(kctl, read_only, paths, command):
    words = [test_bad_input._filled(word, paths) for word in shlex.split(writing()[command])]

    ran = kctl(*words, "-C", "audit")

    assert ran.status == 2, ran.err
    assert "error: The profile audit is read-only" in ran.err


@pytest.mark.parametrize("command", reading())
def test_a_read_only_profile_lets_other_commands_connect(kctl, read_only, paths, command):
    words = [
        test_bad_input._filled(word, paths)
        for word in shlex.split(f"{command} {bad_input.VALID[command]}")
    ]

    ran = kctl(*words, "-C", "audit")

    assert ran.status == 3, ran.err
    assert "read-only" not in ran.err


def test_a_client_of_a_read_only_profile_sends_no_request_that_writes(kctl, address, topic):
    kctl("profile", "add", "audit", "-b", address, "--read-only")

    listed = kctl("topic", "list", "-C", "audit", "-o", "name")
    described = kctl("topic", "describe", topic, "--offsets", "-C", "audit")
    refused = kctl("produce", topic, "v", "-C", "audit")
    dry = kctl("topic", "delete", topic, "-n", "-C", "audit")
    validated = kctl("topic", "create", f"{topic}-2", "-p", 1, "-r", 1, "-n", "-C", "audit")

    assert topic in listed.lines
    assert described.status == 0
    assert refused.status == 2
    assert dry.status == 0, dry.err
    assert validated.status == 0, validated.err


def test_another_cluster_than_the_expected_one_is_left_alone(kctl, on, address, topic):
    cluster_id = on("cluster", "describe", "-o", "json").documents["cluster_id"]

    wrong = on("topic", "delete", topic, "-y", "--expect-cluster", "other")
    before = kctl("--expect-cluster", "other", "topic", "delete", topic, "-y", "-b", address)
    planned = on("topic", "delete", topic, "-n", "--expect-cluster", "other")

    for ran in (wrong, before, planned):
        assert ran.status == 1
        assert f"This is the cluster {cluster_id}, not other: nothing was done" in ran.err
    assert on("topic", "describe", topic, "--expect-cluster", cluster_id).status == 0
    assert on("topic", "delete", topic, "-y", "--expect-cluster", cluster_id).status == 0


def test_a_profile_names_the_cluster_it_expects(kctl, address, topic):
    kctl("profile", "add", "p", "-b", address, "--expect-cluster", "other")

    ran = kctl("topic", "delete", topic, "-y", "-C", "p")

    assert ran.status == 1
    assert "not other" in ran.err


def test_by_name_a_yes_is_not_enough_without_the_id_of_the_cluster(kctl, on, address, topic):
    cluster_id = on("cluster", "describe", "-o", "json").documents["cluster_id"]
    kctl("profile", "add", "prod", "-b", address, "--confirm", "by-name")

    refused = kctl("topic", "delete", topic, "-y", "-C", "prod")
    never_asks = kctl(
        "reassign", "kafka", "--execute", "--reassignment-json-file", __file__, "-C", "prod"
    )

    assert refused.status == 2
    assert "the profile prod asks for its name" in refused.err
    assert never_asks.status == 2
    assert on("topic", "describe", topic).status == 0

    done = kctl("topic", "delete", topic, "-y", "-C", "prod", "--expect-cluster", cluster_id)

    assert done.status == 0, done.err


@pytest.mark.parametrize(("answer", "status"), [("prod\n", "deleted"), ("y\n", "")])
def test_by_name_the_user_types_the_name_of_the_profile(
    kctl, address, topic, monkeypatch, answer, status
):
    kctl("profile", "add", "prod", "-b", address, "--confirm", "by-name")
    master, slave = pty.openpty()
    os.write(master, answer.encode())
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

        ran = kctl("topic", "delete", topic, "-C", "prod")
    os.close(master)

    assert "type prod to do it" in ran.err
    assert status in ran.out
    assert ("Nothing was done." in ran.err) == (status == "")
