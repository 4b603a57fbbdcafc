"""The metrics of a running mirror, as Prometheus reads them."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from kctl.client.group_member import GroupMember
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.loss import Loss, LossKind
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.model import Endpoint, TopicPartition
from kctl.runtime.future import sleep

pytest.importorskip("h11")


def get(endpoint, path):
    try:
        with urlopen(f"http://{endpoint.host}:{endpoint.port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def figures(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_the_figures_equal_what_was_copied_and_a_stopped_partition_is_not_ready(clusters):
    from kctl.mirror.metering import MirrorMetering

    clusters.source.create_topic("metered", partitions=2)
    clusters.produce("metered", [b"%d" % n for n in range(7)])
    series = '{mirror="metered",topic="metered",target="dc1.metered"'
    records = f"kctl_mirror_records_total{series}}}"

    async def work(source, target):
        runtime = target.router.runtime
        choice = TopicChoice(["metered"], (), parse_rename("dc1.{topic}"))
        it = MirrorRun(ClusterSource(source), target, choice, MirrorSettings("metered"))
        metering = MirrorMetering(it, Endpoint("127.0.0.1", 0))
        at = metering.start().endpoint

        async def page(path):
            asked = pool.submit(get, at, path)
            while not asked.done():
                await sleep(runtime.scheduler, 1)
            return asked.result()

        with ThreadPoolExecutor(1) as pool:
            before = await page("/readyz")
            running = runtime.scheduler.spawn(it.run())
            end = monotonic() + 30
            while True:
                found = figures((await page("/metrics"))[1])
                lag = found.get(f"kctl_mirror_lag_records{series}}}")
                if (found.get(records), lag) == (7, 0) or running.done or monotonic() > end:
                    break
            ready = await page("/readyz")
            it.reports[TopicPartition("metered", 0)].error = Loss(LossKind.DELETED, 7, 9, 2)
            stopped = await page("/readyz"), figures((await page("/metrics"))[1])
        size = sum(each.bytes for each in it.reports.values())
        running.cancel()
        metering.close()
        return before, found, size, ready, stopped

    before, found, size, ready, (unready, after) = clusters.do(work)
    assert before[0] == 503
    assert found[records] == len(clusters.target.records("dc1.metered")) == 7
    assert found[f"kctl_mirror_bytes_total{series}}}"] == size > 0
    assert found[f"kctl_mirror_partitions{series}}}"] == 2
    assert found[f"kctl_mirror_lag_bytes{series}}}"] == 0
    assert found[f"kctl_mirror_lag_seconds{series}}}"] == 0
    assert found['kctl_mirror_transactions_total{mirror="metered",result="committed"}'] >= 1
    assert found['kctl_mirror_failures_total{mirror="metered"}'] == 0
    mm2 = [
        [value for name, value in found.items() if f"mirrorsourceconnector_{attribute}{{" in name]
        for attribute in ("record_count", "byte_count", "replication_latency_ms_max")
    ]
    assert (sum(mm2[0]), sum(mm2[1])) == (7, size)
    assert len(mm2[2]) == len(mm2[0])
    assert min(mm2[2]) >= 0
    assert found[f"kctl_mirror_last_copy_age_seconds{series}}}"] >= 0
    assert not any("partition_stopped" in name for name in found)
    assert ready[0] == 200
    assert unready[0] == 503
    assert json.loads(unready[1])["reasons"] == [f"metered-0 stopped: {LossKind.DELETED.value}"]
    assert after[f"kctl_mirror_losses_total{series}}}"] == 1
    labels = f'{series},partition="0",reason="{LossKind.DELETED.value}"}}'
    assert after[f"kctl_mirror_partition_stopped{labels}"] == 1


def test_a_partition_that_moves_to_another_worker_takes_its_lag_along(clusters, monkeypatch):
    from kctl.mirror.metering import MirrorMetering

    # The other worker is noticed with the next heartbeat.
    eager = partial(GroupMember, heartbeat_interval_ms=50)
    monkeypatch.setattr("kctl.mirror.worker.GroupMember", eager)
    clusters.source.create_topic("moved", partitions=2)
    clusters.produce("moved", [b"%d" % n for n in range(5)])

    async def work(*clients):
        scheduler = clients[0].router.runtime.scheduler
        runs, pages, meterings = [], [], []

        def start(number):
            source, target = clients[2 * number : 2 * number + 2]
            settings = MirrorSettings("moved", str(number + 1), exactly_once=False)
            choice = TopicChoice(["moved"], (), parse_rename("identity"))
            it = MirrorRun(ClusterSource(source), target, choice, settings)
            metering = MirrorMetering(it, Endpoint("127.0.0.1", 0))
            meterings.append(metering)
            runs.append(it)
            return scheduler.spawn(it.run())

        def shown(number):
            found = {}
            for sample in meterings[number].samples():
                labels = dict(zip(sample.family.labels, sample.labels, strict=True))
                if labels.get("topic") == "moved":
                    found[sample.family.name, labels.get("partition")] = sample.value
            return found

        async def until(condition):
            end = monotonic() + 30
            while not condition():
                assert monotonic() < end, [shown(number) for number in range(len(runs))]
                await sleep(scheduler, 5)

        tasks = [start(0)]
        await until(lambda: shown(0).get(("kctl_mirror_records_total", None)) == 5)
        before = shown(0)
        tasks.append(start(1))
        await until(lambda: len(runs[0].held) == len(runs[1].held) == 1)
        await until(lambda: len(runs[1].reports) == 1)
        after = shown(0)
        [moved] = runs[1].held
        # What keeps a partition from being copied is the business of its worker.
        runs[0].reports[moved].error = Loss(LossKind.DELETED, 7, 9, 2)
        runs[0].reports[moved].end += 1_000
        pages = shown(0), meterings[0].reasons()
        for task in tasks:
            task.cancel()
        return moved, before, after, pages

    moved, before, after, (stopped, reasons) = clusters.do(work, workers=2)
    assert before["kctl_mirror_partitions", None] == 2
    assert after["kctl_mirror_partitions", None] == 1
    assert after["kctl_mirror_records_total", None] == 5
    assert stopped["kctl_mirror_lag_records", None] == 0
    assert reasons == []
    assert not any(name.endswith("partition_stopped") for name, _ in stopped)
    # Of MirrorMaker 2's series, which are those of partitions.
    assert not any(partition == str(moved.partition) for _, partition in stopped)
