"""A kctl broker that serves metrics, for tests that read them."""

import urllib.request

from kctl.metrics.parse import parse_metrics
from tests.support.kctl_process import KctlBroker


class MeasuredBroker(KctlBroker):
    """`kctl serve --metrics-port 0`."""

    def __init__(self, directory, *arguments):
        super().__init__(
            directory, "--metrics-port", "0", "-c", "offsets.topic.num.partitions=1", *arguments
        )

    def get(self, path, **headers):
        url = self.errors.partition("metrics on ")[2].split()[0].replace("/metrics", path)
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    def scrape(self, path="/metrics"):
        return parse_metrics(self.get(path))
