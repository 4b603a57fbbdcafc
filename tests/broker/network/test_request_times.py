"""Where the time of requests goes, on a server whose clock the test advances; and the request log.

The handler, a timer and a client that does not read take their time; each is in one part only.
"""

import json
import re

import pytest

from kctl.broker.client_quotas import ClientQuotaEntity
from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.loggers import REQUESTS, broker_levels
from kctl.broker.network.server import SocketServer
from kctl.broker.request_log import RequestLog
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kctl.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kctl.runtime.log_levels import Loggers, LogLevel
from tests.support.builds import needs_sources
from tests.support.raw_requests import RequestWriter
from tests.support.real_loop import connect, real_loop

SERVED = {int(api): (0, api.max_version) for api in ApiKey}
MS = 1_000_000
FIELDS = [
    "totalTime", "requestQueueTime", "localTime", "remoteTime", "throttleTime",
    "responseQueueTime", "sendTime", "securityProtocol", "principal", "listener",
    "clientInformation",
]  # fmt: skip


@pytest.fixture
def loop():
    with real_loop() as it:
        yield it


class Broker:
    """Does for each Heartbeat what its group id asks for, on a clock that only the test moves."""

    def __init__(self, loop, *, slow_ms=None, level=LogLevel.DEBUG):
        self.now_ns = 0
        self.lines, self.fields = [], []
        self.handled = []
        self.loop = loop
        self.server = SocketServer(
            loop.runtime, [Endpoint("127.0.0.1", 0, "X")], SERVED, self.handle,
            fast_paths={b"\0\0": lambda *_: False},
        )  # fmt: skip
        self.server.now_ns = lambda: self.now_ns
        self.levels = broker_levels({REQUESTS: level})
        loggers = Loggers(self, self.levels)
        RequestLog(loggers, lambda: self.now_ns // MS, slow_ms).attach(self.server)
        self.port = self.server.start()[0].port
        self.writer = RequestWriter("x")

    def write(self, _level, message, _detail="", *, logger, fields):
        self.lines.append(message)
        self.fields.append(fields)

    def handle(self, request):
        self.handled.append(request)
        if request.api_key is ApiKey.API_VERSIONS:
            request.reply(ApiVersionsResponse())
            return
        steps = json.loads(request.body.group_id)
        self.now_ns += steps.get("local", 0) * MS
        request.throttle_ms = steps.get("throttle", 0)

        def answer():
            self.now_ns += steps.get("remote", 0) * MS
            request.reply(HeartbeatResponse())

        if "remote" in steps:
            self.loop.runtime.scheduler.call_later(0, answer)
        elif "bytes" in steps:
            member = JoinGroupResponseMember(metadata=bytes(steps["bytes"]))
            request.reply(JoinGroupResponse(members=[member]))
        else:
            answer()
            # After its response a handler costs the client nothing.
            self.now_ns += steps.get("after", 0) * MS

    def frame(self, **steps):
        text = json.dumps(steps)
        if "bytes" in steps:
            request = JoinGroupRequest(
                group_id=text, session_timeout_ms=1, member_id="", protocol_type="", protocols=[]
            )
            return self.writer.frame(request, 3)
        return self.writer.frame(HeartbeatRequest(group_id=text, generation_id=1, member_id=""), 3)


class Counter:
    """Notes what it counts, in milliseconds."""

    def __init__(self, broker):
        self.at_once, self.answers, self.timed = [], [], []
        broker.server.count_requests(self)

    def answered_at_once(self, request, response, took_ns):
        self.at_once.append((type(response), took_ns // MS))

    def answered(self, request, response):
        self.answers.append(type(response))

    def sent(self, request, times):
        self.timed.append(tuple(it // MS for it in times.durations_ns()))


@pytest.fixture
def counted(loop):
    broker = Broker(loop, level=LogLevel.WARN)
    return broker, Counter(broker), connect(loop, broker.port, receive_buffer=1 << 18)


def test_a_request_that_is_answered_at_once_is_counted_without_times(counted):
    broker, counter, peer = counted
    for steps in ({"local": 3, "after": 50}, {"local": 2}):
        peer.send(broker.frame(**steps))
        peer.receive_frame()
    assert counter.at_once == [(HeartbeatResponse, 3), (HeartbeatResponse, 2)]
    assert not counter.answers
    assert [it.times for it in broker.handled] == [None, None]
    assert broker.handled[1].received_ms == 53


def test_a_counted_request_that_waits_has_times_since_its_arrival(counted):
    broker, counter, peer = counted
    peer.send(broker.frame(local=2, remote=5))
    peer.receive_frame()
    assert counter.timed == [(7, 0, 2, 5, 0, 0)]
    assert counter.answers == [HeartbeatResponse]
    assert not counter.at_once


def test_a_counted_request_whose_client_does_not_read_has_times(counted, loop):
    broker, counter, peer = counted
    peer.send(broker.frame(bytes=16 << 20, local=1))
    loop.until(lambda: broker.handled)
    loop.turns()
    assert counter.answers == [JoinGroupResponse]
    assert not counter.timed
    broker.now_ns += 9 * MS
    peer.receive_frame()
    loop.until(lambda: counter.timed)
    assert counter.timed == [(10, 0, 1, 0, 0, 9)]
    assert not counter.at_once


def test_a_counted_request_whose_client_has_to_pause_has_times(counted, loop):
    broker, counter, peer = counted
    peer.send(broker.frame(local=1, throttle=600_000))
    peer.receive_frame()
    loop.until(lambda: counter.timed)
    assert counter.timed == [(1, 0, 1, 0, 0, 0)]
    assert not counter.at_once


def test_a_counted_request_whose_handler_fails_is_not_counted(counted, loop):
    broker, counter, peer = counted
    peer.send(broker.writer.frame(HeartbeatRequest(group_id="?", generation_id=1, member_id=""), 3))
    peer.wait_for_close()
    assert len(broker.handled) == 1
    assert (counter.at_once, counter.answers, counter.timed) == ([], [], [])


def test_every_counted_request_has_times_while_others_watch(counted):
    broker, counter, peer = counted
    for level in (LogLevel.DEBUG, LogLevel.WARN):
        broker.levels.change({REQUESTS: level})
        peer.send(broker.frame(local=1))
        peer.receive_frame()
    assert counter.timed == [(1, 0, 1, 0, 0, 0)]
    assert counter.at_once == [(HeartbeatResponse, 1)]
    assert len(broker.lines) == 1


def times(fields):
    return {key: value for key, value in fields.items() if key.endswith("Time") and value}


def test_each_part_of_the_time_is_where_it_passed(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    for steps in ({"local": 2, "remote": 5}, {"local": 3, "after": 50}, {}):
        peer.send(broker.frame(**steps))
        peer.receive_frame()
    assert [times(it) for it in broker.fields] == [
        {"totalTime": 7.0, "localTime": 2.0, "remoteTime": 5.0},
        {"totalTime": 3.0, "localTime": 3.0},
        {},
    ]
    assert [it.partition(";")[2].split(":")[0] for it in broker.lines] == ["totalTime"] * 3


def test_a_response_that_its_client_does_not_read_takes_time_to_send(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port, receive_buffer=1 << 18)
    peer.send(broker.frame(bytes=16 << 20))
    loop.until(lambda: broker.handled)
    loop.turns()
    assert not broker.lines
    broker.now_ns += 9 * MS
    peer.receive_frame()
    loop.until(lambda: broker.lines)
    assert [times(it) for it in broker.fields] == [{"totalTime": 9.0, "sendTime": 9.0}]


def test_the_pause_of_a_client_is_no_time_to_send(loop):
    broker = Broker(loop)
    quotas = ClientQuotas()
    quotas.change(ClientQuotaEntity(None, "x"), {"producer_byte_rate": 1.0})
    broker.server.use_client_quotas(quotas)
    peer = connect(loop, broker.port, receive_buffer=1 << 18)
    peer.send(broker.frame(bytes=16 << 20, throttle=600_000))
    loop.until(lambda: broker.handled)
    peer.receive_frame()
    loop.until(lambda: broker.lines)
    assert [times(it) for it in broker.fields] == [{"throttleTime": 600_000}]


def test_a_client_that_goes_before_it_has_its_response_has_one_line(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port, receive_buffer=1 << 18)
    peer.send(broker.frame(bytes=16 << 20))
    loop.until(lambda: broker.handled)
    loop.turns()
    peer.reset()
    loop.until(lambda: broker.lines)
    loop.turns()
    assert len(broker.lines) == 1


def test_a_line_has_the_fields_of_apache_kafka_in_its_order(loop):
    broker = Broker(loop)
    peer = connect(loop, broker.port)
    hello = ApiVersionsRequest(client_software_name="a-library", client_software_version="1.2.3")
    peer.send(broker.writer.frame(hello, 3))
    peer.receive_frame()
    peer.send(broker.frame(local=1))
    peer.receive_frame()
    first, second = broker.lines
    unknown = "clientInformation:ClientInformation(softwareName=unknown, softwareVersion=unknown)"
    known = "clientInformation:ClientInformation(softwareName=a-library, softwareVersion=1.2.3)"
    assert first.endswith(unknown)
    assert second.endswith(known)
    assert re.findall(r"[;,](\w+):", second) == FIELDS
    assert re.fullmatch(
        r"Completed request:RequestHeader\(apiKey=HEARTBEAT, apiVersion=3, clientId=x, "
        r"correlationId=1\) from connection \S+;totalTime:1\.0,requestQueueTime:0\.0,localTime:1\.0"
        r",remoteTime:0\.0,throttleTime:0,responseQueueTime:0\.0,sendTime:0\.0,.*",
        second,
    )


def test_requests_are_measured_only_while_they_are_logged(loop):
    broker = Broker(loop, level=LogLevel.WARN)
    peer = connect(loop, broker.port)

    def send():
        peer.send(broker.frame(local=1))
        peer.receive_frame()
        return broker.handled[-1].times is not None

    assert not send()
    broker.levels.change({REQUESTS: LogLevel.DEBUG})
    assert send()
    assert not broker.server.fast_paths
    broker.levels.change({REQUESTS: LogLevel.WARN})
    assert not send()
    assert broker.server.fast_paths
    assert len(broker.lines) == 1


def test_a_slow_request_is_one_whose_handler_runs_for_long(loop):
    broker = Broker(loop, slow_ms=5, level=LogLevel.WARN)
    peer = connect(loop, broker.port)
    for steps in ({"local": 4, "remote": 100}, {"local": 5}):
        peer.send(broker.frame(**steps))
        peer.receive_frame()
    (line,) = broker.lines
    assert "took the broker 5.0 ms, 5.0 ms with waits" in line


@needs_sources
def test_a_request_quota_counts_the_time_that_was_measured_for_others(loop):
    broker = Broker(loop)
    quotas = ClientQuotas()
    quotas.change(ClientQuotaEntity(None, "x"), {"request_percentage": 1.0})
    counted = []
    count = quotas.answered

    def answered(request, frame_bytes, busy_ns, now_ms):
        counted.append(busy_ns)
        return count(request, frame_bytes, busy_ns, now_ms)

    quotas.answered = answered
    broker.server.use_client_quotas(quotas)
    reads = []
    now = broker.server.now_ns
    broker.server.now_ns = lambda: (reads.append(1), now())[1]
    peer = connect(loop, broker.port)
    peer.send(broker.frame(local=3))
    peer.receive_frame()
    with_log = len(reads)
    assert counted == [3 * MS]
    # Without a log the quota has its requests measured, in the same way.
    broker.levels.change({REQUESTS: LogLevel.WARN})
    peer.send(broker.frame(local=4))
    peer.receive_frame()
    assert counted == [3 * MS, 4 * MS]
    assert len(reads) == 2 * with_log
