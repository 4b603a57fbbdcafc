"""kctl group export-offsets, import-offsets and clone-offsets: copy committed offsets of groups.

Kafka 2.7: kafka.admin.ConsumerGroupCommand (`--export`, `--from-file`)
"""

from typing import Annotated

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE
from kctl.cli.group.reset import TopicOption, execute_steps, read_offsets
from kctl.cli.group.zookeeper import ZooKeeperOption
from kctl.cli.group.zookeeper_offsets import export_lines, import_lines
from kctl.cli.session import Session
from kctl.cli.topic.scope import partitions_named
from kctl.errors import UsageError

FormatOption = Annotated[
    str | None,
    Option(
        "--format",
        metavar="csv|zk",
        help="CSV, or the lines of ExportZkOffsets. [default: zk with --zookeeper, else csv]",
    ),
]


def _is_csv(given: str | None, default: bool) -> bool:
    if given not in (None, "csv", "zk"):
        raise UsageError(f"--format is csv or zk, not {given}")
    return default if given is None else given == "csv"


def export_offsets(
    session: Session,
    names: Annotated[list[str], Argument(metavar="GROUP", help="Names or globs.")],
    topic: TopicOption = None,
    zookeeper: ZooKeeperOption = None,
    file_format: FormatOption = None,
) -> int:
    """Print the committed offsets of groups for import-offsets and Apache Kafka's tools.

    In CSV, lines are topic,partition,offset for one group, and group,topic,partition,offset for
    several. The format zk is that of ExportZkOffsets, a line per znode.

    \b
    Examples:
      kctl group export-offsets billing > offsets.csv
      kctl group export-offsets 'billing-*' -t orders > offsets.csv
      kctl group export-offsets '*' --zookeeper zk1:2181 --format zk > offsets.txt
    """
    from kctl.admin import committed_offsets
    from kctl.admin.offset_file import format_offsets

    scope = partitions_named(topic or [])
    is_csv = _is_csv(file_format, zookeeper is None)
    if zookeeper is not None or not is_csv:
        return export_lines(session, names, scope, zookeeper, is_csv=is_csv)
    offsets = session.run(lambda admin: committed_offsets.export_offsets(admin, names, scope))
    session.output.write(format_offsets(offsets))
    return DONE


def import_offsets(
    session: Session,
    path: Annotated[str, Argument(metavar="FILE", help="A file, or - for stdin.")],
    name: Annotated[
        str | None,
        Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Import only this group; or the group of a file that names none.",
        ),
    ] = None,
    zookeeper: ZooKeeperOption = None,
    file_format: FormatOption = None,
) -> int:
    """Commit the offsets in a file of export-offsets or Apache Kafka's tools. The command shows
    the plan and asks first.

    \b
    Examples:
      kctl group import-offsets offsets.csv --group billing --dry-run
      kctl group import-offsets groups.csv --yes
      kctl group import-offsets offsets.txt --zookeeper zk1:2181 --format zk --dry-run
    """
    is_csv = _is_csv(file_format, zookeeper is None)
    if zookeeper is not None or not is_csv:
        return import_lines(session, path, name, zookeeper, is_csv=is_csv)
    offsets = read_offsets(path, name)
    if name is not None:
        offsets = {group: found for group, found in offsets.items() if group == name}
    if not offsets:
        raise UsageError(f"{path} has no offsets" + (f" of group {name}" if name else ""))

    from kctl.admin.committed_offsets import plan_import

    return execute_steps(session, lambda admin: plan_import(admin, offsets))


def clone_offsets(
    session: Session,
    source: Annotated[str, Argument(metavar="FROM", help="A group.")],
    target: Annotated[str, Argument(metavar="TO", help="A new group, or one without members.")],
    topic: TopicOption = None,
) -> int:
    """Commit the offsets of one group for another group. The command shows the plan and asks first.

    \b
    Examples:
      kctl group clone-offsets billing billing-test --dry-run
      kctl group clone-offsets billing billing-test -t orders --yes
    """
    if source == target:
        raise UsageError(f"FROM and TO are the same group: {source}")

    from kctl.admin.committed_offsets import plan_clone

    scope = partitions_named(topic or [])
    return execute_steps(session, lambda admin: plan_clone(admin, source, target, scope))
