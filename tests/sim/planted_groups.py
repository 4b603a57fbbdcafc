"""Bugs of groups on ZooKeeper, each planted in the real code; `python -m tests.sim.planted_groups`
looks for the first seed that sees each.

A planter takes `patch(owner, name, value)`, which is pytest's `monkeypatch.setattr` or anything
that undoes it.
"""

import sys
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from kctl.kafka.claims import Claims, Consumption
from kctl.kafka.group_membership import GroupMembership, ZooKeeperOffsets
from kctl.kafka.rebalance import Lease
from kctl.simulation.zookeeper_groups import play
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import (
    consumer_id_path,
    encode_consumer_offset,
    encode_owner,
    offset_path,
    owner_path,
)
from kctl.store.errors import NodeExistsError, NoNodeError

SEEDS_MAX = 1_000


@dataclass(frozen=True)
class Bug:
    """A bug; `seed` saw it when this was written."""

    seed: int
    plant: Any


PLANTED: dict[str, Bug] = {}


def planted(seed):
    """Enter a planter under its own name."""

    def enter(planter):
        PLANTED[planter.__name__] = Bug(seed, planter)
        return planter

    return enter


def _read_without_watch(patch, name):
    """Let a read of ConsumerRegistry whose last argument is a watch set none."""
    original = getattr(ConsumerRegistry, name)

    async def read(self, what, watch):
        del watch
        return await original(self, what, lambda _event: None)

    patch(ConsumerRegistry, name, read)


@planted(3)
def claims_without_a_check(patch):
    """A claim replaces whatever owner there is."""

    async def claim(self, group_id, consumer_id, threads):
        for it, thread in threads.items():
            path = owner_path(group_id, *it)
            await self.make_path(path.rpartition("/")[0])
            await self.delete_if_exists(path)
            data = encode_owner(consumer_id, thread)
            try:
                await self.call(
                    lambda path=path, data=data: self.store.create(path, data, ephemeral=True)
                )
            except NodeExistsError:
                continue

    patch(ConsumerRegistry, "claim", claim)


@planted(1)
def commits_without_a_check(patch):
    """A commit is a plain write, also when another consumer owns the partition."""

    async def commit(self, group_id, consumer_id, offsets):
        del consumer_id
        for it, offset in offsets.items():
            await self.set_or_create(offset_path(group_id, *it), encode_consumer_offset(offset))

    patch(ConsumerRegistry, "commit", commit)


@planted(3)
def trusts_a_stale_view(patch):
    """Members are read without a watch: who joins later is not seen."""
    _read_without_watch(patch, "members")


@planted(1)
def delivers_after_the_session(patch):
    """A member that was stopped goes on with what it had: there is no lease."""
    patch(Lease, "is_held", lambda *_: True)


@planted(584)
def counts_the_lease_from_the_answer(patch):
    """The lease begins when the answer arrives, however old it is."""
    original = GroupMembership._ping

    def ping(self):
        lease_clock = self._clock

        def answered(lease, _sent_ms):
            lease.until_ms = lease_clock.monotonic_ms() + lease._length_ms * 3 // 2

        patch(Lease, "answered", answered)
        return original(self)

    patch(GroupMembership, "_ping", ping)


@planted(10)
def releases_before_it_stops(patch):
    """The owner znode goes first, the delivery ends later."""

    async def give_up(self, moves):
        self._receiver.stop(moves.lost)
        self.rebalance.stopped(moves.lost)
        await self._registry.release(self._group, self.rebalance.consumer_id, moves.release)
        self._receiver.stop(moves.release)
        self.rebalance.stopped(moves.release)
        self.rebalance.released(moves.release)

    patch(GroupMembership, "_give_up", give_up)


@planted(1)
def removes_former_claims_without_a_check(patch):
    """What a former session owned is deleted, also when another consumer owns it."""

    async def remove_former(self, group_id, consumer_id, claims):
        for it in claims:
            await self.delete_if_exists(owner_path(group_id, *it))
        await self.delete_if_exists(consumer_id_path(group_id, consumer_id))

    patch(ConsumerRegistry, "remove_former", remove_former)


