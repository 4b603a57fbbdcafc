"""kctl cluster quorum."""

from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.cli.units import format_instant

if TYPE_CHECKING:
    from kctl.admin.quorum import QuorumReplica

_COLUMNS = (
    "node", "role", "log_end_offset", "lag", "last_fetch", "last_caught_up", "listeners",
)  # fmt: skip


def quorum(session: Session) -> int:
    """Show the controllers of a cluster without ZooKeeper, and who has the metadata log.

    The leader is the active controller. Followers vote; observers, such as brokers, only fetch. The
    cluster must be Kafka 3.3 or later in KRaft mode.

    \b
    Examples:
      kctl cluster quorum
      kctl cluster quorum -o json
    """
    found = session.run(lambda admin: admin.quorum.describe())
    rows = [_row(it) for it in found.replicas]
    document = {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "replicas": rows,
    }
    heading = (
        f"leader {found.leader_id}, epoch {found.leader_epoch}, "
        f"high watermark {found.high_watermark}"
    )
    session.output.show_one(document, [Table(_COLUMNS, rows, heading)], name="leader")
    return DONE


def _row(replica: "QuorumReplica") -> dict[str, Any]:
    return {
        "node": replica.node_id,
        "role": str(replica.role),
        "log_end_offset": replica.log_end_offset,
        "lag": replica.lag,
        "last_fetch": _instant(replica.last_fetch_ms),
        "last_caught_up": _instant(replica.last_caught_up_ms),
        "directory_id": replica.directory_id,
        "listeners": list(replica.listeners),
    }


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else format_instant(timestamp_ms)
