"""Metrics by https, of a broker, of a cluster and of a mirror; SIGHUP renews the certificate."""

import contextlib
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

TestCertificates = pytest.importorskip("tests.support.certificates").TestCertificates
SERVED = "metrics on "
RELOADED = "certificates of the metrics are reloaded"
KEPT = "certificates of the metrics are not reloaded"


class Served:
    """A process that serves metrics by https, and what it says on stderr."""

    def __init__(self, process, said, certificates):
        self.process, self.said = process, said
        wait_for(lambda: "/metrics" in said(), said)
        self.url = said().partition(SERVED)[2].split()[0]
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])
        self._context = ssl.create_default_context(cafile=certificates.ca_file)

    def certificate(self):
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def metrics(self, page="/metrics"):
        url = self.url.replace("/metrics", page)
        with urllib.request.urlopen(url, timeout=60, context=self._context) as response:
            return response.read().decode()

    def hang_up(self, expected):
        """Send SIGHUP, and wait until it says what became of that."""
        before = self.said().count(expected)
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.said().count(expected) > before, self.said)


@contextlib.contextmanager
def kctl(directory, name, *words):
    path = directory / f"{name}.err"
    with path.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "kctl", *words], stderr=errors, stdout=subprocess.DEVNULL
        )
    try:
        yield process, path.read_text
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_each_command_that_serves_metrics_reads_their_certificate_again(tmp_path):
    certificates = TestCertificates(tmp_path)
    tls = ("--metrics-tls", certificates.broker_file)
    with (
        KctlBroker(tmp_path / "b", "--metrics-port", "0", *tls, "-t", "copied:1") as broker,
        kctl(
            tmp_path, "collector", "metrics", "serve", "-b", broker.address, "--port", "0", *tls,
            "--probe-topic", "probes", "--create-probe-topic",
        ) as collector,
        kctl(
            tmp_path, "mirror", "mirror", "run", "--source", broker.address, "--target",
            broker.address, "--topics", "copied", "--rename", "copy-of-{topic}",
            "--metrics-port", "0", *tls,
        ) as mirror,
    ):  # fmt: skip
        served = [
            Served(process, said, certificates)
            for process, said in ((broker.process, lambda: broker.errors), collector, mirror)
        ]
        own = ("kctl_loop_busy_ratio", "kctl_probe_sent_total", "kctl_mirror_failures_total")
        for it, name in zip(served, own, strict=True):
            wait_for(lambda it=it, name=name: name in it.metrics(), it.said)
            assert it.metrics("/healthz")
        first = {it.certificate() for it in served}
        certificates.issue("broker", "127.0.0.1")
        for it in served:
            it.hang_up(RELOADED)
        second = {it.certificate() for it in served}
        Path(certificates.broker_file).write_text("no certificate")
        for it in served:
            it.hang_up(KEPT)
        kept = {it.certificate() for it in served}
        for it, name in zip(served, own, strict=True):
            assert name in it.metrics()
    assert len(first) == len(second) == 1
    assert first != second == kept
