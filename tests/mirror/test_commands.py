"""kctl mirror run and plan, as they are typed."""

import json
from dataclasses import replace

import pytest

from kctl.cli import app
from kctl.cli.mirror.run import _document
from kctl.mirror import source_reader
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.loss import Loss, LossKind
from kctl.mirror.partition_report import PartitionReport
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.model import TopicPartition
from kctl.runtime.future import CancelledError
from tests.support.builds import needs_sources


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


@needs_sources
def test_an_interrupted_run_does_not_call_copied_what_is_not(clusters, monkeypatch):
    clusters.source.create_topic("cut", partitions=2)
    for number in range(40):
        clusters.source.produce("cut", b"v" * 400, partition=number % 2)
    # The first response has records of one partition only.
    monkeypatch.setattr(source_reader, "RESPONSE_BYTES_MAX", 1000)
    monkeypatch.setattr(source_reader, "PARTITION_BYTES_MIN", 1000)
    choice = TopicChoice(("cut",), (), parse_rename("identity"))

    async def work(source, target):
        it = MirrorRun(ClusterSource(source), target, choice, MirrorSettings("cut"))
        task = source.router.runtime.scheduler.spawn(it.run())
        it.on_turn = task.cancel
        with pytest.raises(CancelledError):
            await task
        return it.report.partitions

    rows = [_document(each) for each in clusters.do(work)]

    assert [row["status"] for row in rows] == ["behind", "behind"]
    assert [row["records"] + row["lag"] for row in rows] == [20, 20]
    assert 0 in [row["records"] for row in rows]


def test_the_row_of_a_partition_says_how_it_stands():
    at = TopicPartition("orders", 0)
    loss = Loss(LossKind.DELETED, 3, 4, 4)

    def row(**more):
        found = _document(PartitionReport(at, at, **more))
        return found["position"], found["lag"], found["status"]

    assert row() == (None, None, "not begun")
    assert row(position=3, end=7) == (3, 4, "behind")
    assert row(position=7, end=7) == (7, 0, "copied")
    assert row(position=3, end=7, is_held=False) == (3, None, "moved to another worker")
    assert row(position=7, end=7, losses=[loss])[2] == f"skipped: {loss.text}"
    assert row(position=3, end=7, error=loss) == (3, 4, loss.text)


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
