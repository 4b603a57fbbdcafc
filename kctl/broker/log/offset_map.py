"""OffsetMap: the last offset of each key, in memory of a fixed size.

Open addressing over hashes of 16 bytes, not the keys: so an entry has 24 bytes however long a key
is. Two keys of one hash would lose the older one's records; with BLAKE2b nobody can make such keys
on purpose, and by chance it will not happen. Pages of memory are taken as they are written to.

Kafka 2.7: kafka.log.SkimpyOffsetMap
"""

from hashlib import blake2b

HASH_BYTES = 16
ENTRY_BYTES = HASH_BYTES + 8
SLOTS_MIN = 1024


class OffsetMap:
    """See the module; entries are never removed."""

    __slots__ = ("_hashes", "_offsets", "_slots", "capacity", "count")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """At most `memory_bytes` are used, and at most the share `load_factor` of the slots."""
        self._slots = max(SLOTS_MIN, memory_bytes // ENTRY_BYTES)
        # How many keys it takes; a slot stays free, where searches end.
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self.count = 0
        self._hashes = bytearray(self._slots * HASH_BYTES)
        # One more than the offset; 0: a free slot.
        self._offsets = memoryview(bytearray(self._slots * 8)).cast("q")

    @property
    def is_full(self) -> bool:
        """Whether no new key may be put."""
        return self.count >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """`offset` is the key's last; a new key needs that the map is not full."""
        wanted, slot = self._find(key)
        if not self._offsets[slot]:
            if self.is_full:
                raise ValueError("the offset map is full")
            self.count += 1
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] = wanted
        self._offsets[slot] = offset + 1

    def get(self, key: bytes) -> int:
        """The key's last offset, or -1."""
        return self._offsets[self._find(key)[1]] - 1

    def _find(self, key: bytes) -> tuple[bytes, int]:
        """The key's hash, and its slot or the free one where it belongs."""
        wanted = blake2b(key, digest_size=HASH_BYTES).digest()
        slots, offsets, hashes = self._slots, self._offsets, self._hashes
        slot = int.from_bytes(wanted[:8], "big") % slots
        while offsets[slot]:
            start = slot * HASH_BYTES
            if hashes[start : start + HASH_BYTES] == wanted:
                break
            slot += 1
            if slot == slots:
                slot = 0
        return wanted, slot
