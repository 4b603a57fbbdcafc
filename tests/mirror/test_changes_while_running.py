"""What changes at the source while a mirror and a link are connected to it: topics that are deleted
and created again, records that retention deletes before they are copied, settings."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.broker.links import link_manager
from kctl.cli import app
from kctl.model import TopicPartition
from kctl.testing.kafka_broker import KafkaBroker
from tests.mirror.conftest import Clusters
from tests.mirror.test_kinds_of_loss import delete_topic, values
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

COPIED = values(0, 20)


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory):
    """The target follows the source, whose retention is quick."""
    sources = tmp_path_factory.mktemp("sources")
    with (
        KafkaBroker(settings={"log.retention.check.interval.ms": "100"}) as source,
        KafkaBroker(settings={"mirror.sources.dir": sources}) as target,
    ):
        (sources / "east.properties").write_text(f"bootstrap.servers={source.bootstrap_servers}\n")
        yield Clusters(source, target)


def copies(clusters, topic):
    """Return what is copied so far; nothing before the topic exists."""
    if topic not in clusters.target.topics:
        return []
    return [it.value for it in clusters.target.records(topic, 0)]


@contextmanager
def running_mirror(clusters, topic, log):
    """Run `kctl mirror run` into m-TOPIC until all is copied; it must end with 1."""
    command = [
        sys.executable, "-m", "kctl", "mirror", "run", "--topics", topic, "--name", topic,
        "--source", clusters.source.bootstrap_servers, "--rename", "m-{topic}",
        "--target", clusters.target.bootstrap_servers,
    ]  # fmt: skip
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as mirror,
    ):
        try:
            wait_for(lambda: copies(clusters, f"m-{topic}") == COPIED, log.read_text)
            yield
            mirror.send_signal(signal.SIGINT)
            assert mirror.wait(60) == 1, log.read_text()
        finally:
            mirror.kill()


def link(clusters, topic):
    """Make the target's topic of the same name a link, and wait until it has what is there."""
    words = ("link", "create", topic, "--source", "east", "--yes")
    ends = ("--from", clusters.source.bootstrap_servers, "-b", clusters.target.bootstrap_servers)
    assert app.run([*words, *ends]) == 0
    wait_for(lambda: copies(clusters, topic) == COPIED, lambda: "the link does not copy")


@pytest.fixture
def wait_for_link(clusters, capfdbinary):
    """Return when the link's partition is as wanted, with the exit status of describe."""

    def wait(topic, holds):
        last = []

        def is_so():
            capfdbinary.readouterr()
            words = ("link", "describe", topic, "-o", "json")
            status = app.run([*words, "-b", clusters.target.bootstrap_servers])
            [row] = json.loads(capfdbinary.readouterr().out)
            last[:] = [status, row]
            return holds(row)

        wait_for(is_so, lambda: str(last))
        return last

    return wait


def begin(clusters, topic, **configs):
    clusters.source.create_topic(topic, configs=configs)
    clusters.produce(topic, COPIED)


@pytest.mark.parametrize("count", [5, 50])
def test_a_topic_that_is_created_again_stops_both(clusters, wait_for_link, tmp_path, count):
    """Also if it has more records than were copied, in the same leader epoch."""
    topic, log = f"again-{count}", tmp_path / "mirror.log"
    begin(clusters, topic)
    link(clusters, topic)
    with running_mirror(clusters, topic, log):
        delete_topic(clusters, "source", topic)
        wait_for(lambda: f"no longer knows topic {topic}" in log.read_text(), log.read_text)
        wait_for_link(topic, lambda row: row["phase"] == "waiting")
        clusters.source.create_topic(topic)
        clusters.produce(topic, values(0, count, b"new"))
        wait_for(lambda: f"error: {topic}-0: " in log.read_text(), log.read_text)
        status, row = wait_for_link(topic, lambda row: row["phase"] == "stopped")

    assert "another one is in its place at the source" in log.read_text()
    assert (status, row["end"]) == (1, 20)
    assert "created again" in row["detail"]
    # Nothing of the other topic is mixed with what was copied.
    assert copies(clusters, f"m-{topic}") == copies(clusters, topic) == COPIED


def test_records_that_retention_deletes_before_they_are_copied_stop_both(
    clusters, wait_for_link, tmp_path
):
    topic, log = "expired", tmp_path / "mirror.log"
    begin(clusters, topic)
    link(clusters, topic)
    partition = TopicPartition(topic, 0)
    expire = {ConfigResource(ResourceType.TOPIC, topic): ConfigChanges({"retention.ms": "1"})}
    small = {ConfigResource(ResourceType.TOPIC, topic): ConfigChanges({"segment.bytes": "200"})}

    def start():
        return clusters.do(lambda a, _: a.offsets.earliest([partition]))[partition].offset

    with running_mirror(clusters, topic, log):
        # Not before: the mirror would set this in the target, too.
        clusters.do(lambda a, _: a.configs.alter(small))
        with clusters.source.inject_disconnect("Fetch", times=None):
            # Neither has one in flight that would return records.
            asked = clusters.source.request_count("Fetch")
            wait_for(
                lambda: clusters.source.request_count("Fetch") > asked + 10, lambda: "no fetches"
            )
            for value in values(20, 30):
                clusters.produce(topic, [value])
            clusters.do(lambda a, _: a.configs.alter(expire))
            wait_for(lambda: start() == 30, lambda: f"the log starts at {start()}")
        wait_for(lambda: f"error: {topic}-0: " in log.read_text(), log.read_text)
        status, row = wait_for_link(topic, lambda row: row["phase"] == "stopped")

    assert "10 records, 20 to 29, were deleted before they were copied" in log.read_text()
    assert (status, row["end"]) == (1, 20)
    assert "deleted 10 offsets" in row["detail"]
    assert copies(clusters, f"m-{topic}") == copies(clusters, topic) == COPIED


def test_a_link_follows_settings_that_change(clusters, monkeypatch):
    monkeypatch.setattr(link_manager, "SETTINGS_MS", 100)
    begin(clusters, "tuned", **{"retention.ms": "5000000"})
    link(clusters, "tuned")
    resource = ConfigResource(ResourceType.TOPIC, "tuned")
    changes = ConfigChanges(
        {"retention.ms": "6000000", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
    )
    clusters.do(lambda a, _: a.configs.alter({resource: changes}))

    def settings():
        [found] = clusters.do(lambda _, b: b.configs.describe([resource]))
        return {it.name: it.value for it in found.entries if it.name in changes.set}

    expected = {**changes.set, "min.insync.replicas": "1"}
    wait_for(lambda: settings() == expected, lambda: str(settings()))
