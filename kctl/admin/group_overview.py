"""Describes groups with everything that `kctl group describe` shows: members, offsets and lag."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.selection import did_you_mean, is_pattern, matching_groups, select_groups
from kctl.errors import UnreachableError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_descriptions import GroupDescription, GroupList, PartitionLag


@dataclass(slots=True)
class GroupOverview:
    """Groups with the lag of each partition that they have committed or been assigned."""

    groups: "list[tuple[GroupDescription, list[PartitionLag]]]" = field(default_factory=list)
    # Unknown names with a hint, or None.
    missing: dict[str, str | None] = field(default_factory=dict)
    # The brokers' lists of groups, with the errors of brokers; None if names alone were enough.
    listing: "GroupList | None" = None


async def describe_groups(admin: "AdminClient", names: Sequence[str] = ()) -> GroupOverview:
    """Return the groups that names and globs select, or all without names.

    A group without members exists as long as it has committed offsets. Raise UnreachableError,
    ApiError.
    """
    found = GroupOverview()
    described: list[GroupDescription] = []
    exact = [name for name in names if not is_pattern(name)]
    if not names or len(exact) < len(names):
        found.listing = await admin.groups.list_groups()
        globs = [name for name in names if is_pattern(name)]
        listed = matching_groups(found.listing.groups, globs)
        described = await admin.groups.describe_listed(
            [group for group in listed if group.group_id not in exact]
        )
    described += await admin.groups.describe(exact)
    missing = []
    for group in described:
        lags = await admin.groups.lag(group)
        if group.error is not None and not lags:
            missing.append(group.group_id)
        else:
            found.groups.append((group, lags))
    if missing:
        listing = found.listing or await admin.groups.list_groups()
        known = [group.group_id for group in listing.groups]
        found.missing = {name: did_you_mean(name, known) for name in missing}
    return found


async def watch_groups(
    admin: "AdminClient",
    names: Sequence[str],
    every_ms: int,
    on_overview: Callable[[GroupOverview], object],
    on_unreachable: Callable[[UnreachableError], object],
) -> None:
    """Describe groups again and again, every `every_ms`, until the task is cancelled.

    Errors of the first time are raised; later, brokers may come back, so an UnreachableError is
    passed to `on_unreachable` and watching continues.
    """
    on_overview(await describe_groups(admin, names))
    while True:
        await sleep(admin.router.runtime.scheduler, every_ms)
        try:
            on_overview(await describe_groups(admin, names))
        except UnreachableError as error:
            on_unreachable(error)


async def plan_group_deletion(
    admin: "AdminClient", names: Sequence[str]
) -> "list[GroupDescription]":
    """Return the groups that `admin.groups.delete` would be asked to delete, with an `error` for
    those that do not exist. Nothing is changed."""
    return await admin.groups.describe(await select_groups(admin, names))
