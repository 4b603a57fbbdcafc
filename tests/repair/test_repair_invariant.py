"""The invariant of repair: no record that could be read is lost or gets another offset, except in
batches that are themselves damaged; the result is in order and verifies clean.

`KCTL_DAMAGE_SEEDS=5000 pytest -m slow tests/repair/test_repair_invariant.py` tries more mutations.
"""

import os
import random  # noqa: TID251 - mutations come from seeds
import shutil

import pytest

from kctl.records.memory_records import batches
from tests.support.damage import logs
from tests.support.forensics import GONE, findings, repair
from tests.support.log_mutations import Mutant, facts, mutate_derived, mutate_records

SEEDS = int(os.environ.get("KCTL_DAMAGE_SEEDS", "60"))
FIRST_SEED = int(os.environ.get("KCTL_DAMAGE_FIRST_SEED", "0"))
FEW_SEEDS = 16
PARTS = 4
# Every format, codec and cleanup policy.
NAMES = (
    "v2-none-0", "v2-gzip-0", "v2-snappy-0", "v2-lz4-0", "v2-zstd-0", "v2-idempotent-0",
    "v2-mixed-codecs-0", "v2-logappendtime-0", "tx-0", "tx-1", "txc-0", "epochs-0", "compacted-0",
    "compacted-tombstones-gone-0", "compacted-v1-0", "compacted-v0-0", "compact-delete-0",
    "deleted-records-0", "v1-none-0", "v1-gzip-0", "v1-snappy-0", "v1-lz4-0", "v0-none-0",
    "v0-gzip-0", "v0-snappy-0", "v0-lz4-0", "upgraded-0", "mixed",
)  # fmt: skip


@pytest.fixture
def copies(golden_logs, tmp_path):
    source = golden_logs / "logs-clean"

    def copy(name, seed):
        root = tmp_path / f"logs{seed}"
        root.mkdir()
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, root)
        if name != "mixed":
            return shutil.copytree(source / name, root / name)
        return mixed(source, root)

    return copy


def mixed(source, root):
    """Segments of v0, v1 and v2 in turn, in one log."""
    directory = root / "v2-none-0"
    shutil.copytree(source / "v2-none-0", directory)
    for number, path in enumerate(sorted(directory.glob("*.log"))[:-1]):
        wanted = {batch.base_offset for batch in batches(path.read_bytes())}
        last = max(batch.last_offset for batch in batches(path.read_bytes()))
        name = ("v2-none-0", "v1-none-0", "v0-none-0")[number % 3]
        data = b"".join(
            bytes(batch.to_bytes())
            for other in logs(source / name)
            for batch in batches(other.read_bytes())
            if min(wanted) <= batch.base_offset <= last
        )
        if data:
            path.write_bytes(data)
    repair(directory, root.parent / f"{root.name}-mixing")
    assert findings(root) == []
    return directory


def consumed(directory, *, with_markers=True):
    """Return all records in the order in which a consumer receives them."""
    return [
        fact
        for path in logs(directory)
        for batch in batches(path.read_bytes())
        if with_markers or not batch.is_control
        for fact in facts(batch)
    ]


def check(seed, copies, tmp_path):
    chance = random.Random(seed)
    name = chance.choice(NAMES)
    directory = copies(name, seed)
    mutant = Mutant.read(directory)
    mutate_records(chance, mutant, chance.choice([0, 1, 1, 1, 1, 2, 2, 3, 5]))
    mutant.write(directory)
    mutations = [mutate_derived(chance, directory) for _ in range(chance.choice([0, 0, 1, 2]))]
    what = f"{seed}: {name} {mutant.mutations} {mutations}"
    intact, misnumbered = mutant.intact(), mutant.misnumbered() - mutant.intact()

    repair(directory, tmp_path / f"backup{seed}")

    after = consumed(directory)
    offsets = [fact.offset for fact in after]
    assert offsets == sorted(set(offsets)), what
    found = set(after)
    lost = [fact for i in sorted(intact) for fact in mutant.originals[i] if fact not in found]
    assert not lost, (what, lost)
    origins = {
        fact for i in intact | misnumbered for fact in mutant.originals[i]
    }  # fmt: skip
    contents = {fact[1:] for i in misnumbered for fact in mutant.originals[i]}
    # A restored marker has no original record.
    strange = [
        fact
        for fact in consumed(directory, with_markers=False)
        if fact not in origins and fact[1:] not in contents
    ]
    assert not strange, (what, strange)
    left = {it.rule for it in findings(directory.parent) if directory.name in it.path}
    assert left <= GONE, (what, left)
    shutil.rmtree(directory.parent)
    shutil.rmtree(tmp_path / f"backup{seed}", ignore_errors=True)


def test_repair_loses_no_readable_record(copies, tmp_path):
    for seed in range(FEW_SEEDS):
        check(seed, copies, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_repair_of_many_logs_loses_no_readable_record(copies, tmp_path, part):
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS):
        check(seed, copies, tmp_path)
