"""Clients of brokers without ApiVersions: an old broker is recognized by what it does."""

import struct

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.client.old_brokers import OldRelease, VersionFallback
from kctl.client.router import Router
from kctl.errors import TimedOutError, UnreachableError, UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError
from kctl.protocol.framing import FrameBuffer
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.testing.scripted_broker import SILENCE, ScriptedBroker

# The last API of each release, and whether an unknown API closes the connection.
LAST_APIS = {"0.8.0": (3, True), "0.8.1": (9, True), "0.8.2": (12, True), "0.9.0": (16, False)}
ANSWERS = {3: bytes(8), 9: bytes(4), 10: struct.pack(">hih4si", 0, 0, 4, b"host", 1),
           12: bytes(2), 16: bytes(6)}  # fmt: skip


class OldBroker:
    """Answers what its release knows with empty answers; closes, or ignores, what it does not."""

    def __init__(self, loop, release):
        self.last_api, self.closes = LAST_APIS[release]
        # APIs received, per connection.
        self.connections = []
        # After so many connections nothing listens.
        self.dies_after = None
        self._listener = loop.runtime.network.listen("127.0.0.1", 0, self._accept)
        self.address = "127.0.0.1", self._listener.port

    def close(self):
        self._listener.close()

    def _accept(self, transport):
        self.connections.append([])
        if len(self.connections) == self.dies_after:
            self.close()
        return OldConnection(self, transport, self.connections[-1])


class OldConnection:
    def __init__(self, broker, transport, received):
        self.broker, self.transport, self.received = broker, transport, received
        self.frames = FrameBuffer()
        self.get_buffer = self.frames.get_buffer

    def buffer_updated(self, count):
        self.frames.buffer_updated(count)
        while (frame := self.frames.next_frame()) is not None:
            api, _, correlation_id = struct.unpack_from(">hhi", frame)
            self.received.append(api)
            if api <= self.broker.last_api:
                body = ANSWERS[api]
                self.transport.send([struct.pack(">ii", 4 + len(body), correlation_id) + body])
            elif self.broker.closes:
                self.transport.close()
                break
        self.frames.release()

    def connection_lost(self, error):
        pass


@pytest.fixture
def old_broker(loop):
    brokers = []

    def make(release):
        brokers.append(OldBroker(loop, release))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


def connect(loop, broker, **properties):
    settings = {key.replace("_", "."): value for key, value in properties.items()}
    return AdminClient.connect(loop.runtime, [broker.address], 10_000, settings, reads_only=True)


@pytest.mark.parametrize("release", LAST_APIS)
def test_the_release_of_an_old_broker_is_found(loop, old_broker, release):
    admin = connect(loop, old_broker(release))
    assert loop.run(admin.topics.list_topics()) == []
    with pytest.raises(ApiError, match=rf"\(Kafka {release}\) does not know DescribeConfigs"):
        loop.run(admin.router.send_to_any(ApiKey.DESCRIBE_CONFIGS.request_class()))
    versions = OldRelease(release).versions("x")
    assert loop.run(admin.router.max_version(ApiKey.FETCH)) == versions.pick(ApiKey.FETCH)
    admin.close()


def test_a_broker_that_dies_while_it_is_probed_is_not_an_old_one(loop, old_broker):
    """Found by simulation: its connections closed where an old broker closes them, and clients
    sent it requests of Kafka 0.9 for twenty minutes."""
    broker = old_broker("0.9.0")
    broker.closes, broker.dies_after = True, 2
    admin = connect(loop, broker)
    with pytest.raises(UnreachableError):
        loop.run(admin.topics.list_topics())
    assert broker.connections[:2] == [
        [ApiKey.API_VERSIONS], [ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS],
    ]  # fmt: skip
    assert admin.router._opener._releases == {}
    admin.close()


def test_the_release_is_remembered_for_the_next_connection(loop, old_broker):
    broker = old_broker("0.8.2")
    admin = connect(loop, broker)
    loop.run(admin.topics.list_topics())
    (channel,) = admin.router._channels.values()
    channel.close()
    before = len(broker.connections)
    loop.run(admin.router.refresh(None))
    assert broker.connections[before:] == [[ApiKey.METADATA]]
    admin.close()


