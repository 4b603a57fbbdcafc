"""The life of a log that is compacted, for `crash_explorer`: the cleaner is killed anywhere.

What must be left after a crash: of each key a record that is at least as young as the last durable
one; no record that was never there; no two records of a key below the offset up to which the log
says that it is clean (a tombstone there would go, and the older one come back); and markers,
epochs, producers and offsets as the batches that are left tell them.
"""

import dataclasses

from tests.support.crash_explorer import CONFIG, TRANSACTIONAL, Life, check_knowledge, story_of

KEYS = 4


class CompactedLife(Life):
    """Keys come again, and now and then the cleaner runs, or begins to."""

    config = dataclasses.replace(
        CONFIG,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
    )

    def __init__(self, entropy, disk):
        # Offset -> key of what must be there, of what was appended last, of all that may come back.
        self.keys = {}
        self.keys_ever = {}
        self.possible_keys = {}
        # Offsets of the open transaction, and of aborted ones.
        self.undecided = []
        self.aborted = set()
        self.cleaning = None
        super().__init__(entropy, disk)

    def choices(self):
        return (*super().choices(), (10, self.clean), (8, self.begin_to_clean))

    def key_of(self, offset, count):
        key = b"key%d" % self.entropy.random_below(KEYS)
        for number in range(count):
            self.keys[offset + number] = self.keys_ever[offset + number] = key
            self.possible_keys.setdefault(offset + number, set()).add(key)
            self.aborted.discard(offset + number)
        return key

    def append_transactional(self):
        end = self.log.log_end_offset
        super().append_transactional()
        if self.open_transaction:
            self.undecided.append(end)

    def ending_transaction(self, *, commit):
        if not commit:
            self.aborted.update(self.undecided)
        self.undecided = []

    def _cut(self, offset, how):
        # What the cleaner took for a younger record that is cut now does not come back.
        left = [it for it in story_of(self.log).values if it < offset <= self.log.log_end_offset]
        self.keys = {it: key for it, key in self.keys.items() if it in left}
        super()._cut(offset, how)

    def cut(self):
        end = self.log.log_end_offset
        self.possible_keys = {it: {self.keys_ever[it]} for it in self.possible_keys if it < end}
        self.undecided = [offset for offset in self.undecided if offset < end]
        if self.open_transaction and not self.undecided:
            self.undecided = self.reopened()

    def reopened(self):
        """Offsets of a transaction whose marker was cut."""
        first = self.log.producers[TRANSACTIONAL].current_txn_first_offset
        found = [offset for offset in self.keys if offset >= first]
        self.aborted.difference_update(found)
        return found

    def clean(self):
        self.begin_to_clean()
        self.let_go()

    def begin_to_clean(self):
        """Not waited for: other things happen meanwhile."""
        if self.cleaning is None or self.cleaning.done:
            cleaner = self.world.manager.cleaner
            self.cleaning = self.world.runtime.scheduler.spawn(cleaner.clean_one())

    def check(self, log, story):
        for offset, value in story.values.items():
            assert value in self.possible.get(offset, ()), f"record {offset} was never there"
        self.check_last_of_keys(log, story)
        check_knowledge(log, story, max(self.log.log_start_offset, self.start_max))
        if not max(self.log.log_start_offset, self.start_max):
            self.check_aborted(log, story)

    def check_last_of_keys(self, log, story):
        start = max(self.log.log_start_offset, log.log_start_offset, self.start_max)
        last, found = {}, {}
        for offset in sorted(self.keys):
            is_durable = start <= offset < self.durable_end and offset in self.now
            if is_durable and offset not in self.aborted:
                last[self.keys[offset]] = offset
        for offset in story.values:
            for key in self.possible_keys.get(offset, ()):
                found.setdefault(key, []).append(offset)
        for key, offset in last.items():
            youngest = max(found.get(key, ()), default=-1)
            assert youngest >= offset, f"the last record of {key}, {offset}, is gone"
        for key, offsets in found.items():
            clean = [offset for offset in offsets if offset < log.local.cleaned_offset]
            is_sure = all(self.possible_keys[offset] == {key} for offset in clean)
            assert len(clean) <= 1 or not is_sure, f"{clean} of {key} are said to be clean"

    def check_aborted(self, log, story):
        """Whatever aborted data is left is known to be aborted."""
        entries = [it for segment in log.segments for it in segment.transaction_index.entries()]
        for producer_id, first_offset in story.aborted:
            assert any(
                it.producer_id == producer_id and it.first_offset <= first_offset <= it.last_offset
                for it in entries
            ), f"the aborted transaction at {first_offset} is unknown"
        # Data of a transaction may be gone whose marker was cut since.
        unstable = min(story.ongoing.values(), default=log.log_end_offset)
        assert log.last_stable_offset <= unstable, "the last stable offset"
