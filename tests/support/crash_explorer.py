"""Explores the states of a real log after a crash at any operation of a random workload.

A log lives on a SimDisk: appends of plain, idempotent and transactional producers, flushes alone
and in groups, rolls, truncations, deletions, new leader epochs, checkpoints, clean stops. After
any change of the disk, some crash states are drawn: what a power loss or a killed process may
leave. A broker starts on each and must
- open the log;
- serve every record that was durable, and none that was never appended or was durably truncated;
- read the same from any offset, find timestamps, and know the epochs, producers and aborted
  transactions that follow from the batches;
- find nothing to repair at a second start, even after another power loss during recovery.

Everything follows from the seed: `CrashFoundError` names the state, so that it can be repeated.
"""

import dataclasses

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.unified_log import FetchIsolation
from kctl.errors import KctlError
from kctl.protocol.error_codes import ApiError
from kctl.records.memory_records import batches
from kctl.simulation.disk import NameOrder, SimDisk
from kctl.storage.layout import CLEAN_SHUTDOWN_FILE
from kctl.work import at_once
from tests.support.log_world import TP, LogWorld, append, batch, bytes_of, end_transaction
from tests.support.virtual_runtime import SeededEntropy, virtual_runtime

CONFIG = LogConfig(
    segment_bytes=4000, index_interval_bytes=300, retention_ms=-1, file_delete_delay_ms=5
)
STEPS = 60
STATES_OF_A_LIFE = 60
# One in so many changes of the disk is looked at.
CHANGES_PER_STATE = 4
# One in so many states is that of a killed process; in one more the power fails again.
KILLS = 8
DOUBLE_LOSSES = 5
IDEMPOTENT, TRANSACTIONAL = 7, 8


class CrashFoundError(AssertionError):
    """A crash state in which the log breaks a promise."""


class Root:
    """What LogWorld asks of a directory."""

    def __truediv__(self, name):
        return f"/{name}"


def world_on(disk, life):
    runtime = dataclasses.replace(virtual_runtime(), disk=disk)
    return LogWorld(runtime, Root(), life.config, life.log_dirs)


class Explorer:
    """One life, and the states that crashes at its operations leave."""

    def __init__(self, seed, order=NameOrder.JOURNAL, life=None):
        self.seed = seed
        self.states = 0
        self.found = None
        self._chance = SeededEntropy(seed)
        self._changes = 0
        self.life = (life or Life)(SeededEntropy(seed + 1), SimDisk(order))

    def run(self, states_max):
        """Live, and look at up to so many states; how many it were."""
        disk = self.life.disk
        disk.on_change = lambda: self._look(states_max)
        for _ in range(STEPS):
            if self.states < states_max:
                self._step()
        disk.on_change = None
        return self.states

    def _step(self):
        try:
            self.life.step()
        finally:
            # What is found during a background job would be that job's failure only.
            if self.found is not None:
                raise self.found

    def _look(self, states_max):
        self._changes += 1
        chance = self._chance
        if (
            self.found is not None
            or self.states == states_max
            or chance.random_below(CHANGES_PER_STATE)
        ):
            return
        self.states += 1
        try:
            disk = self.life.disk
            if chance.random_below(KILLS) == 0:
                check(self.life, disk.process_loss())
                return
            after = disk.power_loss(chance)
            if chance.random_below(DOUBLE_LOSSES) == 0:
                after = power_loss_while_recovering(after, chance, self.life)
            check(self.life, after)
        except (AssertionError, KctlError, ValueError) as error:
            self.found = CrashFoundError(
                f"seed {self.seed}, {self.life.disk.order.value}, change {self._changes} "
                f"({self.life.doing}): {error}"
            )
            raise self.found from error


def explore(order, states, first_seed=0, life=None):
    """Look at so many states, of as many lives as that takes; CrashFoundError at a bad one."""
    seen, seed = 0, first_seed
    while seen < states:
        seen += Explorer(seed, order, life).run(min(STATES_OF_A_LIFE, states - seen))
        seed += 1
    return seen


def power_loss_while_recovering(disk, chance, life):
    """A disk of which a broker's start was cut short."""
    found = []
    countdown = chance.random_below(20)

    def look():
        nonlocal countdown
        countdown -= 1
        if countdown == 0:
            found.append(disk.power_loss(chance))

    disk.on_change = look
    world_on(disk, life)
    disk.on_change = None
    return found[0] if found else disk.power_loss(chance)


