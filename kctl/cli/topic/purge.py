"""kctl topic purge: deletes the oldest records of partitions, or all.

Kafka 2.7: kafka.admin.DeleteRecordsCommand; KIP-107
"""

from typing import Annotated

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.positions import parse_position
from kctl.cli.records.deletion import delete_planned
from kctl.cli.session import Session
from kctl.cli.topic.scope import partitions_named


def purge(
    session: Session,
    topics: Annotated[
        list[str],
        Argument(metavar="TOPIC[:P,P]", help="Names or globs, or some partitions."),
    ],
    before: Annotated[
        str,
        Option(
            "--before",
            metavar="POSITION",
            help="Delete what precedes an offset (42), a time (@2026-01-31, in UTC without a "
            "zone; @-1h), or the last N records (-N).",
        ),
    ] = "latest",
) -> int:
    """Delete the records of topics, or the oldest of them. The topics and their settings remain.

    The command shows the plan and asks first. Records that arrive after the plan are not deleted.
    Brokers refuse to delete records of compacted topics, unless their cleanup.policy also includes
    delete.

    \b
    Examples:
      kctl topic purge orders --dry-run
      kctl topic purge orders --before @-7d
      kctl topic purge orders:0,1 --before 4200 --yes
    """
    from kctl.admin.record_deletion import plan_record_deletion

    position = parse_position(before, session.now_ms())
    scope = partitions_named(topics)
    return delete_planned(
        session,
        lambda admin: plan_record_deletion(admin, scope, position),
        f"No topic matches {' '.join(topics)}",
    )
