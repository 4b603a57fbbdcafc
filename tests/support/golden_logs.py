"""Golden log directories of Apache Kafka 2.7.2, unpacked once, and its dump texts parsed."""

import atexit
import os
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.archives import opened_archive

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
HOLE_FROM_BYTES = 1_000_000
ZEROS = bytes(1 << 16)

_BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) .*?partitionLeaderEpoch: (-?\d+) .*?position: (\d+) "
    r"\w+: (-?\d+) size: (\d+) magic: (\d) compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)
_RECORD = re.compile(r"\| offset: (\d+) (?:(\w+): (-?\d+) )?keysize: (-?\d+) valuesize: (-?\d+)")


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch line of Apache Kafka's dump."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    position: int
    max_timestamp: int
    size: int
    magic: int
    crc: int


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """A record line of Apache Kafka's dump; sizes are -1 for null."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int


def unpack(kind: str, target: Path) -> Path:
    """Copy the golden directory `kind`; its log directory is `logs-KIND` below `target`."""
    for part in (f"logs-{kind}", f"dump-{kind}"):
        shutil.copytree(unpacked(kind) / part, target / part, dirs_exist_ok=True)
    return target / f"logs-{kind}"


@cache
def unpacked(*kinds: str) -> Path:
    """The golden directories `kinds`, unpacked once by this process; read only."""
    directory = Path(tempfile.mkdtemp(prefix="kctl-golden-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for kind in kinds:
        with opened_archive(GOLDEN / f"{kind}.tar.xz") as archive:
            for member in archive:
                _extract(archive, member, directory)
    return directory


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Extract a file, with a hole at its end if it is large: the indexes of a broker that was
    killed are 10 MiB of zeros each, a quarter of a gigabyte together."""
    if member.isfile() and member.size > HOLE_FROM_BYTES:
        extracted = archive.extractfile(member)
        assert extracted is not None
        data, end = extracted.read(), member.size
        while data.endswith(ZEROS, 0, end):
            end -= len(ZEROS)
        path = directory / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[:end])
        os.truncate(path, member.size)
    else:
        archive.extract(member, directory)


def dump_of(log_file: Path) -> tuple[list[DumpedBatch], list[DumpedRecord]]:
    """What Apache Kafka's dump of a golden .log says."""
    logs, partition, name = log_file.parts[-3:]
    text_file = log_file.parents[2] / logs.replace("logs", "dump") / partition / f"{name}.txt"
    batches, records = [], []
    for line in text_file.read_text(encoding="utf-8", errors="replace").split("\n"):
        if match := _BATCH.match(line):
            assert match[10] == "true", line
            numbers = [int(match[i]) for i in (1, 2, 3, 4, 5, 6, 7, 9)]
            batches.append(DumpedBatch(*numbers))
        elif match := _RECORD.match(line):
            timestamp = int(match[3]) if match[3] else -1
            records.append(DumpedRecord(int(match[1]), timestamp, int(match[4]), int(match[5])))
    return batches, records
