"""A followed table is behind its log by at most the interval, as long as rounds take less."""

from kctl.export.export import ExportRequest
from kctl.export.follow import Follower, Held
from kctl.export.live_plan import LiveSplit
from kctl.export.manifest import ManifestRow
from kctl.export.options import ExportOptions
from kctl.model import TopicPartition
from kctl.runtime.future import sleep
from tests.support.virtual_runtime import virtual_runtime

ORDERS = TopicPartition("orders", 0)


class SlowSource:
    """A partition that gains ten records a second, which take a fifth of that time to write."""

    def __init__(self, runtime):
        self._runtime = runtime
        self.looks = []

    async def look(self, request, known):
        now_ms = self._runtime.clock.monotonic_ms()
        self.looks.append(now_ms)
        return Held({ORDERS: (0, now_ms // 100)})

    async def with_schema(self, request):
        return request

    async def plan(self, request, wanted):
        return [LiveSplit(*ORDERS, first, end) for first, end in wanted.get(ORDERS, ())]

    async def write(self, request, split, attempt):
        await sleep(self._runtime.scheduler, (split.end_offset - split.first_offset) * 20)
        yield ManifestRow(*ORDERS, split.first_offset, split.end_offset)


def test_a_round_begins_early_enough_to_end_with_the_interval(tmp_path):
    runtime = virtual_runtime()
    source = SlowSource(runtime)
    ends = []

    def note(_caught):
        ends.append(runtime.clock.monotonic_ms())

    request = ExportRequest([], str(tmp_path / "table"), ExportOptions())
    follower = Follower(runtime, source, request, every_ms=10_000, on_commit=note)
    task = runtime.scheduler.spawn(follower.run())
    runtime.scheduler.advance(200_000)
    task.cancel()
    runtime.scheduler.settle()
    # A record that comes right after a look is committed at the end of the next round.
    looks = source.looks[-len(ends) - 1 :]
    lags = [end - look for look, end in zip(looks, ends, strict=False)]
    assert len(ends) > 15
    # Rounds differ by a record or two.
    assert max(lags[3:]) <= 10_100
    assert min(lags[3:]) > 9_000
