"""Kinds of damage to a partition's directory, and by which rule each must be found."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kctl.records.memory_records import batches
from kctl.storage.producer_snapshot import decode_snapshot, encode_snapshot
from kctl.verify.rules import Rule


@dataclass(frozen=True)
class Damage:
    """One kind: `apply` does it to a directory; one of `rules` must name it."""

    name: str
    apply: Callable[[Path], None]
    rules: frozenset[Rule]
    # The most batches that may become unreadable.
    lost_batches: int = 1
    needs: Callable[[Path], bool] = bool


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def middle_segment(directory: Path) -> Path:
    """One that is not the last, if there are several, with three batches or more."""
    found = logs(directory)
    fit = [path for path in found[:-1] if len(list(batches(path.read_bytes()))) >= 3]
    return fit[0] if fit else max(found, key=lambda path: path.stat().st_size)


def middle_batch(path: Path) -> tuple[bytearray, int, int]:
    """The file, and where its middle batch begins and ends."""
    data = bytearray(path.read_bytes())
    found = list(batches(bytes(data)))
    batch = found[len(found) // 2]
    return data, batch.position, batch.position + batch.size


def flip(offset: int, bit: int = 0x04):
    """Flip a bit of the middle batch at `offset` bytes from its start; negative: from its end."""

    def apply(directory: Path) -> None:
        path = middle_segment(directory)
        data, start, end = middle_batch(path)
        data[start + offset if offset >= 0 else end + offset] ^= bit
        path.write_bytes(data)

    return apply


def first_offset_flipped(directory: Path) -> None:
    path = middle_segment(directory)
    data = bytearray(path.read_bytes())
    data[3] ^= 0x04
    path.write_bytes(data)


def torn_tail(directory: Path) -> None:
    path = logs(directory)[-1]
    path.write_bytes(path.read_bytes()[:-7])


def zero_tail(directory: Path) -> None:
    path = logs(directory)[-1]
    path.write_bytes(path.read_bytes() + bytes(1001))


def nonsense_inserted(directory: Path) -> None:
    path = middle_segment(directory)
    data, start, _ = middle_batch(path)
    path.write_bytes(data[:start] + b"\xff\xfenonsense" * 50 + data[start:])


def nonsense_over(directory: Path) -> None:
    path = middle_segment(directory)
    data, start, end = middle_batch(path)
    data[start:end] = (b"\xa5\x5a" * (end - start))[: end - start]
    path.write_bytes(data)


def zero_block(directory: Path) -> None:
    path = middle_segment(directory)
    data, start, end = middle_batch(path)
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def duplicate_batch(directory: Path) -> None:
    path = middle_segment(directory)
    data, start, end = middle_batch(path)
    path.write_bytes(data[:end] + data[start:end] + data[end:])


def missing_segment(directory: Path) -> None:
    path = logs(directory)[1]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def first_log_missing(directory: Path) -> None:
    logs(directory)[0].unlink()


def swapped_segments(directory: Path) -> None:
    first, second = logs(directory)[:2]
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)


def has_segments(directory: Path) -> bool:
    return len(logs(directory)) > 1


def has_segments_not_compacted(directory: Path) -> bool:
    """In a compacted log a gap means nothing."""
    return has_segments(directory) and not directory.name.startswith("compacted")


def has_index_entries(suffix: str, size: int):
    def check(directory: Path) -> bool:
        return any(path.stat().st_size >= 2 * size for path in directory.glob(f"*{suffix}"))

    return check


def _index(directory: Path, suffix: str, size: int) -> Path:
    return next(
        path for path in sorted(directory.glob(f"*{suffix}")) if path.stat().st_size >= 2 * size
    )


def index_cut(suffix: str, size: int):
    def apply(directory: Path) -> None:
        path = _index(directory, suffix, size)
        path.write_bytes(path.read_bytes()[:-3])

    return apply


def index_oversized(suffix: str, size: int, entry: bytes):
    def apply(directory: Path) -> None:
        path = _index(directory, suffix, size)
        path.write_bytes(path.read_bytes() + entry)

    return apply


def index_misordered(suffix: str, size: int):
    def apply(directory: Path) -> None:
        path = _index(directory, suffix, size)
        data = path.read_bytes()
        path.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])

    return apply


def index_wrong_position(directory: Path) -> None:
    path = _index(directory, ".index", 4)
    data = bytearray(path.read_bytes())
    data[7] ^= 0x10
    path.write_bytes(data)


def _files_with_entries(suffix: str, size: int):
    """The last index of all and the last of an older segment, if they have entries."""

    def find(directory: Path, *, is_active: bool) -> Path | None:
        last = logs(directory)[-1].with_suffix(suffix)
        found = [it for it in sorted(directory.glob(f"*{suffix}")) if it.stat().st_size >= size]
        return next((it for it in reversed(found) if (it == last) == is_active), None)

    return find


def entry_beyond(suffix: str, size: int, change, *, is_active: bool):
    """Change the last entry of an index, of the active segment or of an older one."""
    find = _files_with_entries(suffix, size)

    def apply(directory: Path) -> None:
        path = find(directory, is_active=is_active)
        data = path.read_bytes()
        path.write_bytes(data[:-size] + change(data[-size:]))

    return apply


def has_entry(suffix: str, size: int, *, is_active: bool):
    find = _files_with_entries(suffix, size)
    return lambda directory: find(directory, is_active=is_active) is not None


def _million_offsets_on(entry: bytes) -> bytes:
    """Of an entry of .index or .timeindex."""
    at = 0 if len(entry) == 8 else 8
    (offset,) = struct.unpack_from(">i", entry, at)
    return entry[:at] + struct.pack(">i", offset + 1_000_000) + entry[at + 4 :]


def _week_on(entry: bytes) -> bytes:
    """Of an entry of .timeindex."""
    timestamp, offset = struct.unpack(">qi", entry)
    return struct.pack(">qi", timestamp + 7 * 86_400_000, offset)


def _aborted_million_on(entry: bytes) -> bytes:
    """Of an entry of .txnindex."""
    version, *fields = struct.unpack(">hqqqq", entry)
    fields[2] += 1_000_000
    return struct.pack(">hqqqq", version, *fields)


def high_watermark_wrong(directory: Path) -> None:
    topic, _, partition = directory.name.rpartition("-")
    path = directory.parent / "replication-offset-checkpoint"
    path.write_text(f"0\n1\n{topic} {partition} 999999\n")


def index_missing(directory: Path) -> None:
    middle_segment(directory).with_suffix(".index").unlink()


def _snapshot(directory: Path) -> Path | None:
    for path in sorted(directory.glob("*.snapshot")):
        if decode_snapshot(path.read_bytes(), str(path)):
            return path
    return None


def has_snapshot(directory: Path) -> bool:
    return _snapshot(directory) is not None


def snapshot_corrupt(directory: Path) -> None:
    path = _snapshot(directory)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def snapshot_wrong(directory: Path) -> None:
    path = _snapshot(directory)
    entries = decode_snapshot(path.read_bytes(), str(path))
    wrong = entries[0]._replace(last_sequence=entries[0].last_sequence + 5)
    path.write_bytes(encode_snapshot([wrong, *entries[1:]]))


def has_epochs(directory: Path) -> bool:
    path = directory / "leader-epoch-checkpoint"
    return path.exists() and len(path.read_text().splitlines()) > 2


def has_exact_epochs(directory: Path) -> bool:
    """In a compacted log an epoch may begin before its first batch."""
    return has_epochs(directory) and not directory.name.startswith("compacted")


def epochs_wrong(directory: Path) -> None:
    path = directory / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()
    epoch, start = lines[2].split()
    lines[2] = f"{epoch} {int(start) + 1}"
    path.write_text("\n".join(lines) + "\n")


def epochs_beyond(directory: Path) -> None:
    path = directory / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()
    path.write_text(f"0\n{len(lines) - 1}\n" + "\n".join([*lines[2:], "99 99999999"]) + "\n")


def epochs_corrupt(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n7\n")


def recovery_point_wrong(directory: Path) -> None:
    topic, _, partition = directory.name.rpartition("-")
    path = directory.parent / "recovery-point-offset-checkpoint"
    path.write_text(f"0\n1\n{topic} {partition} 999999\n")


def _rules(*rules: Rule) -> frozenset[Rule]:
    return frozenset(rules)


CRC = _rules(Rule.BATCH_CRC)
COMMON = (
    Damage("bit flip in the length", flip(11), _rules(Rule.BATCH_SIZE, Rule.NONSENSE)),
    Damage(
        "bit flip in the offset", flip(6),
        _rules(Rule.BATCH_OFFSET, Rule.MISSING_OFFSETS, Rule.DUPLICATE_OFFSETS), 0,
    ),
    Damage("bit flip high up in the offset", flip(1), _rules(Rule.BATCH_OFFSET), 0),
    Damage("bit flip in the offset's sign", flip(0, 0x80), _rules(Rule.BATCH_OFFSET), 0),
    Damage(
        "bit flip in a segment's first offset", first_offset_flipped, _rules(Rule.BATCH_OFFSET), 0
    ),
    Damage("bit flip in the magic", flip(16, 0x10), _rules(Rule.BATCH_MAGIC)),
    Damage("bit flip in the records", flip(-3), CRC),
    Damage("torn tail", torn_tail, _rules(Rule.TORN_TAIL)),
    Damage("zero tail", zero_tail, _rules(Rule.ZERO_TAIL), 0),
    Damage("nonsense block put in", nonsense_inserted, _rules(Rule.NONSENSE), 0),
    Damage("nonsense over a batch", nonsense_over, _rules(Rule.NONSENSE)),
    Damage("zeros over a batch", zero_block, _rules(Rule.ZERO_BLOCK)),
    Damage("a batch twice", duplicate_batch, _rules(Rule.DUPLICATE_OFFSETS), 0),
    Damage(
        "missing segment", missing_segment,
        _rules(Rule.MISSING_SEGMENT, Rule.EPOCH_CHECKPOINT_BOUNDS, Rule.RECOVERY_POINT_BOUNDS),
        1000, has_segments_not_compacted,
    ),
    Damage(
        "first segment missing, its index left", first_log_missing, _rules(Rule.MISSING_SEGMENT),
        1000, has_segments,
    ),
    Damage("swapped segments", swapped_segments, _rules(Rule.SEGMENT_NAME), 0, has_segments),
    Damage("missing index", index_missing, _rules(Rule.INDEX_MISSING), 0),
    Damage(
        "index cut", index_cut(".index", 8), _rules(Rule.INDEX_SIZE), 0,
        has_index_entries(".index", 8),
    ),
    Damage(
        "index too long", index_oversized(".index", 8, struct.pack(">ii", 2**30, 2**30)),
        _rules(Rule.INDEX_ENTRY), 0, has_index_entries(".index", 8),
    ),
    Damage(
        "index out of order", index_misordered(".index", 8), _rules(Rule.INDEX_ORDER), 0,
        has_index_entries(".index", 8),
    ),
    Damage(
        "index entry that points inside a batch", index_wrong_position, _rules(Rule.INDEX_ENTRY),
        0, has_index_entries(".index", 4),
    ),
    Damage(
        "time index cut", index_cut(".timeindex", 12), _rules(Rule.TIME_INDEX_SIZE), 0,
        has_index_entries(".timeindex", 12),
    ),
    Damage(
        "time index out of order", index_misordered(".timeindex", 12),
        _rules(Rule.TIME_INDEX_ORDER), 0, has_index_entries(".timeindex", 12),
    ),
    *(
        Damage(
            f"{what} of {'the active' if is_active else 'an older'} segment",
            entry_beyond(suffix, size, change, is_active=is_active), _rules(rule), 0,
            has_entry(suffix, size, is_active=is_active),
        )
        for what, suffix, size, change, rule in (
            ("index entry beyond the end", ".index", 8, _million_offsets_on, Rule.INDEX_ENTRY),
            (
                "time index offset beyond the end", ".timeindex", 12, _million_offsets_on,
                Rule.TIME_INDEX_ENTRY,
            ),
            (
                "time index timestamp beyond all", ".timeindex", 12, _week_on,
                Rule.TIME_INDEX_ENTRY,
            ),
            (
                "aborted transaction beyond the end", ".txnindex", 34, _aborted_million_on,
                Rule.TXN_INDEX_ENTRY,
            ),
        )
        for is_active in (True, False)
    ),
    Damage(
        "high watermark beyond the end", high_watermark_wrong, _rules(Rule.HIGH_WATERMARK_BOUNDS), 0
    ),
    Damage("snapshot corrupt", snapshot_corrupt, _rules(Rule.SNAPSHOT_CORRUPT), 0, has_snapshot),
    Damage("snapshot wrong", snapshot_wrong, _rules(Rule.SNAPSHOT_STATE), 0, has_snapshot),
    Damage(
        "epoch checkpoint wrong", epochs_wrong, _rules(Rule.EPOCH_CHECKPOINT_ORDER), 0,
        has_exact_epochs,
    ),
    Damage(
        "epoch checkpoint beyond the end", epochs_beyond, _rules(Rule.EPOCH_CHECKPOINT_BOUNDS),
        0, has_epochs,
    ),
    Damage(
        "epoch checkpoint corrupt", epochs_corrupt, _rules(Rule.EPOCH_CHECKPOINT_CORRUPT), 0,
    ),
    Damage(
        "recovery point beyond the end", recovery_point_wrong,
        _rules(Rule.RECOVERY_POINT_BOUNDS), 0,
    ),
)  # fmt: skip
V2_ONLY = (
    Damage("bit flip in the leader epoch", flip(15), _rules(Rule.BATCH_EPOCH), 0),
    Damage("bit flip in the checksum", flip(18), CRC),
    Damage("bit flip in the attributes", flip(22), CRC),
    Damage("bit flip in lastOffsetDelta", flip(26), CRC),
    Damage("bit flip in baseTimestamp", flip(34), CRC),
    Damage("bit flip in maxTimestamp", flip(42), CRC),
    Damage("bit flip in producerId", flip(50), CRC),
    Damage("bit flip in producerEpoch", flip(52), CRC),
    Damage("bit flip in baseSequence", flip(56), CRC),
    Damage("bit flip in the record count", flip(60), CRC),
)
LEGACY_ONLY = (
    Damage("bit flip in the checksum", flip(13), CRC),
    Damage("bit flip in the attributes", flip(17, 0x01), CRC),
    Damage("bit flip in the key's length", flip(25), CRC),
)
FORMATS = {
    "v2": "v2-none-0", "v2 gzip": "v2-gzip-0", "v2 snappy": "v2-snappy-0", "v2 lz4": "v2-lz4-0",
    "v2 zstd": "v2-zstd-0", "v2 idempotent": "v2-idempotent-0", "v2 transactions": "tx-0",
    "v2 compacted": "compacted-0", "v1": "v1-none-0", "v1 gzip": "v1-gzip-0",
    "v1 lz4": "v1-lz4-0", "v0": "v0-none-0", "v0 snappy": "v0-snappy-0",
    "mixed": "upgraded-0",
}  # fmt: skip


def kinds_for(format_name: str) -> tuple[Damage, ...]:
    if format_name.startswith("mixed"):
        return COMMON
    if format_name.startswith("v2"):
        return COMMON + V2_ONLY
    return COMMON + LEGACY_ONLY
