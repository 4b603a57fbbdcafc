"""What the cleaner does on the loop, it does in turns."""

from kctl.broker.log import log_cleaner
from kctl.broker.log.cleaner import LastRecord
from kctl.work import at_once
from tests.support.cleaning import compacted, put


def test_the_last_records_of_many_producers_are_copied_in_turns(monkeypatch):
    monkeypatch.setattr(log_cleaner, "PRODUCERS_PER_TURN", 2)
    world = compacted()
    log = world.log()
    for producer_id in range(5):
        put(log, (b"a", b"1"), producer_id=producer_id, producer_epoch=3, base_sequence=0)
    assert len(list(log_cleaner._last_records(log))) == 2
    assert at_once(log_cleaner._last_records(log)) == {n: LastRecord(n, 3) for n in range(5)}
