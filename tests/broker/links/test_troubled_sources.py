"""What a link says while its source does not serve it, and whom a source that is cut off delays."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kctl.broker.links import link_manager, source_cluster
from kctl.broker.links.link_manager import REFRESH_MS, SETTINGS_MS, LinkManager
from kctl.broker.links.linked_partition import PartitionPhase
from kctl.broker.replication.partition import Role
from kctl.errors import CorruptDataError, UnreachableError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from kctl.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.runtime.future import sleep
from kctl.runtime.recurring_warnings import PATIENCE_MS
from tests.support.virtual_runtime import virtual_runtime

END = 100
ADDRESSES = 5
UNREACHABLE_MS = ADDRESSES * source_cluster.CONNECT_TIMEOUT_MS


class Disk:
    """Settings of any source: its broker has the source's name, and several addresses."""

    def exists(self, _path):
        return True

    def read_file(self, path):
        name = path.rsplit("/", 1)[-1].removesuffix(".properties")
        addresses = ",".join(f"{name}:{9092 + number}" for number in range(ADDRESSES))
        return f"bootstrap.servers={addresses}".encode()


class World:
    """A broker, and the sources of its links, each of one broker."""

    def __init__(self):
        self.runtime = replace(virtual_runtime(), disk=Disk())
        # Sources that are cut off, what they answer fetches with, and what appends raise.
        self.cut_off = set()
        self.fetch_error = 0
        self.response_error = 0
        self.fetches_are_lost = False
        self.append_error = None
        # Topics whose settings sources do not show, and one that is cut off while it shows others.
        self.hidden = set()
        self.ends_at_settings = None
        self.overrides = {}
        self.partitions = {}
        self.manager = LinkManager(
            self.runtime, SimpleNamespace(given={"mirror.sources.dir": "/sources"}),
            SimpleNamespace(
                partitions=self.partitions, wake=lambda _: None, wake_fetches=lambda _: None
            ),
            self, SimpleNamespace(topic=lambda it: self.overrides.get(it, {})),
            SimpleNamespace(partition_count=lambda _: 1), None,
        )  # fmt: skip

    async def update_entity_config(self, _kind, topic, update):
        self.overrides[topic] = update(self.overrides[topic])

    def link(self, topic, source):
        tp = TopicPartition(topic, 0)
        log = SimpleNamespace(
            log_start_offset=END, log_end_offset=END, high_watermark=END, latest_epoch=-1,
            is_closed=False, is_write_through=False, config=SimpleNamespace(is_compacted=False),
        )  # fmt: skip
        self.partitions[tp] = SimpleNamespace(
            topic_partition=tp, role=Role.LEADER, read_only=None, log=log, leader_epoch=0,
            append_from_source=self.append,
        )  # fmt: skip
        self.overrides[topic] = {"mirror.source": source, "mirror.source.cluster": source}
        self.manager.on_topic_change(topic)

    def append(self, *_):
        if self.append_error is not None:
            raise self.append_error

    def pass_ms(self, duration_ms):
        self.runtime.scheduler.advance(duration_ms)

    def row(self, topic="orders"):
        [linked] = self.manager.among(topic, [0])
        return linked.document(self.runtime.clock.monotonic_ms())

    @property
    def warnings(self):
        return self.runtime.trace.warnings


