"""Converts calls of ZooKeeperStore for kazoo, and finds what a restored watch has missed."""

from collections.abc import Sequence
from typing import Any

from kctl.store.interface import Check, Create, Delete, EventType, Operation, Set, Stat


def commit(client: Any, operations: Sequence[Operation]) -> None:
    """Send operations as one transaction of a KazooClient."""
    transaction = client.transaction()
    for operation in operations:
        _add(transaction, operation)
    transaction.commit_async()


def _add(transaction: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral, sequence):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def missed_data_event(stat: Any, known_zxid: int) -> EventType | None:
    """Return what a data watch missed, for a znode last changed at `known_zxid` (0: it was
    missing)."""
    if stat is None:
        return EventType.DELETED if known_zxid else None
    if not known_zxid:
        return EventType.CREATED
    return EventType.DATA_CHANGED if Stat(*stat).mzxid > known_zxid else None
