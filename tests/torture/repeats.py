"""Distinguishes records that a client sent twice from records that a broker stored twice.

A broker recognizes a batch by its producer id, producer epoch and sequence. A client that sends
records again under another producer epoch makes them new to every broker: see decision 0055.
"""

from collections import defaultdict

from kctl.records.memory_records import batches


def repeated_by_clients(directory):
    """Return the values that a partition has several times, each time under another producer id
    or epoch."""
    senders = defaultdict(list)
    for log in sorted(directory.glob("*.log")):
        for batch in batches(log.read_bytes()):
            if not batch.is_control:
                sender = batch.producer_id, batch.producer_epoch
                for record in batch.records():
                    senders[bytes(record.value).decode()].append(sender)
    return {
        value
        for value, found in senders.items()
        if len(found) > 1 and len(set(found)) == len(found)
    }
