"""PackedProducers: the entries of a log's producers as a snapshot has them, kept up to date.

A log rolls in one turn of the loop, and its snapshot reflects exactly the batches before that roll.
To pack 100,000 producers then takes a tenth of a second. So their entries are kept packed, and what
a roll still packs are the producers that changed lately, at most CHANGED_MAX.

Invariants: each producer has at most one entry, and its `slot` is the place of it; the entries have
no gaps; a producer without an up-to-date entry is among the changed ones.
"""

from typing import Final

from kctl.broker.log.producer_state import ProducerState
from kctl.protocol.primitives import Buffer
from kctl.storage.producer_snapshot import ENTRY_BYTES, encode_entries

# Producers that are packed in one step: about a millisecond.
CHANGED_MAX: Final = 1_000


class PackedProducers:
    """The packed entries, and the producers whose entries are outdated."""

    def __init__(self) -> None:
        self._entries = bytearray()
        # By slot.
        self._states: list[ProducerState] = []
        self._changed: dict[ProducerState, None] = {}

    def changed(self, state: ProducerState) -> None:
        """Record that `state` is new, has changed, or is about to change before anything else."""
        if len(self._changed) >= CHANGED_MAX:
            # Without `state` as it will be: it stays among the changed ones.
            self._pack()
        self._changed[state] = None

    def remove(self, state: ProducerState) -> None:
        """Remove the entry of `state`; the last entry takes its place."""
        self._changed.pop(state, None)
        slot = state.slot
        if slot < 0:
            return
        last = self._states.pop()
        if last is not state:
            self._states[slot] = last
            last.slot = slot
            start = slot * ENTRY_BYTES
            self._entries[start : start + ENTRY_BYTES] = self._entries[-ENTRY_BYTES:]
        del self._entries[-ENTRY_BYTES:]
        state.slot = -1

    def file_parts(self) -> list[Buffer]:
        """Return the bytes of a snapshot of all producers, in parts, which are to be written before
        anything changes."""
        self._pack()
        return encode_entries(self._entries)

    def _pack(self) -> None:
        entries, states = self._entries, self._states
        for state in self._changed:
            slot = state.slot
            if slot < 0:
                state.slot = len(states)
                states.append(state)
                entries += state.packed()
            else:
                entries[slot * ENTRY_BYTES : (slot + 1) * ENTRY_BYTES] = state.packed()
        self._changed.clear()
