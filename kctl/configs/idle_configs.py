"""IDLE_SETTINGS: settings of Apache Kafka's brokers that have no effect here, with the reason.

At its start, the broker logs those that are set; docs/compatibility.md lists all. A test checks
that the list is complete: no code reads these settings (tests/test_compatibility.py).
"""

from collections.abc import Mapping

# Reason -> settings.
REASONS: Mapping[str, tuple[str, ...]] = {
    "one thread serves all ([decision 0002](decisions/0002-one-event-loop.md))": (
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "queued.max.requests",
        "num.recovery.threads.per.data.dir",
        "log.cleaner.threads",
    ),
    "SASL: classes are not loaded by name, and credentials do not expire": (
        "principal.builder.class",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.server.callback.handler.class",
    ),
    "has an effect as listener.name.NAME.MECHANISM.sasl.jaas.config": ("sasl.jaas.config",),
    "one replica at a time moves between log directories": ("num.replica.alter.log.dirs.threads",),
    "a broker follows each leader over one connection": ("num.replica.fetchers",),
    "connections between brokers have fixed limits": (
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "replica.socket.receive.buffer.bytes",
        "replica.socket.timeout.ms",
    ),
    "TLS is OpenSSL's, not Java's": (
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    "the operating system tunes it": ("socket.receive.buffer.bytes",),
    "Java classes are not loaded": (
        "alter.config.policy.class.name",
        "create.topic.policy.class.name",
        "client.quota.callback.class",
    ),
    "completed operations are removed once they outnumber the waiting ones": (
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "producer.purgatory.purge.interval.requests",
    ),
    "start offsets are written with the recovery points": (
        "log.flush.start.offset.checkpoint.interval.ms",
    ),
    "always -1, Kafka's default": ("offsets.commit.required.acks",),
    "metrics: read from --metrics-port instead": (
        "kafka.metrics.polling.interval.secs",
        "kafka.metrics.reporters",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
    ),
    "TLS and access lists of ZooKeeper: not supported yet": (
        "zookeeper.clientCnxnSocket",
        "zookeeper.set.acl",
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keystore.type",
        "zookeeper.ssl.ocsp.enable",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
    ),
    "kazoo, the ZooKeeper client used here, has no such setting": (
        "zookeeper.max.in.flight.requests",
        "zookeeper.sync.time.ms",
    ),
    "GSSAPI: not planned, it needs a C library of the system": (
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
}
IDLE_SETTINGS: Mapping[str, str] = {
    name: reason for reason, names in REASONS.items() for name in names
}
