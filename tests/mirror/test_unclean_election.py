"""An unclean election at the source is loud while a mirror and a link run: the mirror stops
and names what was lost, the link removes what the source lost and names that."""

import signal
import subprocess
import sys

import pytest

from tests.mirror.linked_pair import Side, wait_until
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

TOPIC = "unclean"


class Source(Side):
    """A cluster of three brokers, of which two have the topic."""

    def __init__(self, cluster):
        self.name = "east"
        self.cluster = cluster

    @property
    def address(self):
        return self.cluster.bootstrap


@pytest.fixture
def source(tmp_path):
    (tmp_path / "east").mkdir()
    with LocalCluster(tmp_path / "east", "--brokers", "3") as cluster:
        cluster.kctl(
            "topic", "create", TOPIC, "--replica-assignment", "1:2",
            "--config", "unclean.leader.election.enable=true",
        )  # fmt: skip
        yield Source(cluster)


@pytest.fixture
def target(tmp_path, source):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "east.properties").write_text(f"bootstrap.servers={source.address}\n")
    side = Side("west", tmp_path, sources)
    yield side
    side.broker.kill()


def numbered(*numbers):
    return [b"%d" % number for number in range(*numbers)]


def lose_the_second_ten(cluster, isr):
    """Let the replica that has only the first ten records lead."""
    assert cluster.command("kill", "1").returncode == 0
    assert cluster.command("restart", "2").returncode == 0
    wait_for(lambda: cluster.isr(TOPIC) == isr, lambda: str(cluster.isr(TOPIC)))


def test_what_an_unclean_election_loses_is_named_while_copies_are_connected(
    source, target, tmp_path
):
    errors = tmp_path / "mirror.log"
    assert source.produce(TOPIC, numbered(10)) == []
    assert source.cluster.command("stop", "2").returncode == 0
    assert source.produce(TOPIC, numbered(10, 20)) == []
    target.kctl("link", "create", TOPIC, "--source", "east", "--from", source.address, "--yes")
    wait_until(target, TOPIC, lambda rows: rows and rows[0]["end"] == 20, "the link")
    with (
        errors.open("wb") as output,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "kctl", "mirror", "run", "--source", source.address),
                *("--target", target.address, "--topics", TOPIC, "--rename", "m-{topic}"),
            ],
            stdout=output,
            stderr=output,
        ) as mirror,
    ):
        wait_for(lambda: has_copied(target, 20), errors.read_text)

        lose_the_second_ten(source.cluster, {0: {2}})
        assert source.produce(TOPIC, numbered(100, 130)) == []

        wait_for(lambda: f"error: {TOPIC}-0:" in errors.read_text(), errors.read_text)
        mirror.send_signal(signal.SIGINT)
        assert mirror.wait(60) == 1
    # Nothing of the other history is mixed with what was copied.
    assert [value for _, value in target.read(f"m-{TOPIC}")] == numbered(20)
    assert "records 10 to 19 were copied, and no longer at the source" in errors.read_text()

    rows = wait_until(target, TOPIC, lambda rows: rows[0]["end"] == 40, "the other history")
    assert rows[0]["phase"] == "following"
    assert "removed offsets 10 to 19, which the source does not have" in rows[0]["detail"]
    assert f"{TOPIC}-0: the records from offset 10 to 19 were removed" in target.broker.errors
    assert [value for _, value in target.read(TOPIC)] == numbered(10) + numbered(100, 130)


def has_copied(target, count):
    topics = target.kctl("topic", "list").split()
    return f"m-{TOPIC}" in topics and len(target.read(f"m-{TOPIC}")) == count
