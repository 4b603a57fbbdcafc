"""Random mutations of a partition's segments, and what a repair of them must keep.

The log is a list of files, each a list of chunks: whole batches, or bytes that are none. Mutations
move, copy, remove and damage chunks; so the test knows of every original batch whether a copy of it
is left untouched.
"""

import random  # noqa: TID251 - mutations come from seeds
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kctl.records.memory_records import batches
from kctl.storage.layout import INDEX_SUFFIXES, LOG_SUFFIX, file_name

EPOCH_FIELD = range(12, 16)
OFFSET_FIELD = range(8)


class Fact(NamedTuple):
    """One record as a consumer gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass
class Chunk:
    """A batch of the original log, or a part of one, or nonsense."""

    data: bytes
    # Index of the original batch; None for nonsense.
    batch: int | None = None
    # Only the offset field differs from the original.
    has_wrong_offset: bool = False
    # It is no longer readable.
    is_damaged: bool = False


@dataclass
class Mutant:
    """A log under mutation."""

    bases: list[int]
    files: list[list[Chunk]]
    originals: list[list[Fact]]
    is_control: list[bool]
    mutations: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> "Mutant":
        """The log in `directory`."""
        found = cls([], [], [], [])
        for path in sorted(directory.glob("*.log")):
            data = path.read_bytes()
            found.bases.append(int(path.stem))
            found.files.append([])
            for batch in batches(data):
                bytes_ = data[batch.position : batch.position + batch.size]
                found.files[-1].append(Chunk(bytes_, len(found.originals)))
                found.originals.append(facts(batch))
                found.is_control.append(bool(batch.is_control))
        return found

    def write(self, directory: Path) -> None:
        """Replace the segments; indexes of renamed ones get the new names."""
        old = sorted(int(path.stem) for path in directory.glob("*.log"))
        names = dict(zip(old, self.bases, strict=True))
        moved = []
        for name in old:
            for suffix in INDEX_SUFFIXES:
                path = directory / file_name(name, suffix)
                if path.exists() and names[name] != name:
                    moved.append((file_name(names[name], suffix), path.read_bytes()))
                    path.unlink()
            (directory / file_name(name, LOG_SUFFIX)).unlink()
        for name, data in moved:
            (directory / name).write_bytes(data)
        for base, chunks in zip(self.bases, self.files, strict=True):
            data = b"".join(chunk.data for chunk in chunks)
            (directory / file_name(base, LOG_SUFFIX)).write_bytes(data)

    def intact(self) -> set[int]:
        """Original batches of which an untouched copy is left."""
        return {
            chunk.batch
            for chunks in self.files
            for chunk in chunks
            if chunk.batch is not None and not chunk.is_damaged and not chunk.has_wrong_offset
        }

    def misnumbered(self) -> set[int]:
        """Original batches of which a copy is left that differs in its offset only."""
        return {
            chunk.batch
            for chunks in self.files
            for chunk in chunks
            if chunk.batch is not None and not chunk.is_damaged and chunk.has_wrong_offset
        }


def facts(batch) -> list[Fact]:
    return [Fact(it.offset, it.timestamp, it.key, it.value) for it in batch.records()]


# --- mutations ---------------------------------------------------------------------------------


def _place(chance: random.Random, mutant: Mutant) -> tuple[int, int] | None:
    places = [(f, i) for f, chunks in enumerate(mutant.files) for i in range(len(chunks))]
    return chance.choice(places) if places else None


def swap_neighbours(chance, mutant):
    f, i = _place(chance, mutant)
    chunks = mutant.files[f]
    if i + 1 < len(chunks):
        chunks[i], chunks[i + 1] = chunks[i + 1], chunks[i]


def swap_anywhere(chance, mutant):
    (f, i), (g, j) = _place(chance, mutant), _place(chance, mutant)
    a, b = mutant.files[f], mutant.files[g]
    a[i], b[j] = b[j], a[i]


def move_run(chance, mutant):
    f, i = _place(chance, mutant)
    count = chance.randint(1, 5)
    run = mutant.files[f][i : i + count]
    del mutant.files[f][i : i + count]
    g = chance.randrange(len(mutant.files))
    at = chance.randint(0, len(mutant.files[g]))
    mutant.files[g][at:at] = run


def duplicate(chance, mutant):
    f, i = _place(chance, mutant)
    run = mutant.files[f][i : i + chance.randint(1, 4)]
    at = i + len(run) if chance.random() < 0.6 else chance.randint(0, len(mutant.files[f]))
    mutant.files[f][at:at] = [Chunk(**vars(chunk)) for chunk in run]


def overlap(chance, mutant):
    """Append copies of the next segment's first batches to a segment."""
    if len(mutant.files) < 2:
        return
    f = chance.randrange(len(mutant.files) - 1)
    run = mutant.files[f + 1][: chance.randint(1, 6)]
    mutant.files[f] += [Chunk(**vars(chunk)) for chunk in run]


