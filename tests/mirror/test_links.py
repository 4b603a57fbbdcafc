"""A linked topic is its source, byte for byte: under transactions, kills and growth, over a
failover and back; and it stops, loudly, where records would be lost or mixed."""

import subprocess
import sys

import pytest

from tests.mirror.linked_pair import PATIENCE_S, LinkedPair, partitions, wait_caught_up, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with LinkedPair(
        tmp_path_factory.mktemp("linked"),
        {
            "log.retention.check.interval.ms": "500", "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
        },
    ) as it:  # fmt: skip
        yield it


def both(side, *words):
    """What a command prints, messages included."""
    done = subprocess.run(
        [sys.executable, "-m", "kctl", *words, "-b", side.address],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


def values(name, count):
    return [f"{name}-{number}".encode() for number in range(count)]


def test_a_link_has_the_bytes_of_its_source_takes_over_and_goes_back(pair):
    east, west = pair.east, pair.west
    east.kctl("topic", "create", "orders", "-p", 1, "--config", "retention.ms=-1")
    assert east.produce("orders", values("a", 200)) == []
    east.transaction("orders", "t1", values("committed", 5), end="commit")
    east.transaction("orders", "t2", values("aborted", 5), end="abort")
    pair.link("orders", source=east, target=west)
    wait_caught_up(west, "orders")
    assert east.produce("orders", values("b", 50), **{"enable.idempotence": True}) == []
    still_open = east.transaction("orders", "t3", values("open", 5), end=None)
    wait_caught_up(west, "orders", end=267)

    # The same bytes, epochs and readable records; read-only.
    assert west.log_bytes("orders") == east.log_bytes("orders") != b""
    assert west.epochs("orders") == east.epochs("orders")
    # Exits with 1 if they differ.
    west.kctl_alone(
        "verify-log", west.broker.log_dir / "orders-0", "--compare",
        east.broker.log_dir / "orders-0",
    )  # fmt: skip
    committed = [value for _, value in west.read("orders")]
    assert committed == values("a", 200) + values("committed", 5) + values("b", 50)
    assert west.read("orders") == east.read("orders")
    [error] = west.produce("orders", [b"no"])
    assert error.name() == "POLICY_VIOLATION"
    west.kctl("records", "delete", "orders:0", "--before", 5, "--yes", status=1)
    alter = (
        "config",
        "alter",
        "topic",
        "orders",
        "-d",
        "mirror.source",
        "-d",
        "mirror.source.cluster",
    )
    assert "take over before the link can end" in west.kctl(*alter, status=1)

    # West takes over; what was open is aborted there, so that committed readers go on.
    assert "writable" in west.kctl("link", "failover", "orders", "--yes")
    assert west.produce("orders", values("c", 10)) == []
    assert [value for _, value in west.read("orders")] == [*committed, *values("c", 10)]
    west_epochs = [int(line.split()[0]) for line in west.epochs("orders").splitlines()[2:]]
    assert west_epochs[-1] >= 1000 > west_epochs[-2]

    # East goes on without knowing, and then follows west: what it wrote meanwhile is removed.
    assert east.produce("orders", values("lost", 3)) == []
    pair.link("orders", "--replace", source=west, target=east)
    [row] = wait_caught_up(east, "orders")
    assert "removed offsets" in row["detail"]
    # A transaction of east's that wrote to the topic ends, although no marker is written for it.
    still_open.abort_transaction(60)
    assert east.log_bytes("orders") == west.log_bytes("orders")
    assert east.read("orders") == west.read("orders")
    assert [error.name() for error in east.produce("orders", [b"no"])] == ["POLICY_VIOLATION"]
    assert "writable" in east.kctl("link", "failover", "orders", "--yes")
    assert east.produce("orders", values("d", 4)) == []


def test_a_link_grows_with_its_source_and_follows_its_settings_and_its_start(pair):
    east, west = pair.east, pair.west
    east.kctl("topic", "create", "grows", "-p", 1, "--config", "segment.bytes=60000")
    pair.link("grows", source=east, target=west)
    east.kctl("topic", "alter", "grows", "--partitions", 3)
    for number in range(3):
        assert east.produce("grows", values("x" * 100, 300), number) == []
    wait_until(west, "grows", lambda rows: len(rows) == 3, "three partitions")
    wait_caught_up(west, "grows", end=300)
    for number in range(3):
        assert west.log_bytes("grows", number) == east.log_bytes("grows", number)
    east.kctl("records", "delete", "grows:1", "--before", 120, "--yes")
    rows = wait_until(
        west, "grows", lambda rows: rows[1]["start"] == 120, "the source's log start offset"
    )
    assert [row["start"] for row in rows] == [0, 120, 0]


def test_nothing_is_lost_or_doubled_under_kills_of_both_sides(pair):
    east, west = pair.east, pair.west
    east.kctl("topic", "create", "killed", "-p", 1)
    pair.link("killed", source=east, target=west)
    for round_number in range(3):
        assert east.produce("killed", values(f"r{round_number}", 500)) == []
        killed = (east, west)[round_number % 2].broker
        killed.kill()
        killed.start()
    rows = wait_caught_up(west, "killed", end=1500)
    assert rows[0]["end"] == 1500
    assert west.log_bytes("killed") == east.log_bytes("killed")
    assert len(west.read("killed")) == 1500


def test_a_link_stops_where_it_would_lose_records_or_mix_those_of_two_topics(pair):
    east, west = pair.east, pair.west
    for topic in ("late", "again"):
        east.kctl("topic", "create", topic, "-p", 1)
        assert east.produce(topic, values("a", 10)) == []
        pair.link(topic, source=east, target=west)
        wait_caught_up(west, topic, end=10)
    before = west.log_bytes("again")
    west.broker.kill()
    # One topic loses records before they are copied, the other is created again, and longer.
    assert east.produce("late", values("b", 30)) == []
    east.kctl("records", "delete", "late:0", "--before", 25, "--yes")
    east.kctl("topic", "delete", "again", "--yes")
    east.kctl("topic", "create", "again", "-p", 1)
    assert east.produce("again", values("other", 30)) == []
    west.broker.start()
    [late] = wait_until(west, "late", lambda rows: rows[0]["phase"] == "stopped", "a stop")
    assert "deleted 15 offsets" in late["detail"]
    [again] = wait_until(west, "again", lambda rows: rows[0]["phase"] == "stopped", "a stop")
    assert "created again" in again["detail"]
    assert west.kctl("link", "describe", "late", status=1)
    assert len(west.read("late")) == 10
    assert west.log_bytes("again") == before
    assert "no longer follows east" in west.broker.errors

    # To compare again changes nothing; --dry-run neither; the loss is accepted by a word.
    assert "resumed" in west.kctl("link", "resume", "late", "again", "--yes")
    for topic in ("late", "again"):
        wait_until(west, topic, lambda rows: rows[0]["phase"] == "stopped", "a stop")
    words = ("link", "resume", "late", "again", "--on-loss", "restart")
    plan = west.kctl(*words, "--dry-run")
    assert plan.count("offsets 0 to 9") == 2
    assert west.log_bytes("again") == before
    assert "resumed" in west.kctl(*words, "--yes")
    for topic, end in (("late", 40), ("again", 30)):
        [row] = wait_caught_up(west, topic, end=end)
        assert "removed offsets" in row["detail"]
        assert west.read(topic) == east.read(topic)
    assert west.log_bytes("again") == east.log_bytes("again")
    assert west.epochs("again") == east.epochs("again")
    assert "mirror.resume" not in west.kctl("config", "describe", "topic", "again")
    assert "no partition has stopped" in both(west, "link", "resume", "again", "--yes")


def test_what_cannot_be_a_link_is_refused(pair):
    east, west = pair.east, pair.west
    east.kctl("topic", "create", "here", "-p", 1)
    west.kctl("topic", "create", "here", "-p", 1)
    words = ("link", "create", "here", "--source", "east", "--from")
    assert "the topic exists" in west.kctl(*words, east.address, "--yes", status=1)
    assert "its own cluster" in west.kctl(*words, west.address, "--yes", status=2)
    assert "Not a link" in west.kctl("link", "failover", "here", "--yes", status=2)
    assert partitions(west, "here") == []
