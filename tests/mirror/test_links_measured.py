"""The lag of a link, in records and in time, is described and served to Prometheus."""

import pytest

from tests.mirror.linked_pair import LinkedPair, wait_caught_up, wait_until

pytestmark = pytest.mark.slow


def test_the_lag_of_a_link_is_described_and_measured(tmp_path):
    with LinkedPair(tmp_path) as pair:
        east, west = pair.east, pair.west
        east.kctl("topic", "create", "lagging", "-p", 2)
        assert east.produce("lagging", [b"%d" % number for number in range(20)]) == []
        pair.link("lagging", source=east, target=west)
        rows = wait_caught_up(west, "lagging")
        assert [row["lag_ms"] for row in rows] == [0, 0]
        link = {"topic": "lagging", "source": "east"}
        partition = {"topic": "lagging", "partition": "1"}
        scrape = west.broker.scrape()
        assert scrape.value("kctl_link_partitions", **link, phase="following") == 2
        assert scrape.value("kctl_link_lag_records", **link) == 0
        assert scrape.value("kctl_link_lag_seconds", **link) == 0
        assert scrape.value("kctl_link_partition_lag_records", **partition) == 0
        assert scrape.value("kctl_link_partition_phase", **partition, phase="following") == 1

        # A source that cannot be reached makes the link later and later.
        east.broker.kill()
        wait_until(
            west,
            "lagging",
            lambda rows: all(row["phase"] == "waiting" and row["lag_ms"] > 0 for row in rows),
            "a lag in time",
        )
        scrape = west.broker.scrape()
        assert scrape.value("kctl_link_partitions", **link, phase="waiting") == 2
        assert scrape.value("kctl_link_lag_seconds", **link) > 0
        assert scrape.value("kctl_link_partition_lag_seconds", **partition) > 0
        assert west.broker.scrape("/metrics?partitions=0").of("kctl_link_partition_phase") == []
