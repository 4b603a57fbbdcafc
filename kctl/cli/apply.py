"""kctl apply: makes topics, configs, quotas and ACLs what a file declares."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import DANGEROUS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Change as PlanAndResult
from kctl.cli.session import Question, Session
from kctl.cli.text_files import read_text
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.apply_plan import Change, Prune
    from kctl.admin.desired_state import DesiredState

_COLUMNS = ("resource", "action", "name", "old", "new", "status", "error")


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """What is removed although the file does not list it."""

    prune_configs: Annotated[
        bool,
        Option(
            "--prune-configs",
            help="Reset configs and quotas of the named resources that FILE does not list.",
        ),
    ] = False
    prune_topics: Annotated[
        list[str] | None,
        Option(
            "--prune-topics",
            metavar="GLOB",
            help="Delete matching topics that FILE does not list; may be repeated.",
        ),
    ] = None
    prune_acls: Annotated[
        bool,
        Option(
            "--prune-acls",
            help="Remove ACLs of the named topics and resources that FILE does not list.",
        ),
    ] = False

    def check(self, desired: "DesiredState", path: str) -> "Prune":
        """Return the options as the plan takes them; raise UsageError."""
        from kctl.admin.apply_plan import Prune

        if self.prune_acls and desired.acls is None:
            raise UsageError(
                f"--prune-acls: {path} has no section acls",
                hint="`acls: []` declares that there are none",
            )
        return Prune(self.prune_configs, tuple(self.prune_topics or ()), self.prune_acls)


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "apply", DANGEROUS)(apply)


def apply(
    session: Session,
    path: Annotated[str, Argument(metavar="FILE", help="YAML: topics, brokers, quotas, acls.")],
    check: Annotated[
        bool,
        Option("--check", help="Change nothing; exit with 1 if the cluster differs."),
    ] = False,
    *,
    pruned: PruneOptions,
) -> int:
    """Make topics, configs, quotas and ACLs what a file declares. What the file does not name stays
    as it is.

    The command shows the plan and asks first. A second run has nothing to do. If something cannot
    be done, such as a smaller number of partitions, nothing is done at all. Replicas are never
    moved: a different replication factor is reported with the command that changes it.

    \b
    A file:
      topics:
        orders:
          partitions: 12
          replication_factor: 3
          configs: {retention.ms: 604800000, cleanup.policy: [compact, delete]}
      brokers:
        default: {log.cleaner.threads: 2}
        1: {log.cleaner.threads: 4}
      quotas:
        - {user: alice, client_id: reports, limits: {producer_byte_rate: 1048576}}
        - {user: "<default>", limits: {request_percentage: 200}}
      acls:
        - {principal: alice, operations: [read, describe], resources: [topic:orders, group:shop-*]}
        - {principal: shop, producer: true, resources: topic:orders}
        - {principal: "*", deny: true, operations: write, resources: topic:audit, host: 10.0.0.7}

    \b
    Examples:
      kctl apply cluster.yaml --dry-run
      kctl apply cluster.yaml --check -o name
      kctl apply cluster.yaml --prune-configs --prune-topics 'team-a-*' --yes
      kctl apply cluster.yaml --prune-acls
    """
    from kctl.admin.apply_execution import apply_changes, plan_apply
    from kctl.admin.desired_state import parse_desired_state

    desired = parse_desired_state(read_text(path), path)
    prune = pruned.check(desired, path)
    if check:
        session.dry_run = True
    change = session.change(
        lambda admin: plan_apply(admin, desired, prune),
        _question,
        lambda admin, changes: apply_changes(admin, desired, changes),
    )
    return DONE if change.is_declined else _show(session, change, path, check)


def _show(
    session: Session, change: "PlanAndResult[list[Change], list[Change]]", path: str, check: bool
) -> int:
    """Show a row per change; return the exit status."""
    if not change.plan:
        session.output.say(f"Nothing to do: the cluster is as {path} declares.")
    is_planned = change.result is None
    results = change.plan if change.result is None else change.result
    is_refused = any(it.error for it in change.plan)
    status = show_results(
        session, _rows(results, is_planned, is_refused), "change", hidden=["change"]
    )
    if change.plan and (is_planned or is_refused):
        session.output.say(_summary(change.plan))
    return FAILED if check and change.plan else status


def _question(changes: "list[Change]") -> Question | None:
    if not changes or any(it.error for it in changes):
        return None
    lost = sorted({str(it.target.name) for it in changes if it.may_delete_records})
    warning = f" Records of {', '.join(lost)} may be deleted." if lost else ""
    table = Table(_COLUMNS[:5], _rows(changes, is_planned=True, is_refused=False))
    return Question(table, f"{_summary(changes)}{warning} Apply?")


def _summary(changes: "Sequence[Change]") -> str:
    """Return `1 to create, 2 to set.`, or `error: 1 conflict, 2 to set: nothing is done.`."""
    counts: dict[str, int] = {}
    for it in changes:
        if it.error is None:
            counts[it.action] = counts.get(it.action, 0) + 1
    parts = [f"{count} to {action}" for action, count in counts.items()]
    conflicts = sum(it.error is not None for it in changes)
    if not conflicts:
        return ", ".join(parts) + "."
    return f"error: {', '.join([counted(conflicts, 'conflict'), *parts])}: nothing is done."


def _rows(changes: "Sequence[Change]", is_planned: bool, is_refused: bool) -> list[dict[str, Any]]:
    from kctl.cli.profile.secrets import shown_value

    words = {"create": "created", "delete": "deleted", "reset": "reset"}
    rows = []
    for it in changes:
        done = words.get(it.action, "altered")
        status = "not applied" if is_refused else f"would {it.action}" if is_planned else done
        resource = f"{it.target.kind} {it.target.name}"
        full = f"{resource} {it.name}".rstrip()
        rows.append(
            {
                "resource": resource,
                "action": str(it.action),
                "name": it.name or None,
                "old": it.old,
                "new": shown_value(it.name, it.new),
                **row("change", full, status, it.error),
            }
        )
    return rows
