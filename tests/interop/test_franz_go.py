"""Transactions of franz-go, Go's client of Kafka: undisturbed, with the same results on kctl and on
Apache Kafka 2.7.2."""

import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.kafka

SOURCES = Path(__file__).parent.parent / "support" / "go"
COPIES = 40


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The compiled program."""
    if shutil.which("go") is None:
        pytest.skip("no Go to compile the client with")
    module = tmp_path_factory.mktemp("go") / "franzgo"
    shutil.copytree(SOURCES, module)
    run = {"cwd": module, "capture_output": True, "text": True, "timeout": 300}
    fetched = subprocess.run(["go", "mod", "download"], check=False, **run)
    if fetched.returncode:
        pytest.skip(f"franz-go cannot be fetched: {fetched.stderr[-200:]}")
    built = subprocess.run(["go", "build", "-o", "program", "."], check=False, **run)
    assert built.returncode == 0, built.stderr
    return module / "program"


def committed_values(address, topic, count):
    settings = {"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < count:
        message = consumer.poll(120)
        assert message is not None, found
        found.append(message.value().decode())
    assert consumer.poll(0.5) is None
    consumer.close()
    return found


def test_franz_go_commits_aborts_fences_and_copies(program, bootstrap, topic):
    copy = f"{topic}-copy"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in (topic, copy)]).values():
        made.result(120)
    done = subprocess.run(
        [program, bootstrap, topic, copy, topic],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "committed [a b e]",
        "all [a b c d e]",
        "fenced true",
        f"copied {COPIES}",
    ], done.stderr
    expected = ["a", "b", "e", *(f"turn{turn}" for turn in range(0, 2 * (COPIES - 3), 2))]
    assert committed_values(bootstrap, copy, COPIES) == expected
