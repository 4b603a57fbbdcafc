"""LinkManager: the partitions led here that are copies of partitions of other clusters.

A topic is a link while it has the config `mirror.source`. The leader of each of its partitions
fetches from the source's leader and appends what it gets as a follower does: with its offsets, its
leader epochs and its bytes. Followers here replicate from their leader, as always.
`linked_partition` has the phases of such a partition.

Invariants:

- The leader epoch of a partition here is never below one in its log. It is raised to the source's
  before anything of that epoch is fetched, so that every election here begins a later epoch, and
  consumers do not take the metadata for outdated (KIP-320).
- A failover begins an epoch far above all of them (EPOCH_STEP), so that the source's own next
  epochs, in which it may go on to write, are not taken for this cluster's on the way back.
- Each source is asked by one task at a time, of its own. The partitions that follow it are stepped
  after its answer, and those that fail over when the loop wakes.
- Nothing is written for clients before all partitions are ready and the config is gone.

What a failover leaves behind: transactions that are open in the copy are aborted, as their
coordinator is in the other cluster. Producers of this cluster may have ids that producers of the
source had; such ids get another epoch, so that their batches are not taken for duplicates.

Kafka 2.7: kafka.server.ReplicaFetcherManager
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.links.linked_partition import LinkedPartition, PartitionPhase
from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.replication.leadership import RoleChange
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.topic_creation import TopicCreator
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.link_configs import (
    SOURCES_DIRECTORY,
    Link,
    LinkState,
    OnLoss,
    link_of,
    without_resume,
)
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.runtime.future import sleep
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import alone_in_turns, pace_of
from kctl.runtime.wakeable_sleep import WakeableSleep
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import TOPIC_CONFIGS
from kctl.work import Pace, Work, parts

if TYPE_CHECKING:
    # Loaded by the first link: few brokers have one, and all of them start.
    from kctl.broker.links.link_loop import LinkLoop
    from kctl.broker.links.source_cluster import SourceCluster, SourceLeader

# How often the source's metadata is read without a reason, and the least time between two reads.
REFRESH_MS = 5_000
REFRESH_MS_MIN = 250
# How often the settings of the source's topics are read, and of how many at once.
SETTINGS_MS = 10_000
TOPICS_PER_REQUEST = 50
# How long a condition lasts until it is logged: it is met again in between, also at a source whose
# addresses all time out.
PATIENCE_MS = 60_000
# Work of the step of a partition, in units of `Pace`.
UNITS_PER_STEP = 8
# Partitions of a topic whose link has changed, per turn.
CHANGED_PER_TURN = 200


class LinkManager:
    """The links of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        replica_manager: ReplicaManager,
        store: ClusterStore,
        dynamic_configs: DynamicConfigs,
        metadata_cache: MetadataCache,
        topic_creator: TopicCreator,
    ) -> None:
        self._runtime = runtime
        self._directory = config.given.get(SOURCES_DIRECTORY)
        self._replicas = replica_manager
        self._store = store
        self._dynamic_configs = dynamic_configs
        self._metadata = metadata_cache
        self._topic_creator = topic_creator
        self._linked: dict[TopicPartition, LinkedPartition] = {}
        self._sources: dict[str, SourceCluster] = {}
        self._loops: dict[tuple[str, int], LinkLoop] = {}
        self._warnings = RecurringWarnings(runtime, PATIENCE_MS)
        self._is_running = False
        self._is_closed = False
        self._wants_refresh = False
        self._sleep = WakeableSleep(runtime.scheduler)

    def close(self) -> None:
        """Stop following."""
        self._is_closed = True
        for loop in self._loops.values():
            loop.close()
        for source in self._sources.values():
            source.close()
        self._sleep.wake()

    # --- which partitions --------------------------------------------------------------------

    def on_role_change(self, changes: Sequence[RoleChange]) -> None:
        """Begin or end to follow (a listener of Leadership)."""
        for change in changes:
            tp = change.topic_partition
            partition = self._replicas.partitions.get(tp)
            if change.role is not Role.LEADER or partition is None or partition.read_only is None:
                if tp in self._linked:
                    self._leave(self._linked.pop(tp))
                continue
            link = link_of(self._dynamic_configs.topic(tp.topic))
            if link is not None:
                self._track(partition, link)

    def on_topic_change(self, topic: str | None) -> None:
        """Follow a topic's link that was created, fails over, or ended (a listener of configs)."""
        if topic is not None:
            alone_in_turns(self._runtime.scheduler, self._applying_link(topic))

    def _applying_link(self, topic: str) -> Work[None]:
        """Apply the link of a topic to its partitions, with a `yield` after CHANGED_PER_TURN.

        Invariant: each turn applies the link as it is then, so that the partitions have the latest
        one, whatever changed meanwhile; to apply it twice does no harm.
        """
        numbers = range(self._metadata.partition_count(topic) or 0)
        for part in parts(numbers, CHANGED_PER_TURN):
            if part[0]:
                yield
            link = link_of(self._dynamic_configs.topic(topic))
            for number in part:
                partition = self._replicas.partitions.get((topic, number))
                if partition is None or partition.role is not Role.LEADER:
                    continue
                if link is not None:
                    partition.read_only = link.refusal(topic)
                    self._track(partition, link)
                elif partition.read_only is not None:
                    self._end(partition)

    def on_log_replaced(self, partition: Partition) -> None:
        """Continue with the log of another directory (a listener of the moves)."""
        linked = self._linked.get(partition.topic_partition)
        if linked is not None and linked.phase is PartitionPhase.FOLLOWING:
            self._leave(linked)
            self._wants_refresh = True
            self._sleep.wake()

    def _track(self, partition: Partition, link: Link) -> None:
        tp = partition.topic_partition
        known = self._linked.get(tp)
        if known is None or known.partition is not partition:
            now_ms = self._runtime.clock.monotonic_ms()
            self._linked[tp] = LinkedPartition(partition, link, caught_up_ms=now_ms)
        else:
            known.link = link
            if link.state is LinkState.FAILOVER:
                # Not after the next answer of a source, which may be lost.
                self._step(known)
        if not self._is_running and not self._is_closed:
            self._is_running = True
            self._runtime.scheduler.spawn(self._run(), "links")
        self._wants_refresh = True
        self._sleep.wake()

    def _lose_sight(self, linked: LinkedPartition) -> None:
        if linked.is_caught_up():
            linked.caught_up_ms = self._runtime.clock.monotonic_ms()
        linked.source_end, linked.had_all = -1, False

    def _leave(self, linked: LinkedPartition) -> None:
        if linked.is_caught_up():
            linked.caught_up_ms = self._runtime.clock.monotonic_ms()
        if linked.loop is not None:
            linked.loop.fetcher.remove(linked.partition.topic_partition)
        linked.loop = linked.followed = None
        linked.had_all = False

    def _end(self, partition: Partition) -> None:
        """Let clients write; or, if a tool has removed the config too early, once this is safe."""
        tp = partition.topic_partition
        linked = self._linked.get(tp)
        if linked is None or linked.phase is PartitionPhase.READY:
            self._linked.pop(tp, None)
            partition.become_writable()
            self._runtime.trace.info(f"{tp}: is writable from offset {_end_of(partition)} on")
        else:
            linked.link = linked.link._replace(state=LinkState.FAILOVER)
            self._sleep.wake()

    # --- the loop ----------------------------------------------------------------------------

    async def _run(self) -> None:
        scheduler, pace = self._runtime.scheduler, pace_of(self._runtime.scheduler)
        while self._linked and self._is_open():
            self._wants_refresh = False
            self._tend_sources()
            # No source has a say in a failover.
            await self._step_each(lambda it: it.state is LinkState.FAILOVER, pace)
            self._drop_idle()
            await sleep(scheduler, REFRESH_MS_MIN)
            if not self._wants_refresh and self._is_open():
                await self._sleep.until(self._runtime.clock.monotonic_ms() + REFRESH_MS)
        self._is_running = False
        self._drop_idle()

    def _is_open(self) -> bool:
        return not self._is_closed

    def _tend_sources(self) -> None:
        """Begin to ask each source that links follow, and forget the others."""
        from kctl.broker.links.source_cluster import SourceCluster

        wanted: dict[str, dict[str, None]] = {}
        for tp, linked in self._linked.items():
            if linked.link.state is LinkState.FOLLOWING:
                wanted.setdefault(linked.link.source, {})[tp.topic] = None
        for name, topics in wanted.items():
            source = self._sources.get(name)
            if source is None:
                source = SourceCluster(self._runtime, name, self._directory)
                self._sources[name] = source
            if source.is_tended:
                source.is_wanted_again = True
            else:
                source.is_tended = True
                self._runtime.scheduler.spawn(self._tend(source, list(topics)), f"links to {name}")
        for name in [name for name in self._sources if name not in wanted]:
            self._sources.pop(name).close()

    async def _tend(self, source: "SourceCluster", topics: Sequence[str]) -> None:
        """Ask one source who leads these topics, and bring its links closer to it. A source that
        does not answer delays no link of another one."""
        pace = pace_of(self._runtime.scheduler)
        subject = f"source {source.name}"
        try:
            await source.refresh(topics)
            if self._sources.get(source.name) is not source:
                return
            if source.problem is None:
                self._warnings.resolve(subject)
            else:
                self._warnings.warn(subject, f"{subject} cannot be used: {source.problem}")
            await self._step_each(
                lambda it: it.source == source.name and it.state is LinkState.FOLLOWING, pace
            )
            self._drop_idle()
            await self._follow_topics(source, pace)
        finally:
            source.is_tended = False
            if source.is_wanted_again:
                source.is_wanted_again = False
                self._wants_refresh = True
                self._sleep.wake()

    async def _step_each(self, selects: Callable[[Link], bool], pace: Pace) -> None:
        for linked in list(self._linked.values()):
            # Either may have changed in an earlier turn.
            if not self._is_open():
                return
            is_linked = self._linked.get(linked.partition.topic_partition) is linked
            if is_linked and selects(linked.link):
                self._step(linked)
                await pace.spend(UNITS_PER_STEP)

    def _drop_idle(self) -> None:
        for key in [key for key, loop in self._loops.items() if not len(loop.fetcher)]:
            self._loops.pop(key).close()

    def _step(self, linked: LinkedPartition) -> None:
        """Bring a partition closer to what its link asks for."""
        if linked.is_busy or linked.partition.log is None:
            return
        if linked.link.state is LinkState.FAILOVER:
            if linked.phase not in (PartitionPhase.PREPARING, PartitionPhase.READY):
                self._leave(linked)
                linked.move_to(PartitionPhase.PREPARING)
                self._start(linked, self._prepare(linked))
            return
        decision = linked.link.resumes.get(linked.partition.topic_partition.partition)
        if linked.phase is PartitionPhase.STOPPED and decision is None:
            return
        if decision is OnLoss.STOP:
            self._leave(linked)
            linked.move_to(PartitionPhase.WAITING, "compares again")
            self._start(linked, self._forget_resume(linked))
        else:
            found = self._leader_of(linked)
            if isinstance(found, str):
                self._leave(linked)
                linked.move_to(PartitionPhase.WAITING, found)
            elif decision is OnLoss.RESTART:
                self._leave(linked)
                linked.move_to(PartitionPhase.RESTARTING)
                self._start(linked, self._restart(linked, found))
            elif found.leader_epoch > linked.partition.leader_epoch:
                self._leave(linked)
                linked.move_to(PartitionPhase.WAITING, "raises its leader epoch")
                self._start(linked, self._raise(linked, found.leader_epoch))
            elif linked.followed != found or not self._is_followed(linked):
                self._follow(linked, found)

    def _is_followed(self, linked: LinkedPartition) -> bool:
        return linked.loop is not None and linked.partition.topic_partition in linked.loop.fetcher

    def _leader_of(self, linked: LinkedPartition) -> "SourceLeader | str":
        """Return the source's leader, or why there is none to follow."""
        tp, link = linked.partition.topic_partition, linked.link
        source = self._sources.get(link.source)
        if source is None or source.problem is not None:
            why = "not asked yet" if source is None else source.problem
            return f"source {link.source} cannot be used: {why}"
        view = source.view
        if view.cluster_id != link.cluster_id:
            return f"source {link.source} is cluster {view.cluster_id}, not {link.cluster_id}"
        if tp.topic in view.errors:
            return f"the source reports {ErrorCode(view.errors[tp.topic]).name} for the topic"
        found = view.leaders.get(tp)
        return found if found is not None else "the source's partition has no leader"

    def _follow(self, linked: LinkedPartition, leader: "SourceLeader") -> None:
        from kctl.broker.links.link_loop import LinkLoop

        self._leave(linked)
        # The new leader has not said yet what it has.
        linked.source_end = -1
        source = self._sources[linked.link.source]
        key = (source.name, leader.broker_id)
        loop = self._loops.get(key)
        if loop is None:
            loop = LinkLoop(
                self._runtime, self._replicas, lambda: source.channel_to(leader.broker_id), self
            )
            self._loops[key] = loop
        linked.loop, linked.followed = loop, leader
        linked.move_to(PartitionPhase.FOLLOWING)
        loop.add(linked.partition, leader.leader_epoch)

    def _start(self, linked: LinkedPartition, work: Coroutine[Any, Any, None]) -> None:
        from kctl.broker.links.link_fetcher import BACKOFF_MS

        async def alone() -> None:
            try:
                await work
            except KctlError as error:
                # The next round tries again.
                linked.move_to(PartitionPhase.WAITING, str(error))
                await sleep(self._runtime.scheduler, BACKOFF_MS)
            finally:
                if linked.phase in (PartitionPhase.RESTARTING, PartitionPhase.PREPARING):
                    # Neither done nor refused: the work was ended.
                    linked.move_to(PartitionPhase.WAITING)
                linked.is_busy = False
                self._wants_refresh = True
                self._sleep.wake()

        linked.is_busy = True
        self._runtime.scheduler.spawn(alone(), f"link-{linked.partition.topic_partition}")

    async def _raise(self, linked: LinkedPartition, leader_epoch: int) -> None:
        from kctl.broker.links.takeover import raise_epoch

        await raise_epoch(self._runtime, self._store, linked.partition, leader_epoch)

    async def _restart(self, linked: LinkedPartition, leader: "SourceLeader") -> None:
        """Remove the copy, on all its replicas, so that it is copied again."""
        from kctl.broker.links.restart import all_replicas_are_empty, discard_copy

        partition, tp = linked.partition, linked.partition.topic_partition
        source = self._sources[linked.link.source]
        start = await source.start_offset(tp, leader)
        removed = discard_copy(self._runtime, self._replicas, partition, start)
        if removed is not None:
            linked.truncated = removed
            self._runtime.trace.warning(
                f"{tp}: the copy up to offset {removed[0] - 1} was removed by request; "
                f"{linked.link.source} is copied from offset {start} on"
            )
        await all_replicas_are_empty(self._runtime, partition)
        await self._forget_resume(linked)

    async def _forget_resume(self, linked: LinkedPartition) -> None:
        """Note that the decision on a partition is carried out."""
        tp = linked.partition.topic_partition
        await self._store.update_entity_config(
            TOPIC_CONFIGS, tp.topic, lambda stored: without_resume(stored, tp.partition)
        )
        left = {n: it for n, it in linked.link.resumes.items() if n != tp.partition}
        linked.link = linked.link._replace(resumes=left)
        linked.move_to(PartitionPhase.WAITING)

    async def _prepare(self, linked: LinkedPartition) -> None:
        from kctl.broker.links.takeover import begin_takeover, end_takeover

        partition = linked.partition
        # Not again when the followers were too slow for the first attempt.
        if linked.own_epoch != partition.leader_epoch:
            await begin_takeover(self._runtime, self._store, self._replicas, partition)
            linked.own_epoch = partition.leader_epoch
        await end_takeover(self._runtime, partition)
        linked.move_to(PartitionPhase.READY)
        tp = partition.topic_partition
        self._runtime.trace.info(f"{tp}: is ready to take over from {linked.link.source}")
        if link_of(self._dynamic_configs.topic(tp.topic)) is None:
            self._end(partition)

    # --- the topics --------------------------------------------------------------------------

    async def _follow_topics(self, source: "SourceCluster", pace: Pace) -> None:
        """Add partitions, and change settings, as the source did. The leader of partition 0 does
        this for its topic."""
        topics = [it.topic for it in list(self._linked) if self._follows(it, source)]
        for topic in topics:
            await pace.spend()
            if self._follows(TopicPartition(topic, 0), source):
                await self._attempt(topic, self._add_partitions(topic, source))
        now_ms = self._runtime.clock.monotonic_ms()
        if topics and now_ms >= source.settings_due_ms:
            source.settings_due_ms = now_ms + SETTINGS_MS
            await self._follow_settings(topics, source, pace)

    def _follows(self, tp: TopicPartition, source: "SourceCluster") -> bool:
        """Return whether the partition is the first one of a topic that follows this source."""
        linked = self._linked.get(tp)
        return (
            tp.partition == 0
            and linked is not None
            and linked.link.source == source.name
            and linked.phase is PartitionPhase.FOLLOWING
            and self._is_open()
        )

    async def _add_partitions(self, topic: str, source: "SourceCluster") -> None:
        wanted = source.view.partition_counts.get(topic, 0)
        if wanted > (self._metadata.partition_count(topic) or wanted):
            await self._topic_creator.add_partitions(topic, wanted, None)
            self._runtime.trace.info(f"Topic {topic} has {wanted} partitions now, as its source")

    async def _follow_settings(
        self, topics: Sequence[str], source: "SourceCluster", pace: Pace
    ) -> None:
        for part in parts(topics, TOPICS_PER_REQUEST):
            try:
                overrides = await source.topic_overrides(part)
            except KctlError as error:
                # A source that does not answer is asked once.
                self._warnings.warn(
                    f"settings of source {source.name}",
                    f"Links do not follow the settings of source {source.name}: {error}",
                )
                return
            for topic, found in overrides.items():
                await pace.spend()
                if self._follows(TopicPartition(topic, 0), source):
                    await self._attempt(topic, self._take_settings(topic, found))

    async def _take_settings(self, topic: str, overrides: Mapping[str, str] | KctlError) -> None:
        from kctl.broker.links.topic_settings import followed_settings

        if isinstance(overrides, KctlError):
            raise overrides
        before = self._dynamic_configs.topic(topic)
        if followed_settings(before, overrides) == dict(before):
            return

        def update(stored: Mapping[str, str]) -> Mapping[str, str]:
            return followed_settings(stored, overrides) if link_of(stored) else stored

        await self._store.update_entity_config(TOPIC_CONFIGS, topic, update)

    async def _attempt(self, topic: str, change: Coroutine[Any, Any, None]) -> None:
        try:
            await change
        except KctlError as error:
            self._warnings.warn(topic, f"Topic {topic} cannot be changed as its source: {error}")

    # --- what the loops report ---------------------------------------------------------------

    def fetched(self, tp: TopicPartition, high_watermark: int) -> None:
        """Note the end of the source's partition."""
        linked = self._linked.get(tp)
        if linked is not None:
            # What is missing now came after the last response, which the source holds back while
            # there is nothing new.
            was_caught_up = linked.had_all
            linked.source_end = high_watermark
            if linked.phase is PartitionPhase.FOLLOWING:
                linked.detail = ""
            linked.had_all = linked.lag() == 0
            if was_caught_up or linked.had_all:
                linked.caught_up_ms = self._runtime.clock.monotonic_ms()

    def failed(self, tp: TopicPartition, why: str) -> None:
        """Note that a partition is not copied now. What its source has is unknown until the next
        answer, so that its lag in time grows."""
        linked = self._linked.get(tp)
        if linked is not None and linked.phase is PartitionPhase.FOLLOWING:
            self._lose_sight(linked)
            linked.detail = why

    def was_truncated(self, tp: TopicPartition, before: int, after: int) -> None:
        """Report records that were removed because the source does not have them."""
        linked = self._linked.get(tp)
        if linked is not None:
            linked.truncated = (before, after)
            self._runtime.trace.warning(
                f"{tp}: the records from offset {after} to {before - 1} were removed, because "
                f"{linked.link.source} does not have them"
            )

    def stop(self, tp: TopicPartition, why: str) -> None:
        """Stop following a partition for good."""
        linked = self._linked.get(tp)
        if linked is not None and linked.phase is PartitionPhase.FOLLOWING:
            self._leave(linked)
            linked.move_to(PartitionPhase.STOPPED, why)
            self._runtime.trace.warning(f"{tp}: no longer follows {linked.link.source}: {why}")

    def find_leader(self, tp: TopicPartition | None, why: str) -> None:
        """Ask the source who leads this partition; None: a loop lost its leader."""
        linked = None if tp is None else self._linked.get(tp)
        if linked is not None and linked.phase is PartitionPhase.FOLLOWING:
            self._leave(linked)
            linked.move_to(PartitionPhase.WAITING, f"looks for a leader: {why}")
        self._wants_refresh = True
        self._sleep.wake()

    def partitions(self) -> Iterable[LinkedPartition]:
        """Return the partitions of links that this broker leads."""
        return self._linked.values()

    def among(self, topic: str, numbers: Iterable[int]) -> list[LinkedPartition]:
        """Return those of the partitions of a link that this broker leads."""
        found = (self._linked.get(TopicPartition(topic, number)) for number in numbers)
        return [it for it in found if it is not None]

    def status(self, topic: str, numbers: Iterable[int]) -> str:
        """Return those of the partitions of a link that this broker leads, as JSON."""
        now_ms = self._runtime.clock.monotonic_ms()
        rows = [it.document(now_ms) for it in self.among(topic, numbers)]
        return json.dumps(rows, separators=(",", ":"))


def read_only(topic: str, overrides: Mapping[str, str]) -> str | None:
    """Return why producers may not write to a topic with these overrides; None if they may."""
    link = link_of(overrides)
    return None if link is None else link.refusal(topic)


def _end_of(partition: Partition) -> int:
    return -1 if partition.log is None else partition.log.log_end_offset
