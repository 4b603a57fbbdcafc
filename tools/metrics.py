"""Makes what follows from the catalogue of metrics: the tables of docs/metrics.md, a dashboard for
Grafana and alert rules for Prometheus.

    python -m tools.metrics
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from kctl.metrics.broker_families import BROKER
from kctl.metrics.cluster_families import CLUSTER
from kctl.metrics.family import Family, Kind
from kctl.metrics.follow_families import FOLLOW
from kctl.metrics.mirror_families import MIRROR

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
OPERATIONS = ROOT / "docs" / "operations.md"
DASHBOARD = ROOT / "contrib" / "grafana" / "kctl.json"
ALERTS = ROOT / "contrib" / "prometheus" / "alerts.yaml"
TABLES = {"broker": BROKER, "cluster": CLUSTER, "mirror": MIRROR, "follow": FOLLOW}


CATALOGUE: tuple[Family, ...] = tuple(it for table in TABLES.values() for it in table)


def sample_names(family: Family) -> list[str]:
    """Return the names of a family's samples, as an expression of PromQL may use them."""
    name = family.name
    match family.kind:
        case Kind.HISTOGRAM:
            return [f"{name}_bucket", f"{name}_sum", f"{name}_count"]
        case Kind.SUMMARY:
            return [name, f"{name}_sum", f"{name}_count"]
    return [name]


def current(page: str) -> str:
    """Return `page` with the tables of the catalogue."""
    for name, families in TABLES.items():
        begin, end = f"<!-- catalogue: {name} -->\n", f"<!-- end: {name} -->"
        head, _, rest = page.partition(begin)
        tail = rest.partition(end)[2]
        page = f"{head}{begin}{table(families)}{end}{tail}"
    return page


