"""Reads tests/golden/append: what Apache Kafka 2.7.2 made of records that were sent to it."""

import base64
import lzma
from dataclasses import dataclass
from functools import cache

from kctl.records.memory_records import batches
from kctl.records.record_batch import RecordBatch
from tests.support.golden import GOLDEN


@dataclass(frozen=True)
class Case:
    """One line: what went in, and Apache Kafka's answer."""

    name: str
    data: bytes
    facts: tuple[str, ...]
    answer: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        return self.answer[0] == "ok"

    @property
    def stored(self) -> bytes:
        return base64.b64decode(self.answer[1])

    @property
    def config(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in self.facts[0].split(";") if pair)
        return {name: value for name, _, value in pairs}


@cache
def cases(kind: str) -> tuple[Case, ...]:
    """The cases of one kind, `append` or `convert`."""
    text = lzma.decompress((GOLDEN / "append/cases.tsv.xz").read_bytes()).decode()
    inputs = {"append": 5, "convert": 2}[kind]
    found = []
    for line in text.splitlines():
        first, name, data, *rest = line.split("\t")
        if first == kind:
            facts, answer = tuple(rest[:inputs]), tuple(rest[inputs:])
            found.append(Case(name, base64.b64decode(data), facts, answer))
    return tuple(found)


def comparable(data: bytes) -> list[object]:
    """The batches so that two compressors' work compares equal: compressed ones by what they
    say and hold, all others by their bytes."""
    found: list[object] = []
    for batch in batches(data):
        assert batch.is_crc_valid()
        if not batch.compression_type:
            found.append(batch.to_bytes())
        elif isinstance(batch, RecordBatch):
            header = batch.header._replace(length=0, crc=0)
            found.append((header, tuple(batch.records())))
        else:
            header = (batch.magic, batch.offset, batch.timestamp, batch.attributes)
            found.append((header, tuple(batch.records())))
    return found
