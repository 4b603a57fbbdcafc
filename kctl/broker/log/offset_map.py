"""OffsetMap: the last offset of each key, in memory of a fixed size.

It uses open addressing over 16-byte hashes, not the keys, so that an entry has 24 bytes whatever
the length of the key. Two keys with one hash would lose the older one's records; with BLAKE2b such
keys cannot be constructed, and an accidental collision is negligible. Memory pages are allocated as
they are written.

Kafka 2.7: kafka.log.SkimpyOffsetMap
"""

HASH_BYTES = 16
ENTRY_BYTES = HASH_BYTES + 8
SLOTS_MIN = 1024


class OffsetMap:
    """Maps keys to offsets; entries are never removed."""

    __slots__ = ("_blake2b", "_hashes", "_offsets", "_slots", "capacity", "count")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """Create a map with at most `memory_bytes`, filled to at most the share `load_factor`."""
        # A local import: it loads OpenSSL, which brokers without a compacted topic do not need.
        from hashlib import blake2b

        self._blake2b = blake2b
        self._slots = max(SLOTS_MIN, memory_bytes // ENTRY_BYTES)
        # Maximum number of keys; at least one slot stays free, where searches end.
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self.count = 0
        self._hashes = bytearray(self._slots * HASH_BYTES)
        # One more than the offset; 0: a free slot.
        self._offsets = memoryview(bytearray(self._slots * 8)).cast("q")

    @property
    def is_full(self) -> bool:
        """Return whether it has no room for a new key."""
        return self.count >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Set the key's last offset; raise ValueError for a new key if the map is full."""
        wanted, slot = self._find(key)
        if not self._offsets[slot]:
            if self.is_full:
                raise ValueError("the offset map is full")
            self.count += 1
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] = wanted
        self._offsets[slot] = offset + 1

    def get(self, key: bytes) -> int:
        """Return the key's last offset, or -1."""
        return self._offsets[self._find(key)[1]] - 1

    def _find(self, key: bytes) -> tuple[bytes, int]:
        """Return the key's hash, and its slot or the free one where it belongs."""
        wanted = self._blake2b(key, digest_size=HASH_BYTES).digest()
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
