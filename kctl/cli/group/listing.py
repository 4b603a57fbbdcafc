"""Says what lists of groups and their lags leave out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE, FAILED
from kctl.cli.session import Session
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.admin.group_descriptions import GroupList


def report_missing_brokers(session: Session, found: "GroupList") -> int:
    """Report the brokers whose groups are missing from a list; return the exit status."""
    for broker_id, error in found.errors.items():
        session.output.say(f"error: broker {broker_id} did not list its groups: {error}")
    return FAILED if found.errors else DONE


def left_out(sizes: Iterable[int | None]) -> str:
    """Return what a lag leaves out: the records of partitions without a committed offset. A size
    is None if it is unknown.

    >>> left_out([3, None])
    '3 records in 2 partitions without a committed offset'
    """
    records = list(sizes)
    return (
        f"{counted(sum(filter(None, records)), 'record')} in {counted(len(records), 'partition')} "
        "without a committed offset"
    )
