"""ReceivedRecords: what a peer sent, given to OpenSSL a few records at a time.

A read of OpenSSL works through all records that it has until one has plaintext, and records without
any cost the most: 40 us for new keys, which are 27 bytes. What it has at once is therefore counted
in records, whatever their sizes are.
"""

import ssl

# What OpenSSL is given at once; without plaintext it works through that in 5 ms.
RECORDS_PER_TURN = 128

# Bytes of a record before its payload; the last two are the length of that.
_HEADER_BYTES = 5
_NOTHING = memoryview(b"")


class ReceivedRecords:
    """The records of a connection from its first byte on."""

    __slots__ = ("_header", "_left", "bio", "unfed")

    def __init__(self) -> None:
        # What OpenSSL reads.
        self.bio = ssl.MemoryBIO()
        # What it is given in a later turn; nothing should be received before that.
        self.unfed = _NOTHING
        # The first bytes of a header that is not complete.
        self._header = bytearray()
        # Bytes of the last record's payload that are still to come.
        self._left = 0

    def feed(self, received: memoryview) -> None:
        """Give OpenSSL the first records of `received`, a buffer that is used again, and keep the
        others."""
        if self.unfed:
            received = memoryview(bytes(self.unfed) + received)
        size = self._take(received, RECORDS_PER_TURN)
        self.bio.write(received[:size])
        self.unfed = memoryview(bytes(received[size:])) if size < len(received) else _NOTHING

    def feed_more(self) -> bool:
        """Give OpenSSL the next records if it has none; return whether it has any then."""
        if self.unfed and not self.bio.pending:
            size = self._take(self.unfed, RECORDS_PER_TURN)
            self.bio.write(self.unfed[:size])
            self.unfed = self.unfed[size:]
        return self.bio.pending > 0

    def drop_unfed(self) -> None:
        """Forget what OpenSSL was not given."""
        self.unfed = _NOTHING

    def _take(self, data: memoryview, count: int) -> int:
        """Return how many of the next bytes, `data`, belong to the record under way and to `count`
        records after it."""
        # The end of a record, perhaps after that of `data`.
        position, size = self._left, len(data)
        if self._header:
            missing = _HEADER_BYTES - len(self._header)
            self._header += data[:missing]
            if len(self._header) < _HEADER_BYTES:
                return size
            position = missing + int.from_bytes(self._header[3:], "big")
            self._header.clear()
        while count and position + _HEADER_BYTES <= size:
            position += _HEADER_BYTES + (data[position + 3] << 8 | data[position + 4])
            count -= 1
        if count and position < size:
            self._header += data[position:]
            position = size
        self._left = max(position - size, 0)
        return min(position, size)
