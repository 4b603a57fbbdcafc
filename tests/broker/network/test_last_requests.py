"""What arrived before a connection ends is served: the peer closes or resets, or the server stops.

Apache Kafka keeps a closed channel until what it received is processed
(`Selector.maybeReadFromClosingChannel`), but drops what is queued when the broker stops
(`RequestChannel.clear`); here both are served.
"""

import socket
import ssl
from collections import deque

import pytest

from kctl.broker.client_quotas import ClientQuotaEntity
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.network.server import SocketServer
from kctl.configs.listener_security import SaslListener, TlsListener
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.fetch import FetchRequest, FetchResponse
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.produce import ProduceResponse
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.sasl.plain import plain_message
from kctl.tls.principal_rules import DEFAULT_RULES, PrincipalRules
from kctl.tls.settings import TlsSettings
from tests.support.certificates import TestCertificates
from tests.support.raw_requests import RequestWriter, produce_request
from tests.support.real_loop import connect

SERVED = {int(api): (0, api.max_version) for api in ApiKey}
# More than the decrypted bytes of one turn, in frames that need buffers of their own.
LARGE = 60_000


class Broker:
    """Requests wait in `requests`, or are answered at once and counted in `appended`."""

    def __init__(self, loop, protocol="PLAINTEXT", *, is_waiting=False, certificates=None):
        self.loop = loop
        self.requests = deque()
        self.appended = []
        self.is_waiting = is_waiting
        options = {}
        if protocol.startswith("SASL"):
            listener = SaslListener(("PLAIN",), {"alice": "secret"}, {}, 10)
            options.update(sasl={protocol: listener}, credentials=object())
        if certificates is not None:
            settings = TlsSettings.of(certificates.broker_settings())
            options.update(tls={protocol: TlsListener(settings, PrincipalRules(DEFAULT_RULES))})
        self.server = SocketServer(
            loop.runtime, [Endpoint("127.0.0.1", 0, protocol, protocol)], SERVED, self.handle,
            **options,
        )  # fmt: skip
        self.port = self.server.start()[0].port
        self.writer = RequestWriter()

    def handle(self, request):
        if self.is_waiting:
            self.requests.append(request)
        else:
            self.answer(request)

    def answer(self, request):
        if request.api_key is ApiKey.PRODUCE:
            topic = request.body.topics[0].name
            self.appended.append(topic)
            # A client that is called so has to pause.
            request.throttle_ms = int(topic) if topic.isdigit() else 0
            request.reply(None if request.body.acks == 0 else ProduceResponse(responses=[]))
        else:
            request.reply(
                FetchResponse() if request.api_key is ApiKey.FETCH else HeartbeatResponse()
            )

    def next_request(self):
        self.loop.until(lambda: self.requests)
        return self.requests.popleft()

    def produce(self, *topics, size=0, acks=0):
        return b"".join(
            self.writer.frame(produce_request(b"x" * size, acks=acks, topic=it), 7) for it in topics
        )

    def is_rid_of_all(self):
        server = self.server
        self.loop.until(lambda: server.counters.connections_accepted > 0)
        self.loop.until(lambda: server.connection_count == 0)
        return self.server.backlog.bytes == 0

    def use_quotas(self):
        quotas = ClientQuotas()
        quotas.change(ClientQuotaEntity(None, "another"), {"producer_byte_rate": 1.0})
        self.server.use_client_quotas(quotas)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return TestCertificates(tmp_path_factory.mktemp("tls"))


def test_a_server_that_stops_serves_what_arrived_behind_the_request_in_flight(loop):
    broker = Broker(loop, is_waiting=True)
    peer = connect(loop, broker.port)
    peer.send(broker.produce("a", "b", "c"))
    first = broker.next_request()
    loop.turns()
    closed = broker.server.close()
    broker.is_waiting = False
    broker.answer(first)
    loop.wait(closed)
    assert broker.appended == ["a", "b", "c"]


def test_a_server_that_stops_serves_what_waits_for_its_turn(loop):
    broker = Broker(loop)
    # Each request takes a whole turn.
    spent = []
    broker.server.is_turn_spent = lambda: bool(spent.append(True)) or len(spent) < 6
    answered_by_then = []

    def close():
        answered_by_then.append(len(broker.appended))
        broker.server.close()

    answer = broker.answer

    def answer_and_close(request):
        answer(request)
        if len(broker.appended) == 1:
            loop.scheduler.call_soon(close)

    broker.answer = answer_and_close

    peer = connect(loop, broker.port)
    peer.send(broker.produce(*"abcdef"))
    assert broker.is_rid_of_all()
    assert broker.appended == list("abcdef")
    assert answered_by_then == [1]


def test_a_server_that_stops_ends_pauses_and_serves_what_arrived_in_them(loop):
    broker = Broker(loop)
    broker.use_quotas()
    peer = connect(loop, broker.port)
    # The second one would pause its client as well.
    peer.send(broker.produce("600000", "600001", "c"))
    loop.until(lambda: broker.appended)
    loop.turns()
    assert broker.appended == ["600000"]
    loop.wait(broker.server.close())
    assert broker.appended == ["600000", "600001", "c"]


def test_a_server_that_stops_does_not_wait_for_the_rest_of_a_request(loop):
    broker = Broker(loop)
    peers = [connect(loop, broker.port) for _ in range(2)]
    for peer, size in zip(peers, (0, LARGE), strict=True):
        peer.send(broker.produce("a") + broker.produce("half", size=size)[:-1])
    loop.until(lambda: len(broker.appended) == 2)
    loop.turns()
    loop.wait(broker.server.close(drain_ms=3_600_000))
    assert broker.appended == ["a", "a"]