def table(families: tuple[Family, ...]) -> str:
    """Return one row per metric."""
    rows = ["| metric | type | labels | what it is | MBean |", "|---|---|---|---|---|"]
    rows += [
        f"| `{it.name}` | {it.kind.value} | {', '.join(it.labels)} | {it.help.replace('|', '/')} |"
        f" {f'`{it.jmx}`' if it.jmx else ''} |"
        for it in families
    ]
    return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class Panel:
    """One panel: (legend, expression) pairs."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


TOPICS = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
REQUESTS = "kafka_network_requestmetrics_"


def _quantile(share: str, label: str, buckets: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {label}) (rate({buckets}[5m])))"


def _mm2_name(attribute: str) -> str:
    return f"kafka_connect_mirror_mirrorsourceconnector_{attribute}"


PANELS = (
    Panel(
        "Availability",
        "short",
        (
            ("active controllers", f"sum({CONTROLLER}activecontrollercount)"),
            ("partitions without a leader", f"sum({CONTROLLER}offlinepartitionscount)"),
            ("below min.insync.replicas", f"sum({REPLICAS}underminisrpartitioncount)"),
        ),
    ),
    Panel(
        "In-sync replicas",
        "short",
        (
            ("under-replicated", f"sum({REPLICAS}underreplicatedpartitions)"),
            ("shrinks a second", f"sum(rate({REPLICAS}isrshrinks_total[5m]))"),
            ("expands a second", f"sum(rate({REPLICAS}isrexpands_total[5m]))"),
        ),
    ),
    Panel(
        "Throughput",
        "Bps",
        (
            ("in", f'sum(rate({TOPICS}bytesin_total{{topic!=""}}[5m]))'),
            ("out", f'sum(rate({TOPICS}bytesout_total{{topic!=""}}[5m]))'),
            ("replicated", f'sum(rate({TOPICS}replicationbytesin_total{{topic!=""}}[5m]))'),
        ),
    ),
    Panel(
        "Records and requests",
        "ops",
        (
            ("records", f'sum(rate({TOPICS}messagesin_total{{topic!=""}}[5m]))'),
            (
                "{{request}}",
                "sum by (request) (rate(kafka_network_requestmetrics_requests_total[5m]))",
            ),
        ),
    ),
    Panel(
        "Latency by API",
        "s",
        tuple(
            (
                f"{{{{api}}}} p{share}",
                _quantile(f"0.{share}", "api", "kctl_request_seconds_bucket"),
            )
            for share in (50, 99)
        ),
    ),
    Panel(
        "Event loop",
        "percentunit",
        (
            ("busy {{instance}}", "kctl_loop_busy_ratio"),
            ("turns over 20 ms a second", "rate(kctl_loop_long_turns_total[5m])"),
        ),
    ),
    Panel(
        "fsync p99",
        "s",
        (
            (
                "{{instance}}",
                _quantile("0.99", "instance", "kctl_fsync_seconds_bucket"),
            ),
        ),
    ),
    Panel(
        "Lag of groups",
        "short",
        (("{{consumergroup}}", "sum by (consumergroup) (kafka_consumergroup_lag > 0)"),),
    ),
    Panel(
        "Connections",
        "short",
        (
            ("open", "sum(kafka_server_socket_server_metrics_connection_count)"),
            (
                "failed logins a second",
                "sum(rate(kafka_server_socket_server_metrics_failed_authentication_total[5m]))",
            ),
            ("bad requests a second", "sum(rate(kctl_bad_requests_total[5m]))"),
        ),
    ),
    Panel("Logs", "bytes", (("{{topic}}", "sum by (topic) (kafka_log_log_size)"),)),
    Panel(
        "Errors",
        "ops",
        (
            (
                "{{request}} {{error}}",
                f'sum by (request, error) (rate({REQUESTS}errors_total{{error!="NONE"}}[5m]))',
            ),
        ),
    ),
    Panel(
        "Memory and files",
        "bytes",
        (
            ("memory {{instance}}", "process_resident_memory_bytes"),
            ("requests {{instance}}", "kctl_request_memory_bytes"),
        ),
    ),
)


MIRROR_PANELS = (
    Panel(
        "Mirrors: copied",
        "Bps",
        (("{{mirror}} {{topic}}", "sum by (mirror, topic) (rate(kctl_mirror_bytes_total[5m]))"),),
    ),
    Panel(
        "Links: lag",
        "s",
        (("{{topic}} from {{source}}", "max by (topic, source) (kctl_link_lag_seconds)"),),
    ),
    Panel(
        "Links: records not copied",
        "short",
        (("{{topic}} from {{source}}", "sum by (topic, source) (kctl_link_lag_records)"),),
    ),
    Panel(
        "Mirrors: records not copied",
        "short",
        (("{{mirror}} {{topic}}", "sum by (mirror, topic) (kctl_mirror_lag_records)"),),
    ),
    Panel(
        "Mirrors: lag",
        "s",
        (("{{mirror}} {{topic}}", "max by (mirror, topic) (kctl_mirror_lag_seconds)"),),
    ),
    Panel(
        "Mirrors: bytes not copied",
        "bytes",
        (("{{mirror}}", "sum by (mirror) (kctl_mirror_lag_bytes)"),),
    ),
    Panel(
        "Mirrors: latency",
        "ms",
        tuple(
            (
                f"{{{{target}}}} {part}",
                f"max by (target) ({_mm2_name(f'replication_latency_ms_{part}')})",
            )
            for part in ("avg", "max")
        ),
    ),
    Panel(
        "Mirrors: losses and failures",
        "short",
        (
            ("{{mirror}} losses", "sum by (mirror) (kctl_mirror_losses_total)"),
            ("{{mirror}} stopped partitions", "sum by (mirror) (kctl_mirror_partition_stopped)"),
            ("{{mirror}} failures", "sum by (mirror) (increase(kctl_mirror_failures_total[5m]))"),
        ),
    ),
)


FOLLOW_PANELS = (
    Panel(
        "Tables: rows",
        "short",
        (
            (
                "{{instance}} {{topic}}",
                "sum by (instance, topic) (rate(kctl_follow_rows_total[5m]))",
            ),
        ),
    ),
    Panel(
        "Tables: lag",
        "s",
        (
            ("{{instance}}", "max by (instance) (kctl_follow_lag_seconds)"),
            (
                "{{instance}} since a commit",
                "max by (instance) (kctl_follow_last_commit_age_seconds)",
            ),
        ),
    ),
    Panel(
        "Tables: dead letters and losses",
        "short",
        (
            (
                "{{topic}} dead letters",
                "sum by (topic) (increase(kctl_follow_dead_letters_total[5m]))",
            ),
            ("{{instance}} lost ranges", "sum by (instance) (kctl_follow_lost_ranges_total)"),
        ),
    ),
)


EVERY_PANEL = (*PANELS, *MIRROR_PANELS, *FOLLOW_PANELS)


@dataclass(frozen=True)
class Alert:
    """One rule."""

    name: str
    expression: str
    for_minutes: int
    severity: str
    summary: str


ALERT_RULES = (
    Alert("KafkaDown", 'up{job="kctl"} == 0', 2, "critical", "A broker does not answer scrapes."),
    Alert(
        "KafkaNoController",
        f"sum({CONTROLLER}activecontrollercount) != 1",
        2,
        "critical",
        "The cluster has no controller, or more than one.",
    ),
    Alert(
        "KafkaPartitionsOffline",
        f"sum({CONTROLLER}offlinepartitionscount) > 0",
        1,
        "critical",
        "Partitions have no leader: they can be neither written nor read.",
    ),
    Alert(
        "KafkaUnderMinIsr",
        f"sum({REPLICAS}underminisrpartitioncount) > 0",
        2,
        "critical",
        "Partitions refuse writes with acks=all: too few replicas are in sync.",
    ),
    Alert(
        "KafkaUnderReplicated",
        f"sum({REPLICAS}underreplicatedpartitions) > 0",
        10,
        "warning",
        "Replicas are not in sync.",
    ),
    Alert(
        "KafkaLogDirectoryOffline",
        "sum by (instance) (kafka_log_logmanager_offlinelogdirectorycount) > 0",
        0,
        "critical",
        "A log directory has failed.",
    ),
    Alert(
        "KafkaUncleanElection",
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[15m]) > 0",
        0,
        "critical",
        "A leader was elected from outside the ISR: records may be lost.",
    ),
    Alert(
        "KafkaLoopBusy",
        "kctl_loop_busy_ratio > 0.9",
        10,
        "warning",
        "A broker has no reserve: its event loop works all the time.",
    ),
    Alert(
        "KafkaFailedLogins",
        "sum by (instance)"
        " (rate(kafka_server_socket_server_metrics_failed_authentication_total[5m])) > 1",
        10,
        "warning",
        "Clients fail to log in.",
    ),
    Alert(
        "KafkaHandlerErrors",
        "increase(kctl_handler_errors_total[15m]) > 0",
        0,
        "warning",
        "A request failed unexpectedly: a bug of kctl.",
    ),
    Alert(
        "KafkaFilesExhausted",
        "process_open_fds / process_max_fds > 0.85",
        10,
        "warning",
        "A broker comes near its limit of open files.",
    ),
    Alert(
        "KafkaLagGrows",
        # Brokers and `kctl metrics serve` may both be scraped: each partition counts once.
        "sum by (consumergroup, topic) (max by (consumergroup, topic, partition)"
        " (kafka_consumergroup_lag > 0)) > 1000 and sum by (consumergroup, topic)"
        " (max by (consumergroup, topic, partition) (deriv(kafka_consumergroup_lag[30m]))) > 0",
        30,
        "warning",
        "A group falls behind.",
    ),
    Alert(
        "KafkaMetricsOld",
        "kctl_collector_age_seconds > 300",
        5,
        "warning",
        "kctl metrics serve cannot read the cluster.",
    ),
    Alert(
        "KafkaMirrorStopped",
        "kctl_mirror_partition_stopped > 0",
        0,
        "critical",
        "A mirror no longer copies a partition: the source lost records, or the copy was refused.",
    ),
    Alert(
        "KafkaMirrorLosses",
        "increase(kctl_mirror_losses_total[15m]) > 0",
        0,
        "critical",
        "The source lost records before a mirror had copied them.",
    ),
    Alert(
        "KafkaMirrorTopicRefused",
        "kctl_mirror_topic_errors > 0",
        5,
        "warning",
        "A mirror refuses a topic, or cannot create it.",
    ),
    Alert(
        "KafkaMirrorBehind",
        "max by (mirror, topic) (kctl_mirror_lag_seconds) > 300",
        15,
        "warning",
        "A mirror is minutes behind its source.",
    ),
    Alert(
        "KafkaLinkStopped",
        'sum by (topic, source) (kctl_link_partitions{phase="stopped"}) > 0',
        0,
        "critical",
        "A link no longer copies a partition: it would lose records, or mix those of two topics.",
    ),
    Alert(
        "KafkaLinkBehind",
        "max by (topic, source) (kctl_link_lag_seconds) > 300",
        15,
        "warning",
        "A link is minutes behind its source, or does not reach it.",
    ),
    Alert(
        "KafkaMirrorFailing",
        "increase(kctl_mirror_failures_total[15m]) > 5",
        15,
        "warning",
        "The turns of a mirror fail again and again.",
    ),
    Alert(
        "KafkaTableBehind",
        "kctl_follow_lag_seconds > 900",
        5,
        "warning",
        "A table that follows its log is a quarter of an hour behind.",
    ),
    Alert(
        "KafkaTableLosses",
        "increase(kctl_follow_lost_ranges_total[15m]) > 0",
        0,
        "critical",
        "A table lacks records: the log lost or damaged them, or a partition is left alone.",
    ),
    Alert(
        "KafkaTableDeadLetters",
        "sum by (instance, topic) (increase(kctl_follow_dead_letters_total[15m])) > 0",
        0,
        "warning",
        "Values of a topic cannot be decoded.",
    ),
)


def dashboard() -> str:
    """Return the dashboard, as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = [_panel(panel, number, number, 0, source) for number, panel in enumerate(PANELS)]
    top = 8 * -(-len(PANELS) // 3)
    for title, more in (("Mirrors", MIRROR_PANELS), ("Tables", FOLLOW_PANELS)):
        row = {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False}
        panels.append({**row, "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}, "panels": []})
        first = len(panels)
        panels += [
            _panel(panel, first + number, number, top + 1, source)
            for number, panel in enumerate(more)
        ]
        top += 1 + 8 * -(-len(more) // 3)
    choice = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    document = {
        "uid": "kctl",
        "title": "kctl",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [choice]},
        "panels": panels,
    }
    return json.dumps(document, indent=2) + "\n"


def _panel(
    panel: Panel, number: int, place: int, top: int, source: dict[str, str]
) -> dict[str, object]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": 8 * (place % 3), "y": top + 8 * (place // 3)},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + each), "legendFormat": legend, "expr": expression}
            for each, (legend, expression) in enumerate(panel.lines)
        ],
    }


def alerts() -> str:
    """Return the rules, as Prometheus loads them."""
    rules = [
        {
            "alert": it.name,
            "expr": it.expression,
            "for": f"{it.for_minutes}m",
            "labels": {"severity": it.severity},
            "annotations": {
                "summary": it.summary,
                "runbook": f"docs/operations.md#{it.name.lower()}",
            },
        }
        for it in ALERT_RULES
    ]
    head = "# Made by python -m tools.metrics from the catalogue of metrics.\n"
    document = {"groups": [{"name": "kctl", "rules": rules}]}
    return head + str(yaml.safe_dump(document, sort_keys=False, width=1_000))


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression of PromQL."""
    without_text = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\b(?:kafka|kctl|process)_[a-z0-9_]+", without_text))


def expressions() -> list[str]:
    """Return every expression of the dashboard and of the alerts."""
    drawn = [expression for panel in EVERY_PANEL for _, expression in panel.lines]
    return [*drawn, *(it.expression for it in ALERT_RULES)]


def main() -> None:
    """Write all files."""
    PAGE.write_text(current(PAGE.read_text()))
    for path, text in ((DASHBOARD, dashboard()), (ALERTS, alerts())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
