"""kctl cluster health."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.failures import DONE, FAILED, UNREACHABLE
from kctl.cli.items import counted
from kctl.cli.output import Document, OutputFormat, Table
from kctl.cli.session import Session
from kctl.errors import CorruptDataError, KctlError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.cluster import ClusterDescription
    from kctl.admin.cluster_health import Finding, HealthFacts

# Subjects that a table names of each check; all are in the other formats.
NAMED_MAX = 5
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

NagiosOption = Annotated[
    bool,
    typer.Option(
        "--nagios",
        help="One line, and Nagios' exit status: 0 ok, 1 warning, 2 critical, 3 unknown.",
    ),
]
SettleOption = Annotated[
    str,
    typer.Option(
        "--settle", metavar="DURATION", help="A move that copies nothing for so long is stuck."
    ),
]


def health(session: Session, nagios: NagiosOption = False, settle: SettleOption = "3s") -> int:
    """Look for what is wrong with a cluster; 1 if anything is.

    Partitions offline, under min.insync.replicas, under-replicated, or led by another than the
    preferred replica; brokers that are gone or do not answer; log directories offline; moves that
    are stuck, throttles left over from moves, replicas in no assignment; and, of brokers on this
    machine, directories whose meta.properties name another broker or cluster.

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
    from kctl.admin.cluster_health import judge
    from kctl.cli.units import parse_duration_ms

    settle_ms = parse_duration_ms(settle)

    async def work(admin: "AdminClient") -> "tuple[HealthFacts, ClusterDescription]":
        from kctl.admin.cluster_health import gather_facts

        return await gather_facts(admin, settle_ms), await admin.cluster.describe()

    facts, cluster = session.run(work)
    findings = judge(facts) + _wrong_identities(facts, cluster)
    if nagios:
        return _tell_nagios(session, facts, findings)
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
    """Every check, also those that found nothing."""
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


def _tell_nagios(session: Session, facts: "HealthFacts", findings: "Sequence[Finding]") -> int:
    from kctl.admin.cluster_health import CHECKS, Severity

    worst = max((it.severity for it in findings), default=Severity.OK)
    counts = {check: sum(it.check == check for it in findings) for check in CHECKS}
    told = [f"{count} {check}" for check, count in counts.items() if count]
    brokers = counted(len(facts.brokers), "broker")
    size = f"{brokers}, {counted(len(facts.partitions), 'partition')}"
    figures = " ".join(
        f"{check.lower().replace(' ', '_').replace('.', '_')}={count}"
        for check, count in counts.items()
    )
    session.output.write(f"KAFKA {worst.name} - {', '.join(told) or size} | {figures}\n")
    return int(worst)


def _wrong_identities(facts: "HealthFacts", cluster: "ClusterDescription") -> "list[Finding]":
    """Of brokers that run here, whose directories can be read."""
    from kctl.admin.cluster_health import judge_identity
    from kctl.runtime.real.disk import RealDisk
    from kctl.storage.meta_properties import decode_meta_properties

    disk = RealDisk()
    here = {it.broker_id for it in cluster.brokers if it.host in _LOCAL_HOSTS}
    found = []
    for directory in facts.log_dirs:
        path = f"{directory.path}/meta.properties"
        if directory.broker_id not in here or not disk.exists(path):
            continue
        try:
            told = decode_meta_properties(disk.read_file(path), path)
        except (CorruptDataError, KctlError, OSError):
            continue  # nobody's business but `kctl verify-log`'s
        wrong = judge_identity(path, told, cluster.cluster_id, directory.broker_id)
        if wrong is not None:
            found.append(wrong)
    return found