class Life:
    """A log, the records ever appended to it, and the records that must survive."""

    config = CONFIG
    log_dirs = 1

    def __init__(self, entropy, disk):
        self.entropy = entropy
        self.disk = disk
        self.doing = "start"
        self.world = world_on(disk, self)
        self.world.runtime.scheduler.settle()
        # Offset -> value: the log as it is, and what else may stand there after a crash.
        self.now = {}
        self.possible = {}
        # Where each batch begins.
        self.starts = []
        self.durable_end = 0
        # Flushed as a whole, so that the log itself must be there.
        self.is_there = False
        self.truncations = 0
        self.epoch = 0
        # The next sequence number of each producer.
        self.sequences = {}
        self.open_transaction = False
        # How far a crash may bring the log start.
        self.start_max = 0
        self.log = self.world.log()

    def choices(self):
        """(weight, action) of all that may happen next."""
        return (
            (40, self.append),
            (8, self.append_idempotent),
            (9, self.append_transactional),
            (7, self.flush),
            (10, self.flush_soon),
            (3, self.let_go),
            (12, self.let_go_a_little),
            (5, self.roll),
            (5, self.truncate),
            (1, self.truncate_fully),
            (4, self.checkpoint),
            (3, self.wait),
            (3, self.delete_records),
            (2, self.restart),
        )

    def step(self):
        choices = self.choices()
        pick = self.entropy.random_below(sum(weight for weight, _ in choices))
        for weight, action in choices:
            if pick < weight:
                self.doing = action.__name__
                action()
                return
            pick -= weight

    # --- appends -----------------------------------------------------------------------------

    def _values(self, count):
        first = self.log.log_end_offset
        size = self.entropy.random_below(700)
        values = [b"%d:" % (first + n) + self.entropy.random_bytes(size) for n in range(count)]
        self.starts.append(first)
        for number, value in enumerate(values):
            self.now[first + number] = value
            self.possible.setdefault(first + number, set()).add(value)
        return values

    def _append(self, values, **producer):
        if self.entropy.random_below(20) == 0:
            self.epoch += 1
        first_ms = 1_600_000_000_000 + self.log.log_end_offset
        key = self.key_of(self.log.log_end_offset, len(values))
        append(self.log, *values, key=key, epoch=self.epoch, first_ms=first_ms, **producer)

    def key_of(self, offset, count):
        """The key of the `count` records of one batch."""
        return b"k"

    def _append_of(self, producer_id, **producer):
        sequence = self.sequences.get(producer_id, 0)
        self._append(
            self._values(1), producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
            **producer,
        )  # fmt: skip
        self.sequences[producer_id] = sequence + 1

    def append(self):
        self._append(self._values(1 + self.entropy.random_below(3)))

    def append_idempotent(self):
        self._append_of(IDEMPOTENT)

    def append_transactional(self):
        if self.open_transaction and self.entropy.random_below(2):
            self.starts.append(self.log.log_end_offset)
            commit = self.entropy.random_below(2) == 0
            self.ending_transaction(commit=commit)
            end_transaction(self.log, TRANSACTIONAL, commit=commit, epoch=self.epoch)
            self.log.update_high_watermark(self.log.log_end_offset)
            self.open_transaction = False
            return
        self._append_of(TRANSACTIONAL, is_transactional=True)
        self.open_transaction = True

    def ending_transaction(self, *, commit):
        """The open transaction is about to end."""

    # --- durability --------------------------------------------------------------------------

    def flush(self):
        self.log.flush()
        self._flushed(self.log.log_end_offset, self.truncations)

    def flush_soon(self):
        """Not waited for: other things happen meanwhile."""
        end, truncations = self.log.log_end_offset, self.truncations

        def done(future):
            if future.error() is None:
                self._flushed(end, truncations)

        self.world.manager.flush_soon(self.log).add_done_callback(done)

    def _flushed(self, end, truncations):
        if truncations == self.truncations:
            self.durable_end = max(self.durable_end, end)
        self.is_there = True

    def let_go(self):
        self.world.runtime.scheduler.settle()

    def let_go_a_little(self):
        """What runs in the background is not done at once."""
        ready = self.world.runtime.scheduler._ready
        if ready:
            callback, arguments = ready.popleft()
            callback(*arguments)

    def wait(self):
        self.world.runtime.scheduler.advance(10)

    def checkpoint(self):
        self.world.manager.checkpoint()
        if self.entropy.random_below(2):
            self.let_go()

    def roll(self):
        self.log.roll()

    def restart(self):
        self.log = self.world.restart(clean=True)
        self.log.update_high_watermark(self.log.log_end_offset)
        self._flushed(self.log.log_end_offset, self.truncations)

    # --- losing records on purpose -----------------------------------------------------------

    def truncate(self):
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + self.entropy.random_below(end - start + 1)
        # A batch goes as a whole; followers truncate where one ends.
        offset = max((it for it in self.starts if it <= offset), default=start)
        self._cut(max(offset, start), self.log.truncate_to)

    def truncate_fully(self):
        self._cut(self.log.log_end_offset + 3, self.log.truncate_fully_and_start_at)

    def _cut(self, offset, how):
        is_full = offset > self.log.log_end_offset
        if is_full:
            self.start_max = offset
        self.truncations += 1
        self.durable_end = 0 if is_full else min(self.durable_end, offset)
        kept = {} if is_full else {at: it for at, it in self.now.items() if at < offset}
        how(offset)
        self.now = kept
        self.possible = {at: {it} for at, it in kept.items()}
        self.starts = [it for it in self.starts if it < offset and not is_full]
        if is_full:
            self.durable_end = offset
        self._forget_producers()
        self.cut()

    def cut(self):
        """Records were lost on purpose."""

    def _forget_producers(self):
        """Let the producers continue from the state that the log has now."""
        self.open_transaction = TRANSACTIONAL in story_of(self.log).ongoing
        for producer_id, state in self.log._producers.producers.items():
            self.sequences[producer_id] = state.last_sequence + 1

    def delete_records(self):
        start, end = self.log.log_start_offset, self.log.high_watermark
        if self.open_transaction:
            return
        # Until a checkpoint says so a crash takes it back; epochs are forgotten at once.
        self.start_max = start + self.entropy.random_below(end - start + 1)
        self.log.maybe_increment_log_start_offset(self.start_max)
        self.log.delete_old_segments(0)

    # --- what must be left ---------------------------------------------------------------------

    def check(self, log, story):
        """What a broker found after a crash, in `log`; AssertionError if it breaks a promise."""
        check_records(self, log, story)
        check_knowledge(log, story, max(self.log.log_start_offset, self.start_max))
        check_aborted(self, log, story)

    def go_on(self, world):
        """What else a broker does that started after a crash."""


