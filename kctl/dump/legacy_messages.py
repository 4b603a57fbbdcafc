"""Messages of formats v0 and v1 as the records of a dump."""

from collections.abc import Iterator

from kctl.dump.values import DumpedRecord
from kctl.records.legacy import LegacyBatch
from kctl.records.record import Record
from kctl.records.record_batch import NO_SEQUENCE


def dumped_messages(batch: LegacyBatch) -> Iterator[DumpedRecord]:
    """Yield a record per message of a v0 or v1 batch, nested ones included."""
    for message in batch.messages():
        key, value = message.key_and_value()
        record = Record(message.offset, message.timestamp, key, value)
        yield DumpedRecord(batch, record, NO_SEQUENCE, message)
