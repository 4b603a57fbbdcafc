"""Which duplicates are the doing of a client."""

from kctl.records.builder import RecordBatchBuilder
from tests.torture.repeats import repeated_by_clients


def batch(offset, value, *, epoch, sequence):
    builder = RecordBatchBuilder(
        base_offset=offset, producer_id=7, producer_epoch=epoch, base_sequence=sequence
    )
    builder.append(timestamp=1_600_000_000_000, key=None, value=value)
    return bytes(builder.build())


def test_only_what_came_under_another_epoch_is_repeated_by_the_client(tmp_path):
    log = [
        batch(0, b"once", epoch=0, sequence=0),
        batch(1, b"by the client", epoch=0, sequence=1),
        batch(2, b"by a broker", epoch=0, sequence=2),
        batch(3, b"by a broker", epoch=0, sequence=2),
        batch(4, b"by the client", epoch=1, sequence=0),
        batch(5, b"by both", epoch=1, sequence=1),
        batch(6, b"by both", epoch=2, sequence=0),
        batch(7, b"by both", epoch=2, sequence=0),
    ]
    (tmp_path / "00000000000000000000.log").write_bytes(b"".join(log))
    assert repeated_by_clients(tmp_path) == {"by the client"}
