"""Golden bytes of Apache Kafka 2.7.2 from tests/golden, and the records that went into them."""

import tarfile
from functools import cache
from pathlib import Path

from kctl.records.record import Record

GOLDEN = Path(__file__).parent.parent / "golden"
FIRST_TIMESTAMP = 1_600_000_000_000


@cache
def golden_files(archive: str) -> dict[str, bytes]:
    """path -> contents of the files in an archive below tests/golden."""
    files = {}
    with tarfile.open(GOLDEN / archive) as tar:
        for member in tar:
            if member.isfile() and member.size < 1_000_000:
                extracted = tar.extractfile(member)
                assert extracted is not None
                files[member.name] = extracted.read()
    return files


def golden_segments(topic_partition: str, kind: str = "clean") -> list[bytes]:
    """The .log files of a partition, in order of their base offsets."""
    files = golden_files(f"logs/{kind}.tar.xz")
    prefix = f"logs-{kind}/{topic_partition}/"
    names = sorted(name for name in files if name.startswith(prefix) and name.endswith(".log"))
    assert names, topic_partition
    return [files[name] for name in names]


def expected_record(number: int) -> Record:
    """Record `number` as it was produced to most golden topics, if nothing is lost in storing."""
    key = None if number % 7 == 0 else b"" if number % 11 == 0 else b"key-%05d" % number
    if number % 13 == 0:
        value = None
    elif number % 17 == 0:
        value = b""
    elif number % 50 == 49:
        value = java_random_bytes(number, 200)
    else:
        alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789"
        value = b"value-%05d-" % number + alphabet * (number * 37 % 9)
    timestamp = FIRST_TIMESTAMP + 1000 * number - (5000 if number % 10 == 3 else 0)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if number % 5 == 0:
        headers += (("h1", b"v%d" % number),)
    if number % 15 == 0:
        headers += (("h1", None), ("ключ", "значение".encode()), ("", b""))
    return Record(number, timestamp, key, value, headers)


def java_random_bytes(seed: int, length: int) -> bytes:
    """What `new java.util.Random(seed).nextBytes` fills an array with."""
    mask = (1 << 48) - 1
    state = (seed ^ 0x5DEECE66D) & mask
    out = bytearray()
    while len(out) < length:
        state = (state * 0x5DEECE66D + 0xB) & mask
        out += (state >> 16).to_bytes(4, "little")
    return bytes(out[:length])
