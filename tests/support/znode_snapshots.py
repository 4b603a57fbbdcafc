"""The bytes of a whole tree of znodes, to compare trees by."""

from kctl.store.journal_format import SnapshotEncoder, complete_snapshot
from kctl.work import at_once


def encode_snapshot(tree):
    return complete_snapshot(at_once(SnapshotEncoder(tree).encode()))
