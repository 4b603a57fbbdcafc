"""kctl mirror switch there and back, again and again, while transactions are written and mirrored:
a group of real clients reads each committed record once, in order, whichever side it reads.

`KCTL_MIRROR_SWITCHES=100` for more.
"""

import os
import sys

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from kctl.cli.app import run as kctl
from tests.mirror.killed_mirror import ID_HEADER, PARTITIONS, TOPIC, KilledMirror, read

SWITCHES = int(os.environ.get("KCTL_MIRROR_SWITCHES", "6"))
GROUP = "billing"
READ_EACH = 70
TIMEOUT_S = 120

pytestmark = pytest.mark.slow


def member(broker):
    settings = {
        "bootstrap.servers": broker.address, "group.id": GROUP, "auto.offset.reset": "error",
        "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0,
        # A batch or so of each partition, so that all of them have a part in each turn.
        "max.partition.fetch.bytes": 1000, "queued.min.messages": 1,
    }  # fmt: skip
    return Consumer(settings)


def begin(broker):
    """Commit the beginning of each partition."""
    client = member(broker)
    client.commit(offsets=[Position(TOPIC, it, 0) for it in range(PARTITIONS)], asynchronous=False)
    client.close()


def consume(broker, found):
    """Read some records as a member of the group, commit, and leave; add them to `found`."""
    client = member(broker)
    client.subscribe([TOPIC])
    for _ in range(READ_EACH):
        message = client.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        found[message.partition()].append(dict(message.headers())[ID_HEADER])
    client.commit(asynchronous=False)
    client.close()


def test_a_group_that_moves_there_and_back_under_load_reads_each_record_once(tmp_path, capfdbinary):
    with KilledMirror(tmp_path) as run:
        ends = ["--source", run.source.address, "--target", run.target.address]

        def switch(*more):
            status = kctl(["mirror", "switch", GROUP, "--yes", *ends, *more])
            return status, capfdbinary.readouterr().err

        begin(run.source)
        run.begin()
        run.wait_for_progress()
        found = {number: [] for number in range(PARTITIONS)}
        consume(run.source, found)
        refused = 0
        for number in range(SWITCHES):
            if number % 2:
                assert switch("--back") == (0, b"")
                consume(run.source, found)
                continue
            status, said = switch()
            if status:
                # The mirror is behind: as documented, the producers stop, and it catches up.
                assert status == 1
                assert b"nothing was changed" in said, said
                refused += 1
                with run.workload.between:
                    assert kctl(["mirror", "watch", *ends, "--until-caught-up"]) == 0
                    assert switch() == (0, b"")
            consume(run.target, found)
        transactions = run.workload.transactions
        run.workload.is_over = True
        run.workload.join(TIMEOUT_S)
        committed = read(run.source)
    sys.stderr.write(
        f"{SWITCHES} switches, {refused} of them refused first as the mirror was behind,"
        f" {transactions} transactions, {sum(map(len, found.values()))} records read\n"
    )
    for number, ids in found.items():
        assert len(ids) > SWITCHES
        assert ids == [it.id for it in committed[number]][: len(ids)]
