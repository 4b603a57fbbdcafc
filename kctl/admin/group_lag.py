"""How far groups are behind: in records, bytes and time, and where their lags go.

Bytes are estimated: the share of the leader's log that the lag's offsets are of all its offsets.
The time is that between the first record that the group has not committed and the last record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.group_overview import GroupOverview, describe_groups
from kctl.admin.lag_trend import LagSample, LagWindow, Trend, worst
from kctl.admin.record_times import record_times
from kctl.errors import KctlError, UnreachableError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_descriptions import GroupDescription, PartitionLag


@dataclass(slots=True)
class MeasuredLag:
    """The lag of a group in one partition; None where it is unknown or nothing is committed."""

    partition: TopicPartition
    committed_offset: int | None
    end_offset: int | None
    records: int | None
    bytes: int | None = None
    # The timestamp of the first record that is not committed, and how far the last one is later.
    unread_since_ms: int | None = None
    time_ms: int | None = None
    trend: Trend = Trend.UNKNOWN
    error: KctlError | None = None
    # The records between both ends of the log.
    log_records: int | None = None


@dataclass(slots=True)
class GroupLag:
    """The lags of a group by partition, and their totals."""

    group: "GroupDescription"
    partitions: list[MeasuredLag]

    @property
    def records(self) -> int | None:
        """Return the sum of the known lags in records."""
        return _sum(it.records for it in self.partitions)

    @property
    def uncommitted(self) -> list[MeasuredLag]:
        """Return the partitions without a committed offset, which the lags leave out."""
        return [it for it in self.partitions if it.committed_offset is None and it.error is None]

    @property
    def bytes(self) -> int | None:
        """Return the sum of the known lags in bytes."""
        return _sum(it.bytes for it in self.partitions)

    @property
    def time_ms(self) -> int | None:
        """Return the longest of the known lags in time."""
        return max((it.time_ms for it in self.partitions if it.time_ms is not None), default=None)

    @property
    def trend(self) -> Trend:
        """Return the worst of the trends of partitions with a committed offset."""
        return worst(it.trend for it in self.partitions if it.records is not None)


@dataclass(slots=True)
class LagReport:
    """The lags of all groups at a time, and what was not found."""

    time_ms: int
    overview: GroupOverview
    groups: list[GroupLag] = field(default_factory=list)
    # Why bytes are missing, if they are.
    sizes_error: KctlError | None = None


class LagWatch:
    """Measures the lags of groups again and again, and remembers samples for their trends."""

    def __init__(self, admin: "AdminClient", names: Sequence[str] = ()) -> None:
        """Watch the groups that names and globs select, or all without names."""
        self._admin = admin
        self._names = names
        self._windows: dict[tuple[str, TopicPartition], LagWindow] = {}

    async def sample(self) -> tuple[int, GroupOverview]:
        """Add a sample of each partition; return its time and the groups. Raise
        UnreachableError, ApiError."""
        overview = await describe_groups(self._admin, self._names)
        now_ms = self._admin.router.runtime.clock.wall_ms()
        for group, lags in overview.groups:
            for lag in lags:
                if lag.committed_offset is not None and lag.log_end_offset is not None:
                    key = (group.group_id, lag.partition)
                    window = self._windows.setdefault(key, LagWindow())
                    window.add(LagSample(now_ms, lag.committed_offset, lag.log_end_offset))
        # What is not there any more needs no window.
        known = {(group.group_id, lag.partition) for group, lags in overview.groups for lag in lags}
        for key in self._windows.keys() - known:
            del self._windows[key]
        return now_ms, overview

    async def report(self) -> LagReport:
        """Take a sample and return all lags. Raise UnreachableError, ApiError."""
        now_ms, overview = await self.sample()
        report = LagReport(now_ms, overview)
        report.groups = [
            GroupLag(group, [self._measured(group, lag, now_ms) for lag in lags])
            for group, lags in overview.groups
        ]
        lagging = [
            (lag, measured)
            for (_, lags), found in zip(overview.groups, report.groups, strict=True)
            for lag, measured in zip(lags, found.partitions, strict=True)
            if measured.records is not None
        ]
        report.sizes_error = await self._add_bytes(lagging)
        await self._add_times([measured for _, measured in lagging])
        return report

    async def watch(
        self,
        every_ms: int,
        is_last: "Callable[[LagReport], bool]",
        on_unreachable: "Callable[[UnreachableError], object]",
    ) -> None:
        """Report every `every_ms` until `is_last` returns True or the task is cancelled. Errors of
        the first time are raised; later, an UnreachableError is passed to `on_unreachable`."""
        is_over = is_last(await self.report())
        while not is_over:
            await sleep(self._admin.router.runtime.scheduler, every_ms)
            try:
                is_over = is_last(await self.report())
            except UnreachableError as error:
                on_unreachable(error)

    async def report_after(self, window_ms: int, every_ms: int) -> LagReport:
        """Take samples for `window_ms`, one every `every_ms`, and report then."""
        clock = self._admin.router.runtime.clock
        end_ms = clock.monotonic_ms() + window_ms
        while (left_ms := end_ms - clock.monotonic_ms()) > 0:
            await self.sample()
            await sleep(self._admin.router.runtime.scheduler, min(every_ms, left_ms))
        return await self.report()

    def _measured(self, group: "GroupDescription", lag: "PartitionLag", now_ms: int) -> MeasuredLag:
        window = self._windows.get((group.group_id, lag.partition))
        trend = Trend.UNKNOWN
        if window is not None and lag.lag is not None:
            trend = window.trend(now_ms, has_members=bool(group.members))
        return MeasuredLag(
            lag.partition,
            lag.committed_offset,
            lag.log_end_offset,
            lag.lag,
            trend=trend,
            error=lag.error,
            log_records=lag.log_records,
        )

    async def _add_bytes(
        self, lagging: "Sequence[tuple[PartitionLag, MeasuredLag]]"
    ) -> KctlError | None:
        topics = {measured.partition.topic for _, measured in lagging if measured.records}
        try:
            sizes = await _leader_sizes(self._admin, topics) if topics else {}
        except (ApiError, UnreachableError) as error:
            return error
        for lag, measured in lagging:
            size = sizes.get(measured.partition)
            measured.bytes = 0 if not measured.records else _share(lag, size)
        return None

    async def _add_times(self, lagging: Sequence[MeasuredLag]) -> None:
        behind = [it for it in lagging if it.records]
        for it in lagging:
            it.time_ms = 0 if not it.records else None
        lasts = {it.partition: (it.end_offset or 0) - 1 for it in behind}
        last_times = await record_times(self._admin.router, lasts) if lasts else {}
        # Groups differ in what they have committed of the same partition: one round for each.
        while behind:
            firsts: dict[TopicPartition, MeasuredLag] = {}
            for it in behind:
                firsts.setdefault(it.partition, it)
            offsets = {partition: it.committed_offset or 0 for partition, it in firsts.items()}
            times = await record_times(self._admin.router, offsets)
            for partition, it in firsts.items():
                _set_time(it, times.get(partition), last_times.get(partition))
            behind = [it for it in behind if it is not firsts[it.partition]]


def _set_time(it: MeasuredLag, first: int | KctlError | None, last: int | KctlError | None) -> None:
    for answer in (first, last):
        if isinstance(answer, KctlError):
            it.error = it.error or answer
    if isinstance(first, int):
        it.unread_since_ms = first
        if isinstance(last, int):
            it.time_ms = max(0, last - first)


def _share(lag: "PartitionLag", size: int | None) -> int | None:
    if size is None or lag.log_start_offset is None or lag.log_end_offset is None:
        return None
    count = lag.log_end_offset - lag.log_start_offset
    return None if count <= 0 else round(size * min(1.0, (lag.lag or 0) / count))


async def _leader_sizes(
    admin: "AdminClient", topics: Iterable[str]
) -> Mapping[TopicPartition, int]:
    """Return the size of each partition's log at its leader."""
    names = sorted(topics)
    view = await admin.router.refresh(names)
    sizes = {}
    for directory in await admin.log_dirs.describe(topics=names):
        for replica in directory.replicas:
            leader = view.leader(replica.partition)
            if leader and leader.broker_id == directory.broker_id and not replica.is_future:
                sizes[replica.partition] = replica.size_bytes
    return sizes


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
