"""Every mistake has its exit status, and a message of one line that names the thing."""

import json
import shlex

import pytest

from tests.cli import bad_input

GENERATED = bad_input.generated()
COMMANDS = list(bad_input.VALID)


@pytest.fixture
def paths(tmp_path):
    """The paths of the table: an empty directory, a text, a plan, a CSV, a file for apply."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("no JSON, no CSV\n")
    (tmp_path / "csv").write_text("t,0,1\n")
    partition = {"topic": "no-such-topic", "partition": 0, "replicas": [1]}
    (tmp_path / "plan").write_text(json.dumps({"version": 1, "partitions": [partition]}))
    (tmp_path / "yaml").write_text("topics: {t-new: {replication_factor: 9}}\n")
    names = ("dir", "file", "csv", "plan", "yaml", "missing")
    return {name: str(tmp_path / name) for name in names}


def _words(mistake, names):
    return [_filled(word, names) for word in shlex.split(mistake.line)]


def _filled(text, names):
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _check(ran, mistake, names):
    said = ran.err + ran.out if mistake.status == 1 else ran.err
    expected = _filled(mistake.names, names)

    assert ran.status == mistake.status, ran.err
    assert expected in said
    assert "Internal error" not in said
    assert "Traceback" not in said
    if mistake.status == 1 and not ran.err:
        return  # a table with a row for each item
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    hints = [line for line in ran.err.splitlines() if line.startswith("hint: ")]
    assert len(errors) == 1
    assert len(hints) <= 1
    if mistake.status != 1:
        assert ran.out == ""
        assert hints, "no way out"


def _wrong(run, mistakes, names):
    """Return the command lines whose results are not those of the table."""
    wrong = []
    for mistake in mistakes:
        try:
            _check(run(*_words(mistake, names)), mistake, names)
        except AssertionError as error:
            wrong.append(f"{mistake.line}: {error}")
    return wrong


def test_the_table_covers_every_command_and_is_large():
    assert set(bad_input.VALID) == {" ".join(it.path) for it in bad_input.specs()}
    assert len(GENERATED + bad_input.WITHOUT_A_CLUSTER + bad_input.ON_A_CLUSTER) >= 300


@pytest.mark.parametrize("command", COMMANDS)
def test_mistakes_that_any_command_invites(kctl, paths, command):
    mistakes = [it for it in GENERATED if it.command == command]

    assert _wrong(kctl, mistakes, paths) == []


@pytest.mark.parametrize("command", sorted({it.command for it in bad_input.WITHOUT_A_CLUSTER}))
def test_mistakes_that_need_no_cluster(kctl, paths, command):
    mistakes = [it for it in bad_input.WITHOUT_A_CLUSTER if it.command == command]

    assert _wrong(kctl, mistakes, paths) == []


def test_mistakes_about_a_cluster_have_the_same_status_everywhere(on, topic, name, paths):
    group = f"{name}-group"
    on("produce", topic, "v")
    on("consume", topic, "-g", group, "--exit")
    names = {**paths, "topic": topic, "group": group}

    assert _wrong(on, bad_input.ON_A_CLUSTER, names) == []
