"""Connects a reassignment command to its cluster: by its brokers, or with --zookeeper by its
znodes.
"""

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.cli.declaration.declarations import Option
from kctl.cli.session import Change, Question, Session

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.throttle_records import ThrottleRecords
    from kctl.runtime.future import Task

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

ZooKeeperOption = Annotated[
    str | None,
    Option(
        "--zookeeper",
        metavar="HOST:PORT[/PATH]",
        help="Through ZooKeeper, for clusters older than Kafka 2.4.",
    ),
]


def run_on_cluster(
    session: Session,
    zookeeper: str | None,
    work: "Callable[[ReassignmentCluster], Coroutine[Any, Any, T]]",
    on_start: "Callable[[Task[T]], object] | None" = None,
) -> T:
    """Run `work` on the cluster and return its result; raise UsageError if ZooKeeper knows none."""
    from kctl.admin.reassignment_cluster import on_cluster

    if zookeeper is not None:
        session.settings.guard.check_may_use_zookeeper()
    records = throttle_records(session)
    guard = session.settings.guard

    def checked(cluster: "ReassignmentCluster") -> Coroutine[Any, Any, T]:
        guard.check_cluster(cluster.cluster_id)
        return work(cluster)

    return session.run(
        lambda admin: on_cluster(admin, zookeeper, records, checked),
        on_start,
        by_brokers=zookeeper is None,
    )


def change_on_cluster(
    session: Session,
    plan: "Callable[[ReassignmentCluster], Coroutine[Any, Any, P]]",
    question: Callable[[P], Question | None],
    execute: "Callable[[ReassignmentCluster, P], Coroutine[Any, Any, R]]",
    *,
    zookeeper: str | None = None,
    on_start: "Callable[[Task[Change[P, R]]], object] | None" = None,
) -> Change[P, R]:
    """Plan, ask and execute a change of the cluster; see `Session.change`."""
    return run_on_cluster(
        session,
        zookeeper,
        lambda cluster: session.carry_out(cluster, plan, question, execute),
        on_start,
    )


def throttle_records(session: Session) -> "ThrottleRecords":
    """Return the records of this user's throttles, below $XDG_STATE_HOME or ~/.local/state."""
    from kctl.admin.throttle_records import ThrottleRecords

    base = os.environ.get("XDG_STATE_HOME")
    directory = Path(base) if base else Path.home() / ".local" / "state"
    return ThrottleRecords(session.runtime.disk, str(directory / "kctl" / "throttles"))
