"""Metering: measures one broker and serves what it measures at /metrics, /healthz and /readyz.

It exists only for a broker that was started with --metrics-port; its parts are put around those of
the broker where it is assembled.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kctl.broker.metering.broker_samples import PARTITIONS_MAX, BrokerSamples
from kctl.broker.metering.cluster_samples import ClusterSamples
from kctl.broker.metering.health import Readiness
from kctl.broker.metering.measured_replicas import MeasuredReplicaManager
from kctl.broker.metering.meter import BrokerMeter, MeteredTrace
from kctl.broker.metering.quota_samples import quota_samples
from kctl.broker.network.connection_host import FastPath
from kctl.broker.network.server import SocketServer
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.broker.services import Services
from kctl.metrics.family import Samples
from kctl.metrics.http_server import MetricsServer, Page, PageRequest
from kctl.metrics.metrics_port import MetricsPort
from kctl.metrics.page import health_pages, metrics_page
from kctl.metrics.process_samples import disk_samples, process_samples
from kctl.model import Endpoint
from kctl.protocol.api_keys import ApiKey
from kctl.runtime.process_facts import ProcessFacts
from kctl.runtime.runtime import Runtime
from kctl.work import Work


class Metering:
    """The meter of one broker, and its pages."""

    def __init__(
        self,
        runtime: Runtime,
        endpoint: Endpoint | MetricsPort,
        seconds: Callable[[], float],
        process_facts: Callable[[], ProcessFacts],
    ) -> None:
        """Take where to listen, a clock with microseconds, and what asks the system about this
        process."""
        self.meter = BrokerMeter(seconds)
        # What the broker runs on: its events are counted.
        self.runtime: Runtime = replace(runtime, trace=MeteredTrace(runtime.trace, self.meter))
        self.readiness = Readiness()
        self._process_facts = process_facts
        self._samples: BrokerSamples | None = None
        self._cluster: ClusterSamples | None = None
        self._watchdog = getattr(runtime.scheduler, "watchdog", None)
        self._server = MetricsServer(
            runtime,
            endpoint,
            {"/metrics": self._metrics, **health_pages(self.readiness.reasons)},
        )

    @property
    def endpoint(self) -> Endpoint:
        """Return where it listens, with the bound port after the start."""
        return self._server.endpoint

    @property
    def url(self) -> str:
        """Return the URL of /metrics."""
        return self._server.url

    @property
    def has_tls(self) -> bool:
        """Return whether it answers by https."""
        return self._server.has_tls

    def reload_tls(self) -> None:
        """Read the key and the certificates again, for new connections, and log it."""
        self._server.reload_tls(self.runtime.trace.info, self.runtime.trace.warning)

    def start(self) -> None:
        """Answer from now on; raise KctlError if the port cannot be bound."""
        self._server.start()
        if self._watchdog is not None:
            self.meter.turns.start(self._watchdog)

    def close(self) -> None:
        """Stop answering."""
        self._server.close()
        self.meter.turns.stop()

    def make_replica_manager(self, *arguments: Any, **options: Any) -> ReplicaManager:
        """Return a ReplicaManager that is measured."""
        return MeasuredReplicaManager(self.meter, *arguments, **options)

    def fast_paths(self, paths: Mapping[bytes, FastPath]) -> dict[bytes, FastPath]:
        """Return fast paths that are measured."""
        return {
            key: self.meter.fast_path(
                next(it for it in ApiKey if it == int.from_bytes(key, "big")), path
            )
            for key, path in paths.items()
        }

    def attach(self, services: Services, server: SocketServer) -> None:
        """Read the metrics from a broker that listens."""
        self.readiness.services = services
        self._samples = BrokerSamples(
            services,
            server,
            self.meter,
            self._watchdog,
            lambda: self.readiness.is_running,
        )
        self._cluster = ClusterSamples(services)
        server.count_requests(self.meter)
        services.log_manager.measure_flushes(self.meter.seconds, self.meter.fsyncs.observe)

    def _metrics(self, request: PageRequest) -> Work[Page]:
        choices = {"1": True, "0": False}
        wanted = choices.get(request.parameters.get("partitions", ""))
        with_quotas = choices.get(request.parameters.get("quotas", ""))
        page = yield from metrics_page(self._all(wanted, with_quotas), request.accept)
        return page

    def _all(self, with_partitions: bool | None, with_quotas: bool | None) -> Samples:
        facts = self._process_facts()
        if self._samples is not None and self._cluster is not None:
            services = self.readiness.services
            count = 0 if services is None else len(services.replica_manager.partitions)
            if with_partitions is None:
                with_partitions = count <= PARTITIONS_MAX
            yield from self._samples.all(with_partitions=with_partitions)
            if services is not None:
                yield from quota_samples(
                    services.client_quotas,
                    services.runtime.clock.monotonic_ms(),
                    with_each=with_quotas,
                )
            yield from self._cluster.all(with_partitions=with_partitions)
        yield from disk_samples(facts)
        yield from process_samples(facts)
