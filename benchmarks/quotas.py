"""Byte quotas over sockets: what a producer and a consumer get under one, beside a free client.

    python -m benchmarks.quotas [--apache] [--seconds 55] [--quota 1000000]

Three clients on one broker. A producer and a consumer ask for as much as they can, each under a
quota; they pause for the throttle time of each response, as clients since KIP-219 do. A free client
produces one record each 5 ms: alone, and beside the two. Rates are of bytes as the quota counts
them: whole requests of the producer, whole responses to the consumer. The goal is 0.98 to 1.02.

A quota looks back 11 windows of a second and lets 10 seconds' worth pass at once, so that a client
that begins at full speed gets bursts 11 seconds apart, from Apache Kafka as well. The clients
therefore keep to the quota themselves for WARM_UP_S, and are then as fast as they may, SETTLE_S
before the measurement begins. Even then Kafka's arithmetic lets up to two seconds' worth pass
whenever a window goes, so that a part of 30 s differs by some percent with its phase
(tests/broker/test_sampled_rate.py simulates it): measure five times the windows. With --apache it
takes less than four minutes.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

from benchmarks.servers import ApacheKafka, Kctl, Server, zookeeper
from kctl.protocol.messages import alter_client_quotas as quotas
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.protocol.schema import Message
from kctl.records.builder import build_batch
from kctl.records.record import Record
from tests.support.broker_client import BrokerClient

PRODUCE_VERSION, FETCH_VERSION = 8, 11
# A request is this share of what the quota allows in a second.
PRODUCER_SHARE, CONSUMER_SHARE = 100, 20
# All windows that a quota looks back, and as many again.
WARM_UP_S = 12.0
SETTLE_S = 11.0
ALONE_S = 4.0
# Of the quota.
GOAL = (0.98, 1.02)
PART_S = 30.0
FREE_EVERY_S = 0.005


class CountingClient(BrokerClient):
    """A client that knows the sizes of its last request and response."""

    sent = received = 0

    def exchange(self, message: Message, version: int) -> Message:
        """Return the response; sizes are those after the four bytes of a frame's length."""
        _, parts = self._connection.send_request(message, version)
        data = b"".join(bytes(part) for part in parts)
        self.sent = len(data) - 4
        self._socket.sendall(data)
        self.received = -4
        while (event := self._connection.next_event()) is None:
            count = self._socket.recv_into(self._connection.get_buffer())
            if not count:
                raise ConnectionError("the broker closed the connection")
            self.received += count
            self._connection.buffer_updated(count)
        return event.body


def say(text: str) -> None:
    """Print a line of results."""
    print(text, flush=True)  # noqa: T201


def produce_request(topic: str, size: int) -> ProduceRequest:
    """A request with one record of `size` bytes."""
    # Retention would delete older records while they are read.
    now_ms = int(time.time() * 1000)  # noqa: TID251 - of the broker's own clock
    batch = build_batch([Record(0, now_ms, None, b"x" * size)])
    data = PartitionProduceData(partition_index=0, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=9_000, topics=[TopicProduceData(name=topic, partitions=[data])]
    )


