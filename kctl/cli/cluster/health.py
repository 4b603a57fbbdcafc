"""kctl cluster health."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED, UNREACHABLE
from kctl.cli.output import Document, OutputFormat, Table
from kctl.cli.session import Session
from kctl.counts import counted
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.admin.cluster_health import Finding, HealthFacts

# Subjects per check that a table lists; the other formats list all.
NAMED_MAX = 5

NagiosOption = Annotated[
    bool,
    Option(
        "--nagios",
        help="One line, and Nagios' exit status: 0 ok, 1 warning, 2 critical, 3 unknown.",
    ),
]
SettleOption = Annotated[
    str,
    Option("--settle", metavar="DURATION", help="A move without progress for this time is stuck."),
]


def health(session: Session, nagios: NagiosOption = False, settle: SettleOption = "3s") -> int:
    """Check a cluster for problems; the exit status is 1 if there are any.

    Reports partitions that are offline, under min.insync.replicas, under-replicated, or not led by
    their preferred replica; brokers that are down or do not respond; offline log directories; moves
    that are stuck, throttles left over from moves, replicas in no assignment; and, for brokers on
    this machine, directories whose meta.properties name another broker or cluster.

    \b
    Examples:
      kctl cluster health
      kctl cluster health -o ndjson
      kctl cluster health --nagios
    """
    try:
        return _health(session, nagios, settle)
    except KctlError as error:
        if not nagios:
            raise
        session.output.write(f"KAFKA UNKNOWN - {error}\n")
        return UNREACHABLE


def _health(session: Session, nagios: bool, settle: str) -> int:
    from kctl.admin.cluster_health import check_health
    from kctl.cli.units import parse_duration_ms

    settle_ms = parse_duration_ms(settle)
    facts, findings = session.run(
        lambda admin: check_health(admin, session.runtime.disk, settle_ms)
    )
    if nagios:
        return _write_nagios(session, facts, findings)
    documents = [
        {
            "check": it.check,
            "severity": it.severity.name.lower(),
            "subject": it.subject,
            "detail": it.detail,
        }
        for it in findings
    ]
    tables = [Table(("check", "severity", "count", "where"), _check_rows(findings))]
    if session.output.format is OutputFormat.CSV:
        tables = [Table(("check", "severity", "subject", "detail"), documents)]
    session.output.show(documents, name="subject", tables=tables)
    brokers = counted(len(facts.brokers), "broker")
    total = f"{brokers}, {counted(len(facts.partitions), 'partition')}"
    found = counted(len(findings), "finding") if findings else "healthy"
    session.output.say(f"{total}: {found}.")
    return FAILED if findings else DONE


def _check_rows(findings: "Sequence[Finding]") -> list[Document]:
    """Return a row for every check, including those without findings."""
    from kctl.admin.cluster_health import CHECKS

    rows: list[Document] = []
    for check, severity in CHECKS.items():
        mine = [it for it in findings if it.check == check]
        named = [f"{it.subject} ({it.detail})" for it in mine[:NAMED_MAX]]
        if len(mine) > NAMED_MAX:
            named.append(f"and {len(mine) - NAMED_MAX} more")
        level = severity.name.lower() if mine else "ok"
        rows.append(
            {
                "check": check,
                "severity": level,
                "count": len(mine),
                "where": "; ".join(named) or None,
            }
        )
    return rows


def _write_nagios(session: Session, facts: "HealthFacts", findings: "Sequence[Finding]") -> int:
    from kctl.admin.cluster_health import CHECKS, Severity

    worst = max((it.severity for it in findings), default=Severity.OK)
    counts = {check: sum(it.check == check for it in findings) for check in CHECKS}
    problems = [f"{count} {check}" for check, count in counts.items() if count]
    brokers = counted(len(facts.brokers), "broker")
    size = f"{brokers}, {counted(len(facts.partitions), 'partition')}"
    figures = " ".join(
        f"{check.lower().replace(' ', '_').replace('.', '_')}={count}"
        for check, count in counts.items()
    )
    session.output.write(f"KAFKA {worst.name} - {', '.join(problems) or size} | {figures}\n")
    return int(worst)