class Channel:
    """A connection to the broker of a source."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.is_usable = True

    async def connect(self, timeout_ms):
        await self.reach(timeout_ms)

    async def reach(self, timeout_ms):
        if self.host in self.world.cut_off:
            self.is_usable = False
            await sleep(self.world.runtime.scheduler, timeout_ms)
            raise UnreachableError(f"{self.host} does not answer")

    async def send(self, request):
        await self.reach(source_cluster.REQUEST_TIMEOUT_MS)
        if isinstance(request, FetchRequest):
            return await self.fetched(request)
        if isinstance(request, DescribeConfigsRequest):
            if self.host == self.world.ends_at_settings:
                self.world.cut_off.add(self.host)
                await self.reach(source_cluster.REQUEST_TIMEOUT_MS)
            return DescribeConfigsResponse(
                results=[self.settings(it.resource_name) for it in request.resources]
            )
        assert isinstance(request, MetadataRequest)
        led = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)
        return MetadataResponse(
            cluster_id=self.host,
            brokers=[MetadataResponseBroker(node_id=1, host=self.host, port=9092)],
            topics=[MetadataResponseTopic(name=it.name, partitions=[led]) for it in request.topics],
        )

    send_in_turns = send

    def settings(self, topic):
        if topic in self.world.hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return DescribeConfigsResult(error_code=code, resource_name=topic)
        entry = DescribeConfigsResourceResult(name="retention.ms", value="7", config_source=1)
        return DescribeConfigsResult(resource_name=topic, configs=[entry])

    async def fetched(self, request):
        await sleep(self.world.runtime.scheduler, request.max_wait_ms)
        if self.world.fetches_are_lost:
            raise UnreachableError("the connection is lost")
        if self.world.response_error:
            return FetchResponse(error_code=self.world.response_error)
        error = self.world.fetch_error
        answer = FetchablePartitionResponse(
            partition=0, error_code=error, high_watermark=-1 if error else END
        )
        return FetchResponse(
            responses=[
                FetchableTopicResponse(topic=it.topic, partition_responses=[answer])
                for it in request.topics
            ]
        )

    def close(self):
        self.is_usable = False


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(
        source_cluster, "BrokerChannel", lambda _runtime, host, _port, **_: Channel(world, host)
    )
    yield world
    world.manager.close()
    world.pass_ms(REFRESH_MS)


def refuse(world):
    world.fetch_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return "the source reports TOPIC_AUTHORIZATION_FAILED"


def refuse_the_whole_request(world):
    world.response_error = ErrorCode.KAFKA_STORAGE_ERROR
    return "the source reports KAFKA_STORAGE_ERROR"


def send_what_cannot_be_appended(world):
    world.append_error = CorruptDataError("a batch is damaged")
    return "cannot append what the source sent: a batch is damaged"


def lose_fetches(world):
    world.fetches_are_lost = True
    return "the connection is lost"


@pytest.mark.parametrize(
    "begin", [refuse, refuse_the_whole_request, send_what_cannot_be_appended, lose_fetches]
)
def test_a_link_whose_source_does_not_serve_it_says_so_and_is_later_and_later(world, begin):
    world.link("orders", "east")
    world.pass_ms(REFRESH_MS)
    caught_up = {"phase": PartitionPhase.FOLLOWING, "detail": "", "source_end": END, "lag_ms": 0}
    assert world.row().items() >= caught_up.items()

    why = begin(world)
    world.pass_ms(60_000)
    row = world.row()
    assert (row["phase"], row["source_end"]) == (PartitionPhase.FOLLOWING, None)
    assert row["detail"] == why
    assert row["lag_ms"] > 0
    world.pass_ms(PATIENCE_MS)
    assert world.row()["lag_ms"] == row["lag_ms"] + PATIENCE_MS
    [warning] = world.warnings
    assert why in warning

    world.fetch_error = world.response_error = 0
    world.fetches_are_lost, world.append_error = False, None
    world.pass_ms(REFRESH_MS)
    assert world.row().items() >= caught_up.items()


def test_a_source_that_is_cut_off_delays_no_link_of_another_one(world, monkeypatch):
    monkeypatch.setattr(link_manager, "TOPICS_PER_REQUEST", 3)
    topics = [f"east{number}" for number in range(20)]
    for topic in topics:
        world.link(topic, "east")
    world.ends_at_settings = "east"
    world.pass_ms(SETTINGS_MS + REFRESH_MS)
    assert world.cut_off == {"east"}

    # Meanwhile the source is waited for, address by address.
    world.link("orders", "west")
    world.pass_ms(REFRESH_MS)
    assert world.row()["phase"] is PartitionPhase.FOLLOWING

    # The first request that is not answered is the last one of its round.
    world.pass_ms(source_cluster.REQUEST_TIMEOUT_MS + UNREACHABLE_MS)
    for topic in topics:
        row = world.row(topic)
        assert row["phase"] is PartitionPhase.WAITING
        assert "east does not answer" in row["detail"]
    world.pass_ms(2 * link_manager.PATIENCE_MS)
    assert [it for it in world.warnings if "source east cannot be used" in it]

    world.cut_off, world.ends_at_settings = set(), None
    world.pass_ms(UNREACHABLE_MS + REFRESH_MS)
    assert {world.row(topic)["phase"] for topic in topics} == {PartitionPhase.FOLLOWING}


def test_settings_are_followed_although_those_of_one_topic_are_hidden(world):
    world.hidden.add("secret")
    for topic in ("a", "secret", "z"):
        world.link(topic, "east")
    world.pass_ms(SETTINGS_MS + REFRESH_MS)
    followed = [it for it, overrides in world.overrides.items() if "retention.ms" in overrides]
    assert followed == ["a", "z"]
    world.pass_ms(2 * link_manager.PATIENCE_MS)
    [warning] = world.warnings
    assert "the configs of secret: TOPIC_AUTHORIZATION_FAILED" in warning


def test_links_of_a_source_that_is_cut_off_fail_over_meanwhile(world, monkeypatch):
    prepared = []

    async def prepare(linked):
        prepared.append(linked.partition.topic_partition.topic)
        linked.move_to(PartitionPhase.READY)

    monkeypatch.setattr(world.manager, "_prepare", prepare)
    world.cut_off.add("east")
    world.link("orders", "east")
    # A tool removes the configs of the link too early.
    world.overrides["orders"] = {}
    world.manager.on_topic_change("orders")
    world.pass_ms(REFRESH_MS)
    assert prepared == ["orders"]
