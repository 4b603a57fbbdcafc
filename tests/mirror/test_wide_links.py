"""A link of so many partitions that their descriptions, and the decisions on them, do not fit in
one string of Kafka is described, goes on after a loss and takes over as any other."""

import json

import pytest

from kctl.cli import app
from kctl.mirror import links
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

PARTITIONS = 300


@pytest.fixture
def kctl(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def run(*words, broker):
        """Return the exit status and the documents of a command."""
        capfd.readouterr()
        status = app.run([*words, "-o", "json", "-b", broker.bootstrap_servers])
        out, err = capfd.readouterr()
        return status, json.loads(out or "null"), err

    return run


def test_a_wide_link_is_described_goes_on_and_takes_over(kctl, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "RESUMES_MAX", 120)
    (tmp_path / "sources").mkdir()
    with (
        KafkaBroker() as source,
        KafkaBroker(settings={"mirror.sources.dir": tmp_path / "sources"}) as target,
    ):
        address = source.bootstrap_servers
        (tmp_path / "sources" / "east.properties").write_text(f"bootstrap.servers={address}\n")

        def fill(value):
            source.create_topic("wide", partitions=PARTITIONS)
            for number in range(PARTITIONS):
                source.produce("wide", value, partition=number)

        def wait_until_all(holds):
            """Return the exit status and the rows when `holds` is true of each."""
            found = []

            def is_so():
                found[:] = kctl("link", "describe", "wide", broker=target)
                rows = found[1] or []
                return len(rows) == PARTITIONS and all(map(holds, rows))

            wait_for(is_so, lambda: str(found)[:1_000])
            assert [it["partition"] for it in found[1]] == list(range(PARTITIONS))
            return found[0], found[1]

        def has_one(row):
            return (row["phase"], row["end"], row["lag"]) == ("following", 1, 0)

        fill("old")
        link = ("--source", "east", "--from", address, "--yes")
        assert kctl("link", "create", "wide", *link, broker=target)[0] == 0
        assert wait_until_all(has_one)[0] == 0
        _, entries, _ = kctl("config", "describe", "topic", "wide", "--all", broker=target)
        assert f"following: {PARTITIONS}" in [it["value"] for it in entries]

        assert kctl("topic", "delete", "wide", "--yes", broker=source)[0] == 0
        fill("new")
        assert wait_until_all(lambda row: row["phase"] == "stopped")[0] == 1
        words = ("link", "resume", "wide", "--on-loss", "restart", "--yes", "--timeout", "600s")
        status, rows, err = kctl(*words, broker=target)
        assert status == 0, (rows, err)
        assert {it["status"] for it in rows} == {"resumed"}
        wait_until_all(has_one)
        assert {it.value for it in target.records("wide")} == {b"new"}

        status, rows, err = kctl("link", "failover", "wide", "--yes", broker=target)
        assert (status, rows) == (0, [{"topic": "wide", "status": "writable"}]), err
        # Also of the last partition to which the brokers apply this.
        target.produce("wide", b"here", partition=PARTITIONS - 1)
