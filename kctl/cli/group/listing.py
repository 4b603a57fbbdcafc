"""Reports brokers that did not list their groups."""

from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.session import Session

if TYPE_CHECKING:
    from kctl.admin.group_descriptions import GroupList


def report_missing_brokers(session: Session, found: "GroupList") -> int:
    """Report the brokers whose groups are missing from a list; return the exit status."""
    for broker_id, error in found.errors.items():
        session.output.say(f"error: broker {broker_id} did not list its groups: {error}")
    return FAILED if found.errors else DONE
