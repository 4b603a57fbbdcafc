"""The controller logs one line about partitions and brokers whose state does not change."""

import pytest

from kctl.broker.controller import failed_transitions
from tests.support.controller_cluster import running_cluster


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        yield cluster


def lines_about(cluster, what):
    return [line for line in cluster.trace.warnings if what in line]


def test_partitions_of_absent_brokers_are_logged_once_when_they_lose_their_leader(
    cluster, monkeypatch
):
    """Found by attack: 51,000 lines in 11 minutes, as every event tries such partitions again.

    new-0 on 7, which is not there      one line, whatever else happens
    7 comes, leads, and goes            one line more
    """
    monkeypatch.setattr(failed_transitions, "REPORT_DELAY_MS", 0)
    cluster.start(1, 2)
    cluster.create_topic("new", [7])
    for number in range(5):
        cluster.create_topic(f"other-{number}", [1, 2])
    for broker_id in (3, 4):
        cluster.start(broker_id)
    assert len(lines_about(cluster, "new-0")) == 1
    cluster.start(7)
    assert cluster.state("new")[0] == 7
    cluster.brokers[7].kill()
    cluster.settle()
    for broker_id in (5, 6):
        cluster.start(broker_id)
    for number in range(5):
        cluster.create_topic(f"more-{number}", [1, 2])
    assert len(lines_about(cluster, "new-0")) == 2