def delete(chance, mutant):
    f, i = _place(chance, mutant)
    del mutant.files[f][i : i + chance.choice([1, 1, 2, 5])]


def _flip(chance, mutant, where):
    f, i = _place(chance, mutant)
    chunk = mutant.files[f][i]
    if not chunk.data:
        return
    at = where(chunk.data)
    data = bytearray(chunk.data)
    data[at] ^= 1 << chance.randrange(8)
    is_modern = len(data) > 16 and data[16] == 2
    is_header = at in OFFSET_FIELD
    is_epoch = is_modern and at in EPOCH_FIELD
    mutant.files[f][i] = Chunk(
        bytes(data), chunk.batch, chunk.has_wrong_offset or is_header,
        chunk.is_damaged or not (is_header or is_epoch),
    )  # fmt: skip


def flip_header(chance, mutant):
    _flip(chance, mutant, lambda data: chance.randrange(min(61, len(data))))


def flip_offset(chance, mutant):
    _flip(chance, mutant, lambda data: chance.randrange(min(8, len(data))))


def flip_body(chance, mutant):
    _flip(chance, mutant, lambda data: chance.randrange(len(data)))


def truncate(chance, mutant):
    f, i = _place(chance, mutant)
    if chance.random() < 0.5:
        f, i = len(mutant.files) - 1, len(mutant.files[-1]) - 1
        if i < 0:
            return
    chunk = mutant.files[f][i]
    data = chunk.data[: chance.randrange(len(chunk.data) + 1)]
    is_whole = len(data) == len(chunk.data)
    mutant.files[f][i:] = [
        Chunk(data, chunk.batch, chunk.has_wrong_offset, chunk.is_damaged or not is_whole)
    ]


def zero_run(chance, mutant):
    f, i = _place(chance, mutant)
    length = chance.choice([1, 61, 512, 4096])
    if chance.random() < 0.5:
        mutant.files[f].insert(i, Chunk(bytes(length)))
        return
    left = length
    for chunk in mutant.files[f][i:]:
        data = bytes(min(left, len(chunk.data))) + chunk.data[left:]
        chunk.is_damaged |= data != chunk.data
        chunk.data = data
        left -= len(data)
        if left <= 0:
            break


def garbage(chance, mutant):
    f, i = _place(chance, mutant)
    data = chance.randbytes(chance.choice([1, 7, 61, 300, 5000]))
    mutant.files[f].insert(i, Chunk(data))


def rename(chance, mutant):
    f = chance.randrange(len(mutant.bases))
    base = max(0, mutant.bases[f] + chance.choice([-20, -5, -1, 1, 3, 20, 1000]))
    if base not in mutant.bases:
        mutant.bases[f] = base
        order = sorted(range(len(mutant.bases)), key=lambda it: mutant.bases[it])
        if order != list(range(len(order))):
            # Names stay paired with the old ones by position.
            mutant.bases = [mutant.bases[it] for it in order]
            mutant.files = [mutant.files[it] for it in order]


def swap_files(chance, mutant):
    f, g = chance.randrange(len(mutant.files)), chance.randrange(len(mutant.files))
    mutant.files[f], mutant.files[g] = mutant.files[g], mutant.files[f]


RECORD_MUTATIONS = (
    swap_neighbours, swap_anywhere, move_run, duplicate, overlap, delete, flip_header, flip_offset,
    flip_body, truncate, zero_run, garbage, rename, swap_files,
)  # fmt: skip


def mutate_records(chance: random.Random, mutant: Mutant, count: int) -> None:
    """Do `count` mutations, and remember which."""
    for _ in range(count):
        mutation = chance.choice(RECORD_MUTATIONS)
        if any(mutant.files):
            mutation(chance, mutant)
            mutant.mutations.append(mutation.__name__)


def mutate_derived(chance: random.Random, directory: Path) -> str:
    """Damage one file that is derived from batches."""
    suffixes = (*INDEX_SUFFIXES, ".snapshot", "leader-epoch-checkpoint")
    paths = sorted(path for path in directory.iterdir() if path.name.endswith(suffixes))
    if not paths:
        return "no derived file"
    path = chance.choice(paths)
    data = bytearray(path.read_bytes())
    kind = chance.choice(["flip", "cut", "gone", "zeros", "append"])
    if kind == "gone":
        path.unlink()
    elif kind == "append":
        path.write_bytes(data + chance.randbytes(chance.choice([3, 8, 12, 34])))
    elif data:
        at = chance.randrange(len(data))
        if kind == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[at:]
        else:
            data[at : at + 12] = bytes(len(data[at : at + 12]))
        path.write_bytes(data)
    return f"{path.name}: {kind}"
