"""Logs of Kafka 0.7 with damage in place, and what a consumer reads of them."""

import shutil
from contextlib import suppress
from os import environ
from pathlib import Path

from kctl.errors import CorruptDataError
from kctl.records.message07 import messages, shallow_entries
from kctl.runtime.real.disk import RealDisk
from kctl.storage.segments07 import segments_in

# Golden partitions small enough to be damaged many times.
PARTITIONS = (
    "none-1", "gzip-0", "snappy-0", "mixed-0", "rolled-0", "rolled-mixed-0", "nested-0", "magic0-0",
    "attributes-0", "empty-inside-0", "with.dots_and-dashes-1", "тема-0",
)  # fmt: skip

# The seeds of damage; KCTL_OLD_LOG_SEEDS=5000 is a long search.
SEEDS = range(int(environ.get("KCTL_OLD_LOG_SEEDS", "60")))


def read_as_consumer(directory):
    """Payloads with offsets as a consumer gets them, and the segment where it fails, or None."""
    found = []
    for segment in segments_in(RealDisk(), str(directory)):
        data = Path(segment.path).read_bytes()
        try:
            found.extend(
                (bytes(it.message.payload), it.offset) for it in messages(data, segment.base_offset)
            )
        except CorruptDataError:
            return found, segment.base_offset
    return found, None


def entries_of(directory):
    """Name of the segment, position and bytes of each outermost entry, up to damage."""
    found = []
    for segment in segments_in(RealDisk(), str(directory)):
        path = Path(segment.path)
        data = path.read_bytes()
        end = 0
        with suppress(CorruptDataError):
            for position, end, _ in shallow_entries(data):
                found.append((path.name, position, data[position:end]))
            if end == len(data):
                continue
        found.append((path.name, len(data), b"damage"))
    return found


def mutated(source, target, random_source):
    """Copy `source` to `target` and damage one segment in place, or cut the newest; return the name
    of the file, and the first and end position of the bytes that may have changed."""
    shutil.copytree(source, target)
    segments = [it for it in segments_in(RealDisk(), str(target)) if it.size]
    kind = random_source.choice(("bit", "bit", "byte", "zeros", "noise", "repeat", "cut"))
    segment = segments[-1] if kind == "cut" else random_source.choice(segments)
    path = Path(segment.path)
    data = bytearray(path.read_bytes())
    start = random_source.randrange(len(data))
    end = start + 1
    if kind == "bit":
        data[start] ^= 1 << random_source.randrange(8)
    elif kind == "byte":
        data[start] = random_source.randrange(256)
    elif kind == "cut":
        end = len(data)
        del data[start:]
    else:
        end = min(len(data), start + random_source.randrange(1, 200))
        if kind == "zeros":
            data[start:end] = bytes(end - start)
        elif kind == "noise":
            data[start:end] = random_source.randbytes(end - start)
        else:
            other = random_source.randrange(len(data) - (end - start) + 1)
            data[start:end] = data[other : other + end - start]
    path.write_bytes(data)
    return path.name, start, end
