"""kctl acl: access control entries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.protocol.acl import AclBinding

app = CommandGroup()
_EXAMPLE = "e.g. kctl acl add alice read topic:orders"

PrincipalArgument = Annotated[
    str, Argument(metavar="PRINCIPAL", help="A user, or TYPE:NAME; `*`: every user.")
]
RulesArgument = Annotated[
    list[str],
    Argument(
        metavar="[OPERATIONS] RESOURCE...",
        help="Operations as in read,describe; resources as topic:orders, topic:orders-* (a prefix),"
        " group:*, transactional-id:app, cluster.",
    ),
]
ResourcesArgument = Annotated[
    list[str] | None,
    Argument(metavar="RESOURCE", help="Only entries that apply to these, as topic:orders."),
]
PrincipalOption = Annotated[
    str | None, Option("--principal", metavar="PRINCIPAL", help="Only entries of this one.")
]
OperationArgument = Annotated[str, Argument(metavar="OPERATION", help="As read or write.")]
ResourceArgument = Annotated[str, Argument(metavar="RESOURCE", help="As topic:orders.")]
FromOption = Annotated[str, Option("--from", metavar="ADDRESS", help="The address of the client.")]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """What else a rule consists of; `add` and `remove` have the same."""

    host: Annotated[
        str, Option("--host", metavar="ADDRESS", help="The address of clients; `*`: any.")
    ] = "*"
    deny: Annotated[bool, Option("--deny", help="Deny instead of allow.")] = False
    producer: Annotated[
        bool, Option("--producer", help="What a producer needs; takes no operations.")
    ] = False
    consumer: Annotated[
        bool, Option("--consumer", help="What a consumer needs; takes no operations.")
    ] = False
    idempotent: Annotated[
        bool, Option("--idempotent", help="With --producer: also IdempotentWrite.")
    ] = False

    def bindings(self, principal: str, rules: Sequence[str]) -> "list[AclBinding]":
        """Return the entries that the arguments of the command describe; raise UsageError."""
        from kctl.admin.acl_rules import AclRule

        if self.idempotent and not self.producer:
            raise UsageError("--idempotent needs --producer", hint=_EXAMPLE)
        if self.deny and (self.producer or self.consumer):
            raise UsageError("--deny takes operations, not --producer or --consumer")
        operations = [] if self.producer or self.consumer else rules[:1]
        resources = rules[len(operations) :]
        if not resources:
            raise UsageError("OPERATIONS or RESOURCE is missing", hint=_EXAMPLE)
        return AclRule(
            principal,
            resources,
            "".join(operations),
            self.host,
            self.deny,
            self.producer,
            self.consumer,
            self.idempotent,
        ).bindings()


@remote_command(app, "list", READS)
def list_acls(
    session: Session, resources: ResourcesArgument = None, principal: PrincipalOption = None
) -> int:
    """List ACLs: all, or those that apply to some resources.

    \b
    Examples:
      kctl acl list
      kctl acl list topic:orders --principal alice
    """
    from kctl.protocol.acl import AclFilter, PatternType
    from kctl.protocol.acl_text import parse_pattern, parse_principal

    who = parse_principal(principal) if principal is not None else None
    patterns = [parse_pattern(text) for text in resources or []]
    filters = [
        AclFilter(it.resource_type, it.name, PatternType.MATCH, principal=who) for it in patterns
    ] or [AclFilter(principal=who)]
    found = session.run(lambda admin: admin.acls.list_acls(*filters))
    rows = [_row(binding, "exists") for binding in found]
    return show_results(session, rows, "resource", hidden=["status"])


@remote_command(app, "add", CHANGES)
def add(
    session: Session,
    principal: PrincipalArgument,
    rules: RulesArgument,
    *,
    options: RuleOptions,
) -> int:
    """Allow operations on resources to a principal, or deny them.

    \b
    Examples:
      kctl acl add alice read,describe topic:orders group:shop
      kctl acl add alice --producer topic:orders-* transactional-id:shop
      kctl acl add alice --consumer topic:orders group:shop -n
      kctl acl add '*' write topic:audit --deny --host 10.0.0.7
    """
    bindings = options.bindings(principal, rules)
    if session.dry_run:
        return show_results(session, [_row(it, "would add") for it in bindings], "resource")
    results = session.run(lambda admin: admin.acls.create_acls(bindings))
    return show_results(
        session, [_row(it.binding, "added", it.error) for it in results], "resource"
    )


@remote_command(app, "remove", DANGEROUS)
def remove(
    session: Session,
    principal: PrincipalArgument,
    rules: RulesArgument,
    *,
    options: RuleOptions,
) -> int:
    """Remove the ACLs that the same arguments of `kctl acl add` add.

    \b
    Examples:
      kctl acl remove alice read topic:orders
      kctl acl remove alice --consumer topic:orders group:shop --yes
    """
    wanted = options.bindings(principal, rules)

    def question(found: "Sequence[AclBinding]") -> Question | None:
        if not found:
            return None
        rows = [_described(binding) for binding in found]
        return Question(Table(tuple(rows[0]), rows), f"Remove {counted(len(found), 'ACL')}?")

    change = session.change(
        lambda admin: admin.acls.existing(wanted),
        question,
        lambda admin, found: admin.acls.delete_acls(found),
    )
    if change.is_declined:
        return DONE
    missing = [_row(it, "", "no such ACL") for it in wanted if it not in change.plan]
    if change.result is None:
        rows = [_row(binding, "would remove") for binding in change.plan]
    else:
        rows = [_row(it.binding, "removed", it.error) for it in change.result]
    return show_results(session, [*rows, *missing], "resource")


@remote_command(app, "check", READS)
def check(
    session: Session,
    principal: PrincipalArgument,
    operation: OperationArgument,
    resource: ResourceArgument,
    address: FromOption = "*",
) -> int:
    """Check whether ACLs allow an operation, and show the one that decides.

    Super users and allow.everyone.if.no.acl.found are settings of the brokers, which are not known
    here. Without --from, entries for single addresses do not count.

    \b
    Examples:
      kctl acl check alice read topic:orders
      kctl acl check alice write topic:orders --from 10.0.0.7
    """
    from kctl.protocol.acl import PatternType
    from kctl.protocol.acl_text import (
        parse_host,
        parse_operations,
        parse_pattern,
        parse_principal,
    )

    who, pattern, host = parse_principal(principal), parse_pattern(resource), parse_host(address)
    operations = parse_operations(operation)
    if pattern.pattern_type is PatternType.PREFIXED or pattern.name == "*":
        raise UsageError(f"{resource} is not a single resource", hint="name one, as topic:orders")

    verdicts = session.run(lambda admin: admin.acls.check(who, operations, pattern, host))
    rows = []
    for each, verdict in zip(operations, verdicts, strict=True):
        rows.append(
            {
                "resource": resource,
                "operation": each.text,
                "allowed": verdict.is_allowed,
                "reason": verdict.reason.value,
                "acl": str(verdict.binding) if verdict.binding is not None else None,
                "status": "allowed" if verdict.is_allowed else "denied",
                "error": None,
            }
        )
    return show_results(session, rows, "resource", hidden=["status", "allowed"])


def _row(binding: "AclBinding", status: str, error: object = None) -> dict[str, Any]:
    described = _described(binding)
    return row("resource", described.pop("resource"), status, error, **described)


def _described(binding: "AclBinding") -> dict[str, Any]:
    from kctl.protocol.acl_text import pattern_text

    pattern, entry = binding
    return {
        "resource": pattern_text(pattern),
        "principal": entry.principal,
        "permission": entry.permission.text,
        "operation": entry.operation.text,
        "host": entry.host,
    }
