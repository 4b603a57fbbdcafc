"""kctl mirror run and plan, as they are typed."""

import json
from dataclasses import replace

import pytest

from kctl.cli import app


@pytest.fixture
def kctl(capfdbinary, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def run(*words):
        capfdbinary.readouterr()
        status = app.run(list(words))
        captured = capfdbinary.readouterr()
        return status, captured.out.decode(), captured.err.decode()

    return run


def test_a_topic_is_planned_and_copied(kctl, clusters):
    clusters.source.create_topic("typed")
    clusters.produce("typed", [b"1", b"2"])
    ends = (
        "--source", clusters.source.bootstrap_servers,
        "--target", clusters.target.bootstrap_servers, "--topics", "typed", "-o", "json",
    )  # fmt: skip

    status, out, _ = kctl("mirror", "plan", *ends)
    assert (status, json.loads(out)[0]["step"]) == (0, "create")

    status, out, _ = kctl("mirror", "run", *ends, "--name", "typed", "--once")
    assert (status, json.loads(out)[0]["records"], json.loads(out)[0]["lag"]) == (0, 2, 0)


def test_a_mirror_does_not_continue_into_another_topic(kctl, clusters):
    clusters.source.create_topic("renamed")
    clusters.produce("renamed", [b"1", b"2"])
    ends = (
        "--source", clusters.source.bootstrap_servers,
        "--target", clusters.target.bootstrap_servers, "--topics", "renamed", "--once",
    )  # fmt: skip
    assert kctl("mirror", "run", *ends, "--name", "renamed", "--rename", "a.{topic}")[0] == 0

    status, _, err = kctl("mirror", "run", *ends, "--name", "renamed", "--rename", "b.{topic}")
    assert status == 2
    assert "Mirror renamed copies renamed-0 to a.renamed, not to b.renamed" in err

    assert kctl("mirror", "run", *ends, "--name", "other", "--rename", "b.{topic}")[0] == 0
    assert [it.value for it in clusters.target.records("b.renamed")] == [b"1", b"2"]


def test_mirrormakers_file_is_run_and_what_has_no_effect_is_named(kctl, clusters, tmp_path):
    clusters.source.create_topic("ordered")
    clusters.produce("ordered", [b"1", b"2"])
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\n"
        f"A.bootstrap.servers = {clusters.source.bootstrap_servers}\n"
        f"B.bootstrap.servers = {clusters.target.bootstrap_servers}\n"
        "A->B.enabled = true\nA->B.topics = order.*\nreplication.factor = 1\ntasks.max = 9\n"
    )

    status, _, err = kctl("mirror", "run", "--mm2-config", str(path), "--once", "--name", "mm2")

    assert status == 0
    assert err == f"warning: {path}: tasks.max has no effect\n"
    assert [it.value for it in clusters.target.records("A.ordered")] == [b"1", b"2"]
    status, _, err = kctl("mirror", "run", "--mm2-config", str(path), "--topics", "x")
    assert status == 2
    assert "cannot be combined" in err


def test_a_loss_is_the_exit_status(kctl, clusters):
    clusters.source.create_topic("lossy")
    clusters.produce("lossy", [b"1", b"2"])
    words = (
        "mirror", "run", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", "loss*", "--once", "--name", "lossy",
    )  # fmt: skip
    assert kctl(*words)[0] == 0
    clusters.do(lambda a, _: a.topics.delete(["lossy"]))
    clusters.source.create_topic("lossless")

    status, _, err = kctl(*words)

    assert status == 1
    assert "lossy no longer exists at the source" in err


def test_metrics_are_served_while_a_mirror_runs(kctl, clusters):
    pytest.importorskip("h11")
    clusters.source.create_topic("counted")
    clusters.produce("counted", [b"1"])
    status, _, err = kctl(
        "mirror", "run", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", "counted", "--name", "counted", "--once",
        "--metrics-port", "0",
    )  # fmt: skip
    assert (status, "metrics on http://127.0.0.1:" in err) == (0, True), err


def test_a_setting_that_the_target_does_not_know_is_named_and_left_out_on_request(
    kctl, clusters, monkeypatch
):
    from kctl.mirror import topics

    described = topics.describe_topics

    async def of_a_later_kafka(admin, names=None):
        """Return the topics as Kafka 3.6 describes them."""
        return [
            replace(it, configs={**it.configs, "remote.storage.enable": "true"})
            for it in await described(admin, names)
        ]

    monkeypatch.setattr("kctl.mirror.cluster_source.describe_topics", of_a_later_kafka)
    clusters.source.create_topic("tiered")
    clusters.produce("tiered", [b"1"])
    words = (
        "mirror", "run", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", "tiered", "--once", "--name", "tiered",
    )  # fmt: skip

    status, _, err = kctl(*words)
    assert status == 1
    assert "tiered: Unknown topic config name: remote.storage.enable (--exclude-config" in err

    assert kctl(*words, "--exclude-config", "remote.*")[0] == 0
    assert [it.value for it in clusters.target.records("tiered")] == [b"1"]