# --- what the log must be after a crash ------------------------------------------------------


@dataclasses.dataclass
class Story:
    """What the batches of a log tell."""

    values: dict = dataclasses.field(default_factory=dict)
    offsets: list = dataclasses.field(default_factory=list)
    # (first offset, epoch) of every batch.
    epochs: list = dataclasses.field(default_factory=list)
    sequences: dict = dataclasses.field(default_factory=dict)
    ongoing: dict = dataclasses.field(default_factory=dict)
    aborted: list = dataclasses.field(default_factory=list)
    last: dict = dataclasses.field(default_factory=dict)


def story_of(log):
    story, offset = Story(), log.log_start_offset
    while offset < log.log_end_offset:
        got = list(batches(bytes_of(log.read(offset, 10**6, isolation=FetchIsolation.LOG_END))))
        if not got and log.config.is_compacted:
            # Offsets may be missing up to the end.
            break
        assert got, f"nothing is read at {offset} of {log.log_end_offset}"
        for one in got:
            assert one.is_crc_valid(), f"the batch at {one.base_offset} is damaged"
            tell(story, one, offset)
            offset = one.next_offset
    return story


def tell(story, one, from_offset):
    story.epochs.append((one.base_offset, one.partition_leader_epoch))
    story.offsets += range(max(one.base_offset, from_offset), one.next_offset)
    if one.is_control:
        first = story.ongoing.pop(one.producer_id, None)
        marker = next(iter(one.records()), None)
        if None not in (first, marker) and bytes(marker.key)[3] == 0:
            story.aborted.append((one.producer_id, first))
        return
    for record in one.records():
        if record.offset >= from_offset:
            story.values[record.offset] = bytes(record.value)
    if one.producer_id >= 0:
        story.sequences[one.producer_id] = one.base_sequence + one.last_offset - one.base_offset
        story.last[one.producer_id] = one
        if one.is_transactional:
            story.ongoing.setdefault(one.producer_id, one.base_offset)