def fetch_request(topic: str, size: int) -> FetchRequest:
    """A request for the first `size` bytes."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    return FetchRequest(
        replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=size,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )  # fmt: skip


def set_quota(address: str, client_id: str, key: str, rate: float) -> None:
    """Limit a client id."""
    entity = quotas.EntityData(entity_type="client-id", entity_name=client_id)
    op = quotas.OpData(key=key, value=rate, remove=False)
    entry = quotas.EntryData(entity=[entity], ops=[op])
    with BrokerClient(address) as client:
        client.ask(quotas.AlterClientQuotasRequest(entries=[entry]))


class Limited(threading.Thread):
    """A client that keeps to a rate for WARM_UP_S, and then asks as fast as the broker lets it."""

    def __init__(
        self, ask: Callable[[], tuple[int, int]], quota: float, stop: threading.Event
    ) -> None:
        """Take what asks once, and returns bytes and the pause in milliseconds."""
        super().__init__()
        self._ask, self._quota, self._stopped = ask, quota, stop
        # (time, bytes) of each response.
        self.responses: list[tuple[float, int]] = []

    def run(self) -> None:
        """Ask until `stop` is set."""
        began, total = time.perf_counter(), 0
        while not self._stopped.is_set():
            count, pause_ms = self._ask()
            now = time.perf_counter()
            self.responses.append((now, count))
            total += count
            pause_s = pause_ms / 1000
            if now - began < WARM_UP_S:
                pause_s = max(pause_s, began + total / self._quota - now)
            if pause_s > 0:
                self._stopped.wait(pause_s)

    def rate(self, begin: float, end: float) -> float:
        """Bytes per second between the first and the last response of a time."""
        within = [it for it in self.responses if begin <= it[0] <= end]
        return sum(count for _, count in within[1:]) / (within[-1][0] - within[0][0])


class Free:
    """The client without a quota."""

    def __init__(self, address: str, topic: str) -> None:
        self._client = BrokerClient(address, "free")
        self._request = produce_request(topic, 100)
        self.paused = 0

    def run(self, seconds: float) -> list[float]:
        """Return the milliseconds of each request, sorted."""
        took = []
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            response = self._client.ask(self._request, PRODUCE_VERSION)
            took.append((time.perf_counter() - began) * 1000)
            assert isinstance(response, ProduceResponse)
            self.paused += response.throttle_time_ms > 0
            time.sleep(max(0.0, began + FREE_EVERY_S - time.perf_counter()))
        return sorted(took)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def limited_producer(address: str, topic: str, size: int) -> Callable[[], tuple[int, int]]:
    """Return what produces once."""
    client, request = CountingClient(address, "producer"), produce_request(topic, size)

    def ask() -> tuple[int, int]:
        response = client.exchange(request, PRODUCE_VERSION)
        assert isinstance(response, ProduceResponse)
        assert not response.responses[0].partitions[0].error_code
        return client.sent, response.throttle_time_ms

    return ask


def limited_consumer(address: str, topic: str, size: int) -> Callable[[], tuple[int, int]]:
    """Return what fetches once; an empty response of a paused client counts nothing."""
    client, request = CountingClient(address, "consumer"), fetch_request(topic, size)

    def ask() -> tuple[int, int]:
        response = client.exchange(request, FETCH_VERSION)
        assert isinstance(response, FetchResponse)
        if not response.responses:
            return 0, response.throttle_time_ms
        assert not response.responses[0].partition_responses[0].error_code
        return client.received, response.throttle_time_ms

    return ask


def starts(begin: float, end: float) -> list[float]:
    """Return the begin of each part of PART_S, a second apart."""
    return [begin + it for it in range(int(end - begin - PART_S) + 1)] if end > begin else []


def measure(server: Server, quota: float, seconds: float) -> None:
    """Print the figures of one broker."""
    for topic in ("limited", "read", "free"):
        server.create_topic(topic)
    size, read_size = int(quota / PRODUCER_SHARE), int(quota / CONSUMER_SHARE)
    with BrokerClient(server.address) as writer:
        for _ in range(2):
            writer.ask(produce_request("read", read_size - 500), PRODUCE_VERSION)
    set_quota(server.address, "producer", "producer_byte_rate", quota)
    set_quota(server.address, "consumer", "consumer_byte_rate", quota)
    stop = threading.Event()
    clients = {
        "producer": Limited(limited_producer(server.address, "limited", size), quota, stop),
        "consumer": Limited(limited_consumer(server.address, "read", read_size), quota, stop),
    }
    with closing(Free(server.address, "free")) as free:
        alone = free.run(ALONE_S)
        for client in clients.values():
            client.start()
        time.sleep(WARM_UP_S + SETTLE_S)
        begin = time.perf_counter()
        beside = free.run(seconds)
        end = time.perf_counter()
        stop.set()
        for client in clients.values():
            client.join()
            assert client.responses
    say(f"{server.title}, {seconds:g} s under {quota:g} bytes/s")
    for name, client in clients.items():
        share = client.rate(begin, end) / quota
        verdict = "within" if GOAL[0] <= share <= GOAL[1] else "OUTSIDE"
        say(f"  {name}: {share:.4f} of the quota, {verdict} {GOAL[0]} to {GOAL[1]}")
        parts = [client.rate(it, it + PART_S) / quota for it in starts(begin, end)]
        if parts:
            say(f"    in {PART_S:g} s of it: {min(parts):.4f} to {max(parts):.4f}")
    for name, took in (("alone", alone), ("beside them", beside)):
        half, most = took[len(took) // 2], took[int(len(took) * 0.99)]
        say(f"  free client {name}: {len(took)} requests, p50 {half:.2f} ms, p99 {most:.2f} ms")
    verdict = "as it should" if not free.paused else "AGAINST THE GOAL"
    say(f"  free client paused: {free.paused} times, {verdict}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--apache", action="store_true", help="Apache Kafka 2.7.2 as well")
    parser.add_argument("--seconds", type=float, default=55)
    parser.add_argument("--quota", type=float, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with zookeeper(directory / "zookeeper") if options.apache else nullcontext("") as address:
            servers: list[Server] = [Kctl(directory / "kctl")]
            if options.apache:
                servers.append(ApacheKafka(directory / "apache", address))
            for server in servers:
                server.start()
                try:
                    measure(server, options.quota, options.seconds)
                finally:
                    server.stop()


if __name__ == "__main__":
    main()
