"""A5, with Jafka in the place of Kafka 0.7: broken requests get the same answers from it and from
`kctl serve --kafka-0.7`, but for what is known to be Jafka's own or kctl's on purpose.

`KCTL_REQUESTS_07=20000` sends so many requests.
"""

import os
import socket
from collections import Counter
from random import Random

import pytest

from kctl.protocol.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    encode_request,
)
from kctl.records.message07 import message_set
from tests.protocol.mutations import mutate
from tests.serve.test_kafka07 import broker07
from tests.support.jafka import JafkaBroker, java_with_jafka

pytestmark = pytest.mark.slow
REQUESTS = int(os.environ.get("KCTL_REQUESTS_07", "1000"))
TOPIC = "t"
MESSAGES = [b"a" * size for size in range(40)]
LIMIT_S = 60
SIZE_MAX = 100_000
# Follows each request; its answer shows that the connection is still served.
PROBE_BYTES = 37
PROBE = encode_request(FetchRequest(TOPIC, 0, 0, PROBE_BYTES))
PROBE_ANSWER = (2 + PROBE_BYTES).to_bytes(4, "big") + b"\0\0" + message_set(MESSAGES)[:PROBE_BYTES]
INVALID_FETCH_SIZE = bytes.fromhex("00000002 0004")
# Requests that create and delete a topic, which Kafka 0.7 does not know.
JAFKAS_OWN = (b"\0\5", b"\0\6")
NO_ERROR = b"\0\0"
EMPTY = bytes.fromhex("00000002 0000")

# Where Jafka differs from Kafka 0.7 as it was recorded, or kctl from both on purpose.
NEGATIVE_SIZE = "kctl answers a negative fetch size with an error, Jafka with a broken header"
BY_TIME = "the offsets before a time, which files of different ages have"
PARTS = "the parts of a MULTIPRODUCE before a broken one: kctl keeps them, as Kafka 0.7 does"
NAMES = "names of topics that Kafka 0.7.2 refuses, and Jafka does not"
NAMELESS = "kctl stores nothing of a request with a name of negative length"


def exchange(port, data):
    """What comes back for `data` and a probe after it, until the server closes or all is said."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        found = b""
        try:
            client.sendall(data + PROBE)
            client.shutdown(socket.SHUT_WR)
            while more := client.recv(1 << 16):
                found += more
        except OSError:  # reset while it was sent, or before it was read
            pass
        return found


def sound_requests(number):
    """One request of each kind, as bytes; those that write have topics of their own."""
    offset = Random(number).randrange(3) * 10
    messages = message_set([b"one", b"two", b"three"])
    return {
        "fetch": encode_request(FetchRequest(TOPIC, 0, 0, 1000)),
        "multifetch": encode_request(
            MultiFetchRequest([FetchRequest(TOPIC, 0, it, 1000) for it in (0, offset)])
        ),
        "offsets": encode_request(
            OffsetsRequest(TOPIC, 0, (LATEST_TIME, EARLIEST_TIME)[number % 2], 10)
        ),
        "produce": encode_request(ProduceRequest(written(number), 0, messages)),
        "multiproduce": encode_request(
            MultiProduceRequest([ProduceRequest(written(number, "v"), 0, messages)] * 2)
        ),
    }


def written(number, prefix="w"):
    return f"{prefix}{number}"


def stored(port, kind, number):
    """What a request that writes has left in its topic."""
    topic = written(number, "w" if kind == "produce" else "v")
    return exchange(port, encode_request(FetchRequest(topic, 0, 0, SIZE_MAX)))


def has_refused_name(kind, request):
    """Whether a request that writes names a topic with a control character, a slash or bytes that
    are no UTF-8."""
    at = 8 if kind == "multiproduce" else 6
    while 0 < (size := int.from_bytes(request[at : at + 2], "big")) < len(request) - at:
        name = request[at + 2 : at + 2 + size].decode(errors="replace")
        if any(it < " " or it in "/\x7f\ufffd" or "\x7f" < it < "\xa0" for it in name):
            return True
        at += 2 + size + 4
        at += 4 + int.from_bytes(request[at : at + 4], "big")
    return False


def difference(kind, request, ours, theirs):
    """Why two answers differ; None: they agree as far as a client can rely on them."""
    if ours == theirs:
        return None
    if not ours.endswith(PROBE_ANSWER) and ours.startswith(theirs):
        # Both closed the connection; what Jafka had sent before is lost with a reset.
        return None
    if INVALID_FETCH_SIZE in ours and kind in ("fetch", "multifetch"):
        return NEGATIVE_SIZE
    if kind == "offsets" and ours[4:6] == theirs[4:6] == NO_ERROR:
        return BY_TIME
    if kind.endswith("produce") and has_refused_name(kind, request):
        return NAMES
    return "unknown"


def difference_of_logs(kind, ours, theirs):
    """Why what is stored differs; None: it does not."""
    if ours == theirs:
        return None
    empty = EMPTY + PROBE_ANSWER
    if kind == "multiproduce" and theirs == empty:
        return PARTS
    if kind == "multiproduce" and ours == empty:
        return NAMELESS
    return "unknown"


@pytest.fixture
def brokers(tmp_path):
    """kctl and Jafka, each with the same messages."""
    java = java_with_jafka()
    if java is None:
        pytest.skip("no Maven to fetch Jafka")
    jafka = JafkaBroker(java, tmp_path / "jafka")
    kctl = broker07(tmp_path / "kctl", "--no-zookeeper")
    try:
        found = []
        for it in (kctl, jafka):
            it.start()
            produced = encode_request(ProduceRequest(TOPIC, 0, message_set(MESSAGES)))
            assert exchange(it.port, produced) == PROBE_ANSWER
            found.append(exchange(it.port, sound_requests(0)["fetch"]))
        assert found[0] == found[1]
        yield kctl, jafka
    finally:
        for it in (kctl, jafka):
            it.kill()


def test_broken_requests_get_the_answers_of_jafka(brokers):
    kctl, jafka = brokers
    random = Random(5)
    seen = Counter()
    for number in range(REQUESTS // 5):
        for kind, request in sound_requests(number).items():
            broken = mutate(request, random)
            if broken[4:6] in JAFKAS_OWN:
                continue
            ours, theirs = (exchange(it.port, broken) for it in brokers)
            why = [difference(kind, broken, ours, theirs)]
            assert why != ["unknown"], (kind, broken.hex(), ours.hex(), theirs.hex())
            if kind.endswith("produce"):
                ours, theirs = (stored(it.port, kind, number) for it in brokers)
                why.append(difference_of_logs(kind, ours, theirs))
                assert why[1] != "unknown", (kind, broken.hex(), ours.hex(), theirs.hex())
            seen.update(why)
    assert set(seen) <= {None, NEGATIVE_SIZE, BY_TIME, NAMES, PARTS, NAMELESS}
    assert seen[None] > 0.9 * seen.total()
    # Both still serve what they had.
    assert exchange(kctl.port, b"") == exchange(jafka.port, b"") == PROBE_ANSWER