def check(life, disk):
    """Start a broker on what a crash left, twice; AssertionError if it breaks a promise."""
    markers = [f"/d{number}/{CLEAN_SHUTDOWN_FILE}" for number in range(life.log_dirs)]
    was_clean = any(disk.exists(marker) for marker in markers)
    world = world_on(disk, life)
    assert not world.manager.damaged, world.warnings
    assert not world.manager.offline_log_dirs, world.warnings
    log = world.manager.get_log(TP)
    if log is None:
        assert not life.is_there, "the log itself is gone"
        return
    log.update_high_watermark(log.log_end_offset)
    story = story_of(log)
    life.check(log, story)
    before = files_of_log(disk)
    again_on = disk.process_loss()
    world = world_on(again_on, life)
    again = world.manager.get_log(TP)
    bounds = (log.log_start_offset, log.log_end_offset)
    assert (again.log_start_offset, again.log_end_offset) == bounds, "a second start differs"
    again.update_high_watermark(again.log_end_offset)
    assert story_of(again).values == story.values, "a second start differs"
    if not was_clean:
        # After a clean stop the first one looked at little.
        after = files_of_log(again_on)
        repaired = [
            path for path in sorted({**before, **after}) if before.get(path) != after.get(path)
        ]
        assert not repaired, f"a second start repairs {repaired}"
    if IDEMPOTENT in story.last:
        check_duplicate(again, story.last[IDEMPOTENT])
    assert append(again, b"and on", epoch=life.epoch).first_offset == log.log_end_offset
    life.go_on(world)


def files_of_log(disk):
    """All but the empty ones: who makes index files in the background was interrupted."""
    found = disk.contents().items()
    return {path: data for path, data in found if f"/{TP}/" in path and data}


def check_records(life, log, story):
    must_begin = max(life.log.log_start_offset, log.log_start_offset)
    start_max = max(life.start_max, life.log.log_start_offset)
    assert log.log_start_offset <= start_max, "the log start is ahead"
    for offset in range(must_begin, life.durable_end):
        if offset in life.now:
            assert story.values.get(offset) == life.now[offset], f"durable record {offset} is gone"
    for offset, value in story.values.items():
        assert value in life.possible.get(offset, ()), f"record {offset} was never there"
    first = max(must_begin, life.start_max)
    found = [offset for offset in story.offsets if offset >= first]
    assert found == list(range(first, log.log_end_offset)), "offsets are missing"


def check_knowledge(log, story, epochs_from):
    """Indexes, epochs and producers tell what the batches tell."""
    for offset in story.offsets[::5]:
        (first, *_) = batches(bytes_of(log.read(offset, 1, isolation=FetchIsolation.LOG_END)))
        assert first.base_offset <= offset < first.next_offset, f"{offset} is not where it was"
    for offset in list(story.values)[::7]:
        found = at_once(log.fetch_offset_by_timestamp(1_600_000_000_000 + offset))
        assert found is not None, f"no record is as young as {offset}"
        assert found[1] <= offset, f"{offset} is not found by its timestamp"
    for first_offset, epoch in story.epochs:
        if first_offset >= epochs_from:
            assert log._epochs.epoch_at(first_offset) == epoch, f"the epoch of {first_offset}"


def check_aborted(life, log, story):
    """The transaction indexes tell what the markers tell."""
    if max(life.log.log_start_offset, life.start_max):
        return
    info = log.read(0, 10**6, isolation=FetchIsolation.TXN_COMMITTED)
    aborted = [tuple(it)[:2] for it in info.aborted_transactions or ()]
    assert aborted == story.aborted[: len(aborted)], "transactions are aborted that were not"
    is_all = len(log.segments) == 1 or info.records is None
    assert not is_all or len(aborted) == len(story.aborted), "aborted transactions are unknown"
    unstable = min(story.ongoing.values(), default=log.log_end_offset)
    assert log.last_stable_offset == unstable, "the last stable offset"


def check_duplicate(log, one):
    """The producer's last batch, sent again, is known."""
    if one.base_offset < log.log_start_offset:
        return
    again = batch(
        b"again", producer_id=IDEMPOTENT, producer_epoch=0,
        base_sequence=one.base_sequence,
    )  # fmt: skip
    try:
        info = log.append_as_leader(again, 0, now_ms=0)
    except ApiError as error:
        raise AssertionError(f"the last batch sent again: {error}") from error
    assert info.is_duplicate, "the last batch sent again was appended"
    assert info.first_offset == one.base_offset