@planted(0)
def forgets_that_the_session_ended(patch):
    """Claims of a session that has ended stay open in the next one."""

    def session_ended(self):
        self._sessions += 1
        self._remember_former()
        self.rebalance.session_ended()

    def open_(self, partition, thread, lease, committed):
        self._open.pop(partition, None)
        return original(self, partition, thread, lease, committed)

    original = Claims.open
    patch(Claims, "open", open_)
    patch(GroupMembership, "_session_ended", session_ended)
    patch(GroupMembership, "_end_delivery", lambda self: {})


@planted(0)
def gives_up(patch):
    """A round that fails is the last one."""

    async def recover(self, error):
        await self._leave_after(error)
        self._is_closing = True

    patch(GroupMembership, "_recover", recover)


@planted(1)
def looks_once_for_an_owner(patch):
    """Nothing looks again when another consumer still owns a partition."""
    original = ConsumerRegistry.owners

    async def owners(self, group_id, partitions, watch):
        del watch
        return await original(self, group_id, partitions, lambda _event: None)

    patch(ConsumerRegistry, "owners", owners)
    patch(GroupMembership, "_pace_ms", lambda *_: None)


@planted(0)
def sorts_itself_first(patch):
    """Each member puts itself first: parts overlap."""
    from kctl.kafka import group_membership

    original = group_membership.assign

    def assign(members, partitions, strategy, hashed_text):
        renamed = {
            f"~{name}" if n % 2 else name: it for n, (name, it) in enumerate(members.items())
        }
        return {
            it: thread.removeprefix("~")
            for it, thread in original(renamed, partitions, strategy, hashed_text).items()
        }

    patch(group_membership, "assign", assign)


@planted(0)
def topics_never_grow(patch):
    """Partitions that come later are not seen."""
    _read_without_watch(patch, "partitions")


@planted(238)
def gives_up_what_it_only_asked_for(patch):
    """A member that leaves deletes the owner znodes of all partitions that it tried to claim. The
    simulation found it when this was written."""

    async def mine(self):
        return self.rebalance.to_look_at({})

    patch(GroupMembership, "_mine", mine)


@planted(539)
def reads_offsets_before_it_claims(patch):
    """Where to begin is looked up while the former owner may still commit."""

    async def take(self, moves):
        wanted = {**moves.adopt, **moves.claim}
        offsets = await self._do(self._offsets.fetch(sorted(wanted, key=str)))
        fetch, self._offsets = self._offsets, _Known(offsets, self._offsets)
        try:
            return await original(self, moves)
        finally:
            self._offsets = fetch

    original = GroupMembership._take
    patch(GroupMembership, "_take", take)


class _Known:
    def __init__(self, offsets, other):
        self.offsets, self.commit = offsets, other.commit

    async def fetch(self, _partitions):
        return self.offsets


@planted(0)
def the_offset_moves_early(patch):
    """The position passes a message before the application has it."""

    def hand_out(self, claim, next_offset, now_ms):
        claim.position = next_offset if claim.may_deliver(now_ms) else claim.position
        return original(self, claim, next_offset, now_ms)

    original = Consumption.hand_out
    patch(Consumption, "hand_out", hand_out)


@planted(86)
def commits_are_replayed(patch):
    """A commit whose session ended is sent again in the next session, under its new id."""

    async def commit(self, consumer_id, offsets):
        for _ in range(20):
            try:
                return await original(self, consumer_id, offsets)
            except NoNodeError:
                raise
            except Exception:  # noqa: BLE001 - a bug
                await self._registry.connected()
                for it, offset in offsets.items():
                    path = offset_path(self._group, *it)
                    try:
                        await self._registry.set_or_create(path, encode_consumer_offset(offset))
                    except Exception:  # noqa: BLE001, S112 - a bug
                        continue
        return None

    original = ZooKeeperOffsets.commit
    patch(ZooKeeperOffsets, "commit", commit)


def first_seed(name, seeds_max=SEEDS_MAX):
    """(name, seed, violation) of the first seed that sees a planted bug. It stays planted: for a
    process of its own."""
    PLANTED[name].plant(setattr)
    for seed in range(seeds_max):
        violation = play(seed).violation
        if violation is not None:
            return name, seed, violation
    return name, None, ""


def main(names):
    """Look for these, or for all."""
    with get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        for name, seed, violation in pool.imap_unordered(
            first_seed, names or list(PLANTED), chunksize=1
        ):
            print(f"{name:40} {seed} {violation}", flush=True)  # noqa: T201 - its result


if __name__ == "__main__":
    main(sys.argv[1:])
