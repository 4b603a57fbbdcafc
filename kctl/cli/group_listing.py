"""Groups by name or glob, and brokers that did not list theirs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import matching
from kctl.cli.session import Session

if TYPE_CHECKING:
    from kctl.admin.groups import GroupList, GroupListing


def matching_groups(
    groups: "Sequence[GroupListing]", patterns: Sequence[str]
) -> "list[GroupListing]":
    """Those that `patterns` name; all if there are none."""
    wanted = set(matching([group.group_id for group in groups], patterns))
    return [group for group in groups if group.group_id in wanted]


def tell_silent_brokers(session: Session, found: "GroupList") -> int:
    """Name the brokers whose groups are missing from a list; the exit status."""
    for broker_id, error in found.errors.items():
        session.output.say(f"error: broker {broker_id} did not list its groups: {error}")
    return FAILED if found.errors else DONE
