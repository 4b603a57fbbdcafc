"""kctl group export-offsets and import-offsets where ZooKeeper or its format is involved.

Kafka 1.1: kafka.tools.ExportZkOffsets, ImportZkOffsets
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.cli.failures import DONE
from kctl.cli.group.migrate import write_offsets
from kctl.cli.group.reset import execute_steps
from kctl.cli.group.zookeeper import run_on_zookeeper
from kctl.cli.session import Session
from kctl.cli.text_files import read_text_or_stdin
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.committed_offsets import Scope


def export_lines(
    session: Session, names: Sequence[str], scope: "Scope", zookeeper: str | None, *, is_csv: bool
) -> int:
    """Print the offsets of groups, of Kafka or of `zookeeper`, in either format."""
    from kctl.admin.committed_offsets import export_offsets
    from kctl.admin.offset_file import format_offsets
    from kctl.admin.zookeeper_offset_file import format_zookeeper_offsets, of_kafka, to_zookeeper

    if zookeeper is None:
        found = session.run(lambda admin: export_offsets(admin, names, scope))
        session.output.write(format_zookeeper_offsets(to_zookeeper(found)))
        return DONE

    offsets = run_on_zookeeper(
        session, zookeeper, lambda cluster: cluster.export_offsets(names, scope)
    )
    text = format_offsets(of_kafka(offsets)) if is_csv else format_zookeeper_offsets(offsets)
    session.output.write(text)
    return DONE


def import_lines(
    session: Session, path: str, name: str | None, zookeeper: str | None, *, is_csv: bool
) -> int:
    """Commit the offsets in a file of either format to Kafka or to `zookeeper`."""
    from kctl.admin.committed_offsets import plan_import
    from kctl.admin.offset_file import parse_offsets
    from kctl.admin.zookeeper_offset_file import of_kafka, parse_zookeeper_offsets, to_zookeeper

    source, text = read_text_or_stdin(path)
    if is_csv:
        offsets = to_zookeeper(parse_offsets(text, source, name))
    else:
        offsets = parse_zookeeper_offsets(text, source)
    if name is not None:
        offsets = {group: found for group, found in offsets.items() if group == name}
    if not offsets:
        raise UsageError(f"{path} has no offsets" + (f" of group {name}" if name else ""))
    if zookeeper is None:
        in_kafka = of_kafka(offsets)
        return execute_steps(session, lambda admin: plan_import(admin, in_kafka))
    return write_offsets(
        session, zookeeper, lambda groups: groups.plan_import(offsets), needs_brokers=False
    )
