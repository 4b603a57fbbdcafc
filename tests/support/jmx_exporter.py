"""Prometheus' JMX exporter in a real broker: the names that monitors of Apache Kafka know.

The rules make the names, labels and types that Strimzi's rules make; they are written here from
that description: domain, type and name joined by `_` in lower case, meters as `_total`, shares as
`_percent`, histograms as `_count` and gauges with a quantile. What no rule takes has the exporter's
own name, so that quotas, for which there are no rules, are seen as well. KCTL_JMX_RULES names a
file with other rules, such as Strimzi's own.
"""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from kctl.metrics.parse import ParsedMetrics, parse_metrics
from tests.support import apache_kafka

VERSION = "0.17.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl.tests</groupId><artifactId>jmx-exporter</artifactId><version>{VERSION}</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>io.prometheus.jmx</groupId><artifactId>jmx_prometheus_javaagent</artifactId>
    <version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""
# A file with rules instead of those below.
OTHER_RULES = os.environ.get("KCTL_JMX_RULES", "")
BEAN = r"kafka\.(\w+)<type=([^,]+), name=([^,]+)"
GAUGE, COUNTER = "GAUGE", "COUNTER"


def agent() -> Path | None:
    """Return the agent's jar, fetched with Maven, or None without Maven."""
    try:
        folder = apache_kafka.jars_of(f"jmx-exporter-{VERSION}", POM, fetch=True)
    except subprocess.CalledProcessError as e:
        sys.stderr.write(f"{e}\n")
        return None
    return None if folder is None else next(folder.glob("jmx_prometheus_javaagent-*.jar"))


def _rule(pattern, name, kind, *, labels=None):
    rule = {"pattern": pattern, "name": name, "type": kind}
    return {**rule, "labels": labels} if labels else rule


def _pairs(first: int, count: int):
    """Return `count` further keys of a bean as a pattern, and the labels that they become."""
    pattern = r", ([^,=]+)=([^,>]+)" * count
    return pattern, {f"${first + 2 * it}": f"${first + 2 * it + 1}" for it in range(count)}


def rules() -> dict[str, object]:
    """Return the exporter's configuration."""
    lag = r"kafka\.server<type=([^,]+), name=([^,]+), clientId=([^,]+), "
    processor = r"listener=([^,]+), networkProcessor=([^,>]+)><>"
    names = {"listener": "$2", "networkProcessor": "$3"}
    fourth = {"listener": "$4", "networkProcessor": "$5"}
    software = {"clientSoftwareName": "$2", "clientSoftwareVersion": "$3"}
    found = [
        _rule(lag + r"topic=([^,]+), partition=([^,>]+)><>Value", "kafka_server_$1_$2", GAUGE,
              labels={"clientId": "$3", "topic": "$4", "partition": "$5"}),
        _rule(lag + r"brokerHost=([^,]+), brokerPort=([^,>]+)><>Value", "kafka_server_$1_$2", GAUGE,
              labels={"clientId": "$3", "broker": "$4:$5"}),
        _rule(rf"kafka\.server<type=([^,]+), cipher=([^,]+), protocol=([^,]+), {processor}"
              "connections", "kafka_server_$1_connections_tls_info", GAUGE,
              labels={"cipher": "$2", "protocol": "$3", **fourth}),
        _rule(r"kafka\.server<type=([^,]+), clientSoftwareName=([^,]+), clientSoftwareVersion="
              rf"([^,]+), {processor}connections", "kafka_server_$1_connections_software", GAUGE,
              labels={**software, **fourth}),
        _rule(rf"kafka\.server<type=([^,]+), {processor}([^:]+-total)", "kafka_server_$1_$4",
              COUNTER, labels=names),
        _rule(rf"kafka\.server<type=([^,]+), {processor}([^:]+)", "kafka_server_$1_$4", GAUGE,
              labels=names),
    ]  # fmt: skip
    found += [
        _rule(rf"{BEAN}Percent[^,>]*><>{attribute}", "kafka_$1_$2_$3_percent", GAUGE)
        for attribute in ("MeanRate", "Value")
    ]
    for count in (2, 1, 0):
        keys, labels = _pairs(4, count)
        found += [
            _rule(rf"{BEAN}PerSec{keys}><>Count", "kafka_$1_$2_$3_total", COUNTER, labels=labels),
        ]
    for count in (2, 1, 0):
        keys, labels = _pairs(4, count)
        by_quantile = {**labels, "quantile": f"0.${4 + 2 * count}"}
        name = "kafka_$1_$2_$3"
        found += [
            _rule(rf"{BEAN}{keys}><>Value", name, GAUGE, labels=labels),
            _rule(rf"{BEAN}{keys}><>Count", f"{name}_count", COUNTER, labels=labels),
            _rule(rf"{BEAN}{keys}><>(\d+)thPercentile", name, GAUGE, labels=by_quantile),
        ]
    # The group coordinator: Strimzi's rules take one name after `kafka.`, it has two.
    group = r"kafka\.coordinator\.group<type=([^,]+), name=([^,>]+)><>Value"
    found.append(_rule(group, "kafka_coordinator_group_$1_$2", GAUGE))
    found.append({"pattern": r"kafka\.server<type=\w+, (user|client-id)=.*"})
    return {"lowercaseOutputName": True, "rules": found}


class ExportedBroker(apache_kafka.ApacheBroker):
    """Apache Kafka 2.7.2 with the exporter in its process."""

    def launch(self):
        """Start it with the agent."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.metrics_port = apache_kafka.free_port()
        config = Path(OTHER_RULES)
        if not OTHER_RULES:
            config = self.directory / "rules.json"
            # JSON is YAML.
            config.write_text(json.dumps(rules()))
        jar = agent()
        assert jar is not None
        java = apache_kafka.java_command(self.version, "kafka.Kafka", level="INFO", heap="512M")
        java.insert(1, f"-javaagent:{jar}={self.metrics_port}:{config}")
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*java, str(self.write_config())], stdout=log, stderr=log, start_new_session=True
            )
        return self

    def scrape(self) -> ParsedMetrics:
        """Return what the exporter serves."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as response:
            return parse_metrics(response.read().decode())


@contextmanager
def exported_broker(directory: Path, zookeeper: str, settings):
    """A running broker with the exporter."""
    broker = ExportedBroker(directory, zookeeper, settings=settings).launch()
    try:
        yield broker.wait_until_ready()
    finally:
        broker.stop()
