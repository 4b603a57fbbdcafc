"""Failovers and ways back of links, under kills of both sides: no accepted record is lost, and the
directories of both sides are equal after each."""

import os
import random  # noqa: TID251 - seeded here

import pytest

from tests.mirror.linked_pair import LinkedPair, wait_caught_up

pytestmark = pytest.mark.slow

TOPIC = "drilled"
DRILLS = int(os.environ.get("KCTL_LINK_DRILLS", "1"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))


def kill_one(chance, *sides):
    broker = chance.choice(sides).broker
    broker.kill()
    broker.start()


def write(side, expected, name, count):
    values = [f"{name}-{number}".encode() for number in range(count)]
    assert side.produce(TOPIC, values, acks="all") == []
    expected += values


def proved(leading, following, expected):
    """Both sides have all records, once and in order, in the same files."""
    wait_caught_up(following, TOPIC)
    ends = [len(side.read(TOPIC, isolation="read_uncommitted")) for side in (leading, following)]
    assert ends == [len(expected)] * 2
    assert [value for _, value in following.read(TOPIC)] == expected
    # Exits with 1 if they differ.
    following.kctl_alone(
        "verify-log", following.broker.log_dir / f"{TOPIC}-0", "--compare",
        leading.broker.log_dir / f"{TOPIC}-0",
    )  # fmt: skip
    assert following.epochs(TOPIC) == leading.epochs(TOPIC)


def test_drills_lose_nothing_and_leave_equal_directories(tmp_path):
    chance, expected = random.Random(SEED), []
    with LinkedPair(tmp_path) as pair:
        leading, following = pair.east, pair.west
        leading.kctl("topic", "create", TOPIC, "-p", 1)
        pair.link(TOPIC, source=leading, target=following)
        for drill in range(DRILLS):
            write(leading, expected, f"before-{drill}", chance.randrange(1, 300))
            kill_one(chance, leading, following)
            write(leading, expected, f"after-{drill}", chance.randrange(1, 100))
            wait_caught_up(following, TOPIC, end=end_of(leading))
            proved(leading, following, expected)

            following.kctl("link", "failover", TOPIC, "--yes")
            kill_one(chance, leading, following)
            write(following, expected, f"taken-over-{drill}", chance.randrange(1, 100))
            # What the old side still accepts is removed when it follows.
            write(leading, [], f"stray-{drill}", chance.randrange(1, 50))
            pair.link(TOPIC, "--replace", source=following, target=leading)
            kill_one(chance, leading, following)
            leading, following = following, leading
            wait_caught_up(following, TOPIC, end=end_of(leading))
            proved(leading, following, expected)


def end_of(side):
    """The log end offset."""
    return side.read(TOPIC, isolation="read_uncommitted")[-1][0] + 1