def test_a_server_that_stops_closes_its_connections_in_several_turns(loop):
    broker = Broker(loop, is_waiting=True)
    peers = [connect(loop, broker.port) for _ in range(130)]
    loop.until(lambda: broker.server.connection_count == len(peers))
    closed = broker.server.close()
    leaving = broker.server._leaving
    assert len(leaving) == 130 - 64
    loop.wait(closed)
    assert not leaving


@pytest.mark.parametrize("is_in_flight", [True, False])
def test_what_arrived_before_a_reset_is_served(loop, is_in_flight):
    """A reset needs no malice: the client closes before it has read a response."""
    broker = Broker(loop, is_waiting=is_in_flight)
    broker.use_quotas()
    peer = connect(loop, broker.port)
    peer.send(broker.produce("20", "b", "c"))
    if is_in_flight:
        first = broker.next_request()
        loop.turns()
    else:
        loop.until(lambda: broker.appended)
        loop.turns()
    peer.reset()
    if is_in_flight:
        loop.turns(20)
        broker.is_waiting = False
        broker.answer(first)
    assert broker.is_rid_of_all()
    assert broker.appended == ["20", "b", "c"]


def test_a_reset_behind_a_request_that_waits_ends_the_connection(loop):
    broker = Broker(loop, is_waiting=True)
    peer = connect(loop, broker.port)
    peer.send(broker.writer.frame(FetchRequest(), 11) + broker.produce("a"))
    fetch = broker.next_request()
    peer.reset()
    assert broker.is_rid_of_all()
    assert fetch.is_abandoned
    assert not broker.appended


def test_a_connection_that_was_reset_ends_with_the_server(loop):
    broker = Broker(loop, is_waiting=True)
    peer = connect(loop, broker.port)
    peer.send(broker.produce("a", "b"))
    broker.next_request()
    loop.turns()
    peer.reset()
    loop.turns(20)
    assert broker.server.connection_count == 1
    # The first request never gets its answer.
    loop.wait(broker.server.close(drain_ms=1))
    assert broker.is_rid_of_all()


def test_a_pause_ends_before_a_close_loses_requests(loop):
    broker = Broker(loop)
    broker.use_quotas()
    peer = connect(loop, broker.port)
    peer.send(broker.produce("20", "30", "c"))
    peer.socket.close()
    assert broker.is_rid_of_all()
    assert broker.appended == ["20", "30", "c"]


def test_a_client_with_sasl_that_sends_everything_at_once_and_closes_loses_nothing(loop):
    broker = Broker(loop, "SASL_PLAINTEXT")
    broker.use_quotas()
    peer = connect(loop, broker.port)
    writer = broker.writer
    peer.send(
        writer.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + writer.frame(SaslAuthenticateRequest(auth_bytes=plain_message("alice", "secret")), 1)
        + broker.produce("20", "b", "c")
    )
    peer.socket.shutdown(socket.SHUT_WR)
    assert broker.is_rid_of_all()
    assert broker.appended == ["20", "b", "c"]


@pytest.mark.parametrize("is_notified", [True, False])
@pytest.mark.parametrize("is_paused", [True, False])
def test_a_client_with_tls_that_sends_and_closes_loses_nothing(
    loop, certificates, is_notified, is_paused
):
    broker = Broker(loop, "SSL", certificates=certificates)
    broker.use_quotas()
    peer = connect(loop, broker.port)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=certificates.ca_file)
    session = context.wrap_bio(received, sent, server_hostname="localhost")
    while True:
        try:
            session.do_handshake()
            break
        except ssl.SSLWantReadError:
            peer.send(sent.read())
            loop.until(lambda: peer.pull() or peer.received)
            received.write(peer.received)
            peer.received = b""
    topics = ["20" if is_paused else "a", *"bcdefgh"]
    session.write(broker.produce(*topics, size=LARGE))
    if is_notified:
        with pytest.raises(ssl.SSLWantReadError):
            session.unwrap()
    # With the end of the handshake, everything is there at once.
    peer.send(sent.read())
    peer.socket.shutdown(socket.SHUT_WR)
    assert broker.is_rid_of_all()
    assert broker.appended == topics


def test_clients_without_a_limit_keep_the_fast_paths(loop):
    offered = []
    quotas = ClientQuotas()
    quotas.change(ClientQuotaEntity(None, "limited"), {"producer_byte_rate": 1e9})
    broker = Broker(loop)
    broker.server.fast_paths[int(ApiKey.HEARTBEAT).to_bytes(2, "big")] = lambda frame, *_: bool(
        offered.append(bytes(frame[10:17]))
    )
    broker.server.use_client_quotas(quotas)
    peer = connect(loop, broker.port)
    lookups = []
    counts = quotas.counts
    quotas.counts = lambda *client: lookups.append(client) or counts(*client)

    def heartbeat(client_id, number=1):
        writer = RequestWriter(client_id=client_id)
        for _ in range(number):
            peer.send(writer.frame(HeartbeatRequest(group_id="g"), 1))
            peer.receive_frame()

    heartbeat("free-id", 5)
    assert (len(offered), len(lookups)) == (5, 1), "looked up once for a client id"
    heartbeat("limited", 5)
    assert (len(offered), len(lookups)) == (5, 2)
    heartbeat(None)
    heartbeat("")
    assert (len(offered), len(lookups)) == (7, 4)
    heartbeat("free-id")
    quotas.change(ClientQuotaEntity(None, "free-id"), {"request_percentage": 50.0})
    heartbeat("free-id")
    assert len(offered) == 8, "a quota that is set counts from the next request on"
    quotas.change(ClientQuotaEntity(None, "free-id"), {})
    heartbeat("free-id")
    assert len(offered) == 9
