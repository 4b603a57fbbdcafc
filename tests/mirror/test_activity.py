"""kctl top mirrors: what mirrors do, by what they keep in the target and by their metrics."""

import json
from time import monotonic

import pytest

from kctl.admin.broker_metrics import BrokerScrape, MetricsSource
from kctl.admin.group_descriptions import GroupDescription
from kctl.cli.app import run as kctl
from kctl.metrics.parse import parse_metrics
from kctl.mirror.activity import (
    MirrorFacts,
    MirrorsLook,
    look_at_mirrors,
    mirror_partition_rows,
    mirror_rows,
)
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.model import Endpoint, TopicPartition
from kctl.runtime.future import sleep

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("dc1.orders", 0)
LABELS = 'mirror="m",topic="orders",target="dc1.orders"'


def look(time_ms, offset, *pages, copy=0, state="Stable"):
    position = MirrorPosition(offset, None, ORDERS, copy=copy)
    facts = MirrorFacts(GroupDescription("kctl-mirror.m", state), {COPY: position})
    found = MirrorsLook(time_ms, mirrors={"m": facts, "old": MirrorFacts()})
    found.scraped_ms = time_ms
    found.scrapes = {
        str(n): BrokerScrape(str(n), None, parse_metrics(page)) for n, page in enumerate(pages)
    }
    return found


def page(size, lag):
    return (
        f"kctl_mirror_bytes_total{{{LABELS}}} {size}\nkctl_mirror_lag_records{{{LABELS}}} {lag}\n"
        f"kctl_mirror_lag_bytes{{{LABELS}}} {lag * 10}\nkctl_mirror_losses_total{{{LABELS}}} 1\n"
        f"kctl_mirror_lag_seconds{{{LABELS}}} {lag / 10}\nkctl_mirror_partitions{{{LABELS}}} 1\n"
        f'kctl_mirror_partition_stopped{{{LABELS},partition="0",reason="deleted"}} 1\n'
    )


def test_rates_are_those_of_positions_and_the_rest_is_the_sum_of_all_workers():
    before = look(1000, 10, page(100, 5), page(100, 9))
    now = look(3000, 30, page(300, 7), page(500, 20))
    row, old = mirror_rows(before, now)
    assert (row["mirror"], row["state"], row["partitions"]) == ("m", "running", 1)
    assert (row["records_s"], row["bytes_s"]) == (10, 300)
    assert (row["lag"], row["lag_bytes"], row["lag_seconds"]) == (27, 270, 2)
    assert (row["losses"], row["stopped"]) == (2, 2)
    assert (old["mirror"], old["state"], old["lag"]) == ("old", "expired", None)
    [part] = mirror_partition_rows(before, now, "m")
    assert (part["topic"], part["target"], part["position"]) == ("orders", "dc1.orders", 30)
    assert (part["records_s"], part["stopped"]) == (10, "deleted")


def test_without_metrics_only_what_the_target_knows_is_shown():
    row = mirror_rows(look(1000, 10), look(2000, 11, state="Empty"))[0]
    assert (row["records_s"], row["state"]) == (1, "stopped")
    assert {row[it] for it in ("lag", "lag_bytes", "lag_seconds", "losses", "stopped")} == {None}
    assert mirror_rows(None, look(2000, 11))[0]["records_s"] is None


def test_a_worker_that_started_again_and_a_new_copy_have_no_rate():
    row = mirror_rows(look(1000, 10, page(100, 5)), look(2000, 5, page(50, 5), copy=1))[0]
    assert (row["records_s"], row["bytes_s"]) == (None, None)


def test_a_running_mirror_is_seen_with_its_metrics_and_stopped_without(clusters, capfdbinary):
    pytest.importorskip("h11")
    from kctl.mirror.metering import MirrorMetering

    clusters.source.create_topic("seen")
    clusters.produce("seen", [b"%d" % n for n in range(7)])

    async def work(source, target):
        scheduler = target.router.runtime.scheduler
        choice = TopicChoice(["seen"], (), parse_rename("identity"))
        it = MirrorRun(ClusterSource(source), target, choice, MirrorSettings("seen"))
        metering = MirrorMetering(it, Endpoint("127.0.0.1", 0))
        at = metering.start().endpoint
        running = scheduler.spawn(it.run())
        metrics = MetricsSource([f"{at.host}:{at.port}"])
        end = monotonic() + 30
        row = None
        while monotonic() < end and not running.done:
            rows = mirror_rows(None, await look_at_mirrors(target, metrics))
            row = next((it for it in rows if it["mirror"] == "seen"), None)
            if row is not None and (row["lag"], row["partitions"]) == (0, 1):
                break
            await sleep(scheduler, 10)
        running.cancel()
        metering.close()
        while not running.done:
            await sleep(scheduler, 1)
        return row

    row = clusters.do(work)
    assert (row["state"], row["workers"]) == ("running", 1)
    assert (row["lag"], row["lag_bytes"], row["losses"], row["stopped"]) == (0, 0, 0, 0)
    capfdbinary.readouterr()
    target = clusters.target.bootstrap_servers
    assert kctl(["top", "mirrors", "-b", target, "--once", "--every", "1ms", "-o", "json"]) == 0
    rows = json.loads(capfdbinary.readouterr().out)
    found = {it["mirror"]: it for it in rows}["seen"]
    assert (found["state"], found["workers"], found["lag"]) == ("stopped", 0, None)
