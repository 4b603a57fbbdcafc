"""Golden data of Apache Kafka 0.7 from tests/golden/g07, and the messages that went into them."""

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.support.archives import opened_archive
from tests.support.golden import GOLDEN, java_random_bytes

_ARCHIVE = GOLDEN / "g07" / "g07.tar.xz"


@cache
def golden07():
    """The archive, unpacked once by this process; read only."""
    directory = Path(tempfile.mkdtemp(prefix="kctl-golden07-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with opened_archive(_ARCHIVE) as archive:
        archive.extractall(directory)
    return directory / "g07"


def copy07(name, target):
    """Copy a directory of the archive, like `logs-clean` or `recovery/before`, to `target`."""
    shutil.copytree(golden07() / name, target)
    return target


@cache
def golden07_json(name):
    """The contents of a JSON file of the archive."""
    return json.loads((golden07() / name).read_text(encoding="utf-8"))


def payload07(number):
    """The payload of message `number` of most golden topics."""
    if number % 11 == 0:
        return b""
    if number % 50 == 49:
        return java_random_bytes(number, 200)
    alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789"
    return b"message-%05d-" % number + alphabet * (number * 37 % 9)


# The payloads of each golden partition after a clean stop.
PAYLOADS07 = {
    **{f"{codec}-0": [payload07(i) for i in range(200)] for codec in ("none", "gzip", "snappy")},
    "none-1": [payload07(i) for i in range(40)],
    "gzip-1": [payload07(i) for i in range(7)],
    "snappy-1": [payload07(i) for i in range(7)],
    "mixed-0": [payload07(i) for i in range(60)],
    "rolled-0": [b"42"] * 20,
    "rolled-mixed-0": [payload07(i) for i in range(200)],
    "nested-0": [payload07(i) for i in range(21)],
    "empty-inside-0": [payload07(i) for i in range(2)],
    "large-0": [b"x" * size for size in (100_000, 200_000, 300_000, 1_000_000)],
}
