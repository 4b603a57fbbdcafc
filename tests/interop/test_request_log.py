"""The request log: the lines of kctl and of Apache Kafka 2.7.2 about the same requests."""

import re
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

LOGGER = "kafka.request.logger"
TIMES = (
    "totalTime",
    "requestQueueTime",
    "localTime",
    "remoteTime",
    "responseQueueTime",
    "sendTime",
)
LINE = re.compile(
    r"Completed request:RequestHeader\(apiKey=(\w+), apiVersion=\d+, clientId=(\S+), "
    r"correlationId=\d+\).* from connection \S+;(totalTime.*?)(?: \(kafka\.request\.logger\))?$"
)


def kctl(*words):
    command = [sys.executable, "-m", "kctl", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def drive(address):
    """Send requests as three clients: one that waits for its replicas, one that does not, and one
    that exceeds its quota."""
    where = ("-b", address)
    kctl("topic", "create", "logged", *where)
    kctl("quota", "set", "--client-id", "throttled", "--produce", "1kB", *where)
    kctl("config", "alter", "logger", "0", "-c", f"{LOGGER}=DEBUG", "-y", *where)
    for client_id, acks in (("plain", "all"), ("one-way", "0"), ("throttled", "all")):
        producer = Producer({"bootstrap.servers": address, "client.id": client_id, "acks": acks})
        producer.produce("logged", bytes(30_000))
        assert producer.flush(60) == 0
    kctl("config", "alter", "logger", "0", "-d", LOGGER, "-y", *where)
    kctl("quota", "remove", "--client-id", "throttled", "-y", *where)


def produced(path):
    """By client, the facts about its Produce request."""
    matches = map(LINE.search, path.read_text().splitlines())
    return {
        match[2]: re.findall(r"(\w+):((?:[^,(]|\([^)]*\))*)", match[3])
        for match in matches
        if match and match[1] == "PRODUCE"
    }


def test_the_lines_have_the_fields_and_formats_of_apache_kafka(
    apache_broker, apache_directory, tmp_path
):
    log = tmp_path / "kctl.log"
    apache_log = apache_directory / "server.log"
    clients = {"plain", "one-way", "throttled"}
    with KctlBroker(tmp_path, "--log-file", str(log)) as broker:
        for address in (apache_broker, broker.address):
            drive(address)
        for path in (apache_log, log):
            wait_for(lambda path=path: produced(path).keys() >= clients, path.read_text)
    theirs, ours = produced(apache_log), produced(log)

    for client in clients:
        assert [name for name, _ in ours[client]] == [name for name, _ in theirs[client]]
        for facts in (dict(ours[client]), dict(theirs[client])):
            assert all(re.fullmatch(r"\d+\.\d{1,3}", facts[name]) for name in TIMES), facts
            total, *parts = (round(1000 * float(facts[name])) for name in TIMES)
            # Each is rounded down to microseconds.
            assert 0 <= total - sum(parts) < len(parts), facts
            assert (int(facts["throttleTime"]) > 0) == (client == "throttled"), facts
        for name in ("securityProtocol", "principal", "listener", "clientInformation"):
            assert dict(ours[client])[name] == dict(theirs[client])[name]
