"""The life of a log that moves between two log directories, for `crash_explorer`.

Whatever a crash leaves of a move: the log is there once, with all that was durable before, and a
copy that is left can still take its place.
"""

from kctl.broker.log.unified_log import FetchIsolation
from tests.support.crash_explorer import Life, story_of
from tests.support.log_world import TP, bytes_of

SLICE_BYTES = 1500


class MovingLife(Life):
    """Copies begin, grow, arrive and are given up."""

    log_dirs = 2

    def choices(self):
        return (
            *super().choices(),
            (12, self.begin_move),
            (20, self.copy),
            (8, self.settle_move),
            (10, self.arrive),
            (1, self.give_up),
        )

    @property
    def future(self):
        return self.world.manager.futures.get(TP)

    def begin_move(self):
        if self.future is None:
            [other] = [it for it in self.world.log_dirs if it != self.log.log_directory]
            self.world.manager.begin_move(TP, other)

    def copy(self):
        if self.future is not None:
            copy_slice(self.log, self.future)

    def settle_move(self):
        """Not waited for: other things happen meanwhile."""
        if self.future is not None:
            self.world.manager.flush_soon(self.future)
            self.world.manager.checkpoint_move(self.future)

    def arrive(self):
        if self.future is not None:
            self.log = completed(self.world, self.log)
            self._flushed(self.log.log_end_offset, self.truncations)
            self._forget_producers()

    def give_up(self):
        self.world.manager.futures.delete(TP)

    def _cut(self, offset, how):
        is_full = offset > self.log.log_end_offset
        super()._cut(offset, how)
        futures = self.world.manager.futures
        (futures.current_restarted if is_full else futures.current_truncated)(TP, offset)

    def go_on(self, world):
        if TP in world.manager.futures:
            log = world.manager.get_log(TP)
            before = story_of(log).values
            moved = completed(world, log)
            # A crash may have taken a deletion of records back in one directory only.
            assert moved.log_start_offset <= max(self.start_max, log.log_start_offset)
            left = {at: it for at, it in before.items() if at >= moved.log_start_offset}
            assert story_of(moved).values == left, "it arrives as it left"


def copy_slice(log, future):
    """Copy what comes next; whether there was anything."""
    if future.log_end_offset < log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset)
    data = bytes_of(log.read(future.log_end_offset, SLICE_BYTES, isolation=FetchIsolation.LOG_END))
    future.append_as_follower(data)
    future.maybe_increment_high_watermark(log.high_watermark)
    future.maybe_increment_log_start_offset(min(log.log_start_offset, future.high_watermark))
    return bool(data)


def completed(world, log):
    """The log in its new place."""
    while copy_slice(log, world.manager.futures.get(TP)):
        pass
    return world.manager.complete_move(TP)