def test_a_setting_names_the_release(loop, old_broker):
    broker = old_broker("0.8.2")
    admin = connect(loop, broker, broker_version_fallback="0.8.2.2")
    loop.run(admin.topics.list_topics())
    assert broker.connections == [[ApiKey.API_VERSIONS], [ApiKey.METADATA]]
    admin.close()


def test_without_version_requests_nothing_unknown_is_sent(loop, old_broker):
    broker = old_broker("0.9.0")
    admin = connect(loop, broker, api_version_request="false", broker_version_fallback="0.9.0")
    loop.run(admin.topics.list_topics())
    assert broker.connections == [[ApiKey.METADATA]]
    admin.close()


def test_a_broker_of_0_8_1_is_the_coordinator_of_every_group(loop, old_broker):
    admin = connect(loop, old_broker("0.8.1"))
    assert loop.run(admin.offsets.committed("g", [])) == {}
    (group,) = loop.run(admin.groups.describe(["g"]))
    assert (group.state, group.members) == ("Unknown", [])
    admin.close()


def test_a_new_broker_gets_one_connection_and_one_request_first(loop, make_broker):
    broker = make_broker()
    router = Router(loop.runtime, [broker.address])
    loop.run(router.send_to_any(MetadataRequest(topics=[])))
    assert broker.connections_accepted == 1
    assert [it.api_key for it in broker.requests()] == [ApiKey.API_VERSIONS, ApiKey.METADATA]
    router.close()


@pytest.mark.slow
def test_a_slow_new_broker_is_not_an_old_one(loop, make_broker):
    """Its answer to the first connection comes late; on the second it answers ApiVersions."""
    broker = make_broker()
    broker.answer(ApiKey.LIST_GROUPS, ApiKey.LIST_GROUPS.response_class())
    answers = iter([SILENCE])
    broker.answer(ApiKey.API_VERSIONS, lambda it: next(answers, None) or broker._api_versions(it))
    router = Router(loop.runtime, [broker.address], timeout_ms=3_000)
    with pytest.raises(TimedOutError):
        loop.run(router.refresh(None))
    assert {it.api_version for it in broker.requests(ApiKey.LIST_GROUPS)} == {0}
    loop.run(router.refresh(None))
    assert loop.run(router.max_version(ApiKey.METADATA)) == ApiKey.METADATA.max_version
    router.close()


def test_a_new_broker_that_drops_the_first_connection_is_not_an_old_one(loop, make_broker):
    broker = make_broker()
    broker.answer(ApiKey.LIST_GROUPS, ApiKey.LIST_GROUPS.response_class())
    broker.hang_up(ApiKey.API_VERSIONS)
    router = Router(loop.runtime, [broker.address])

    def answer_from_now_on(request):
        broker._scripts.pop(ApiKey.API_VERSIONS, None)
        return ApiKey.LIST_GROUPS.response_class()

    broker.answer(ApiKey.LIST_GROUPS, answer_from_now_on)
    with pytest.raises(UnreachableError, match="lost the connection"):
        loop.run(router.refresh(None))
    loop.run(router.refresh(None))
    assert loop.run(router.max_version(ApiKey.METADATA)) == ApiKey.METADATA.max_version
    router.close()


def test_a_server_that_closes_every_connection_is_unreachable(loop):
    broker = ScriptedBroker(loop.runtime, versions={ApiKey.API_VERSIONS: (0, 3)}).start()
    broker.hang_up(ApiKey.API_VERSIONS)
    router = Router(loop.runtime, [broker.address])
    with pytest.raises(UnreachableError, match="lost the connection"):
        loop.run(router.refresh(None))
    router.close()
    broker.stop()


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.9.0.1", "0.9.0"), ("0.9", "0.9.0"), ("0.8.2.2", "0.8.2"), ("0.8.1", "0.8.1"),
     ("0.8", "0.8.0"), ("0.10.2.2", None), ("2.7.2", None)],
)  # fmt: skip
def test_a_version_stands_for_its_release(text, release):
    found = VersionFallback.of({"broker.version.fallback": text}).release
    assert (found and found.value) == release


@pytest.mark.parametrize(
    "settings",
    [{"broker.version.fallback": "0.7.2"}, {"broker.version.fallback": "old"},
     {"api.version.request": "perhaps"}, {"api.version.request": "false"},
     {"api.version.request": "false", "broker.version.fallback": "0.10.0"}],
)  # fmt: skip
def test_settings_that_name_no_release_are_refused(settings):
    with pytest.raises(UsageError):
        VersionFallback.of(settings)
