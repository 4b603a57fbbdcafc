"""Whatever damage one file of a log has, verification finds it if records changed, repair ends and
loses no readable record, and the dump continues, in bulk as well as record by record.

`KCTL_DAMAGE_SEEDS=2000 pytest -m slow tests/verify/test_random_damage.py` tries more.
"""

import os
import random  # noqa: TID251 - damage comes from seeds
import shutil

import pytest

import kctl.dump.log_dump
from kctl.dump.dump import dump
from kctl.dump.kafka_format import Contents, kafka_lines
from kctl.dump.text_format import text_lines
from kctl.dump.values import BulkStyle, Decoder, DumpDamage, DumpOptions
from kctl.runtime.real.disk import RealDisk
from tests.support.forensics import GONE, findings, readable_records, repair

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("KCTL_DAMAGE_SEEDS", "90"))
STYLES = {
    BulkStyle.KAFKA_WITH_DATA: lambda items: kafka_lines(items, Contents.AS_TEXT),
    BulkStyle.TEXT_WITH_DATA: lambda items: text_lines(items, with_data=True),
}


def overwrite(chance, data, at, length):
    data[at : at + length] = chance.choice([bytes, chance.randbytes])(length)


def flip(chance, data, at, _):
    data[at] ^= 1 << chance.randrange(8)


def cut_off(_, data, at, __):
    del data[at:]


def append(chance, data, _, length):
    data += chance.choice([bytes, chance.randbytes])(length)


def insert(chance, data, at, length):
    data[at:at] = chance.choice([chance.randbytes(length), data[at : at + length]])


def take_out(_, data, at, length):
    del data[at : at + length]


def damage(chance, directory):
    """Damage one file; return a description."""
    files = sorted(path for path in directory.iterdir() if path.is_file())
    logs = [path for path in files if path.suffix == ".log" and path.stat().st_size]
    path = chance.choice(logs if logs and chance.random() < 0.65 else files)
    what = chance.choice([flip, flip, overwrite, cut_off, append, insert, take_out, "gone", "swap"])
    others = [it for it in files if it.suffix == path.suffix and it != path]
    data = bytearray(path.read_bytes())
    if what == "gone":
        path.unlink()
    elif what == "swap" and others:
        other = chance.choice(others)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif data and callable(what):
        at = chance.randrange(len(data))
        length = min(len(data) - at, chance.choice([1, 4, 8, 61, 512, 3000]))
        what(chance, data, at, length)
        path.write_bytes(data)
    return f"{path.name}: {what}"


def dumped(directory, style, bulk):
    """Return the text and the reported damage."""
    options = DumpOptions(with_records=True, decoder=Decoder.NONE, bulk=bulk)
    items = list(dump(RealDisk(), [str(directory)], options))
    texts = (it.encode() if isinstance(it, str) else bytes(it) for it in style(items))
    return b"".join(texts), [str(it) for it in items if isinstance(it, DumpDamage)]


@pytest.fixture
def copies(golden_logs, tmp_path):
    source = golden_logs / "logs-clean"
    partitions = sorted(
        path for path in source.iterdir() if path.is_dir() and not path.name.endswith("-delete")
    )

    def copy(chance):
        root = tmp_path / "logs"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, root)
        chosen = chance.choice(partitions)
        return shutil.copytree(chosen, root / chosen.name)

    return copy


@pytest.mark.parametrize("part", range(3))
def test_any_damage_is_found_dumped_and_repaired(copies, tmp_path, monkeypatch, part):
    monkeypatch.setattr(kctl.dump.log_dump, "_BULK_BYTES", 1)
    monkeypatch.setattr(kctl.dump.log_dump, "_SLOW_BYTES", 500)
    for seed in range(part, SEEDS, 3):
        chance = random.Random(seed)
        directory = copies(chance)
        before = readable_records(directory)
        what = f"{seed}: {directory.name} {damage(chance, directory)}"
        readable = readable_records(directory)
        assert readable == before or findings(directory.parent), what
        for bulk, style in STYLES.items():
            assert dumped(directory, style, bulk) == dumped(directory, style, None), what
        repair(directory, tmp_path / f"backup{seed}")
        assert not set(readable) - set(readable_records(directory)), what
        left = {it.rule for it in findings(directory.parent) if directory.name in it.path}
        assert left <= GONE, what
