"""Conversations with Apache Kafka 0.7, replayed against the real handlers over fake connections.

They are replayed in their order. What kctl answers differently on purpose is listed here.
"""

import pytest

from tests.support.golden07 import golden07_json
from tests.support.kafka07_world import Kafka07World

SERVER = {
    "num.partitions": "2", "log.flush.interval": "1", "max.message.size": "1000",
    "max.socket.request.bytes": "10000", "topic.log.file.size": "rolled:100",
}  # fmt: skip
OFFSETS = bytes.fromhex("00000015000400017400000000ffffffffffffffff0000000a")
FORTY_TWO = bytes.fromhex("0000001e00000006726f6c6c6564000000000000000c0000000801003224b0883432")
# The moment of the request "rolled: time now", and B of those after it.
NOW_MS = 0x1A2018E6113
FILE_TIMES_MS = tuple(0x1A1FB988458 + after for after in (0, 1_000_000, 2_000_000))

# Names that Apache Kafka 0.7.2 refuses, which the server of the recordings does not yet do.
REFUSED_NAMES = (
    "'.'", "'..'", "'a/b'", "'../evil'", "'a x 252'", "'a x 253'", "'a x 254'", "'a x 255'",
    "'a x 256'", "'nul\\x00l'", "'tab\\t'", "'new\\nline'", "'\\ue000'", "'\\ufff0'",
    "b'\\xff\\xfe'",
)  # fmt: skip
# A negative size of a fetch has an answer: error 4.
NEGATIVE_SIZES = {
    "fetch with at most -1 bytes": "000000020004",
    "fetch with at most -20 bytes, offset 15": "000000020004",
    "multifetch, the first with -1 bytes": None,
}
# Messages are nested at most 8 deep.
TOO_DEEP = ("gzip twelve deep", "fetch of it")


@pytest.fixture(scope="module")
def golden():
    return golden07_json("conversations.json")["conversations"]


class Replay:
    """The conversations on one broker, with what each of them showed."""

    def __init__(self):
        self.world = Kafka07World(SERVER, wall_ms=NOW_MS - 1_000).start()
        self.rolled = False

    def play(self, conversation):
        name = conversation["name"]
        self.prepare(name)
        client = self.world.connect()
        got = []
        for step in conversation["steps"]:
            answer = self.world.exchange(bytes.fromhex(step["send"]), client)
            got.append(answer.hex() or ("closed" if client.is_closed else "nothing"))
        self.world.exchange(OFFSETS, client)
        return got, "closed" if client.is_closed else "open"

    def prepare(self, name):
        world = self.world
        if name.startswith("rolled") and not self.rolled:
            self.rolled = True
            for _ in range(20):
                assert world.exchange(FORTY_TWO) == b""
            world.advance(1_001)
        if "file times set" in name:
            paths = sorted(path for path in world.files() if path.startswith("rolled-0/"))
            for path, time_ms in zip(paths, FILE_TIMES_MS, strict=True):
                world.disk.set_modified_ms(f"/logs/{path}", time_ms)

    def size(self, directory):
        """Bytes of a partition's log, None without one."""
        found = [
            len(data)
            for path, data in self.world.files().items()
            if path.rpartition("/")[0] == directory
        ]
        return sum(found) if found else None


def joined(answers):
    """All bytes of a conversation: what is written at once is answered at once here."""
    return "".join(answer for answer in answers if answer not in ("nothing", "closed"))


def is_refused_name(name):
    return name.startswith("topic name ") and name[11:].rpartition(":")[0] in REFUSED_NAMES


def test_conversations_are_as_with_apache_kafka_07(golden):
    replay = Replay()
    assert len(golden) == 224
    equal = 0
    for conversation in golden:
        name = conversation["name"]
        got, after = replay.play(conversation)
        if is_refused_name(name) or name in NEGATIVE_SIZES or name in TOO_DEEP:
            continue
        wanted = [step.get("gets", "nothing") for step in conversation["steps"]]
        assert joined(got) == joined(wanted), name
        assert after == conversation["connection afterwards"], name
        for directory, (_, size) in conversation.get("log bytes before, after", {}).items():
            if not directory.startswith("anyp-"):
                assert replay.size(directory) == size, (name, directory)
        equal += 1
    assert equal == 224 - 3 * len(REFUSED_NAMES) - len(NEGATIVE_SIZES) - len(TOO_DEEP)


def test_differences_are_as_documented(golden):
    replay = Replay()
    for conversation in golden:
        name = conversation["name"]
        before = replay.world.files().keys()
        got, after = replay.play(conversation)
        if is_refused_name(name):
            kind = name.rpartition(" ")[2]
            wanted = ["00000002ffff"] if kind == "fetch" else ["closed"]
            assert got == wanted, name
            assert after == ("open" if kind == "fetch" else "closed"), name
            assert replay.world.files().keys() == before, name
        elif NEGATIVE_SIZES.get(name):
            assert (got, after) == ([NEGATIVE_SIZES[name]], "open"), name
        elif name in NEGATIVE_SIZES:
            assert got[0][12:24] == "000000020004", name
            assert after == "open", name
        elif name == "gzip twelve deep":
            assert (got, after) == (["closed"], "closed")
