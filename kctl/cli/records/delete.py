"""kctl records: deletes the oldest records of partitions.

Kafka 2.7: kafka.admin.DeleteRecordsCommand; KIP-107
"""

from typing import Annotated

from kctl.cli.declaration.command import DANGEROUS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.positions import parse_position
from kctl.cli.records.deletion import delete_planned
from kctl.cli.session import Session
from kctl.cli.text_files import read_text
from kctl.cli.topic.scope import partitions_named
from kctl.errors import UsageError

app = CommandGroup()


@remote_command(app, "delete", DANGEROUS)
def delete(
    session: Session,
    topics: Annotated[
        list[str] | None,
        Argument(metavar="TOPIC[:P,P]", help="Names or globs, or some partitions."),
    ] = None,
    before: Annotated[
        str | None,
        Option(
            "--before",
            metavar="POSITION",
            help="Delete what precedes an offset (42), a time (@2026-01-31, in UTC without a "
            "zone), an age (@-7d), the last N records (-N), or the end (latest).",
        ),
    ] = None,
    offset_json_file: Annotated[
        str | None,
        Option(
            "--offset-json-file",
            metavar="FILE",
            help="Offsets by partition, in the format of kafka-delete-records.",
        ),
    ] = None,
) -> int:
    """Delete the oldest records of partitions: those before an offset, a time or an age.

    The command shows the plan and asks first. Brokers refuse to delete records of compacted topics,
    unless their cleanup.policy also includes delete.

    \b
    Examples:
      kctl records delete orders --before @-7d --dry-run
      kctl records delete orders:0,1 --before 4200 --yes
      kctl records delete --offset-json-file offsets.json
    """
    from kctl.admin import record_deletion
    from kctl.admin.deletion_file import parse_deletion_offsets

    if offset_json_file is not None:
        if topics or before is not None:
            raise UsageError(
                "--offset-json-file names partitions and offsets itself",
                hint="leave out TOPIC and --before",
            )
        offsets = parse_deletion_offsets(read_text(offset_json_file), offset_json_file)
        return delete_planned(
            session, lambda admin: record_deletion.plan_deletion_by_partition(admin, offsets), ""
        )
    if not topics or before is None:
        raise UsageError(
            "Missing which records to delete", hint="give TOPIC and --before, or --offset-json-file"
        )
    scope, position = partitions_named(topics), parse_position(before, session.now_ms())
    return delete_planned(
        session,
        lambda admin: record_deletion.plan_record_deletion(admin, scope, position),
        f"No topic matches {' '.join(topics)}",
    )
