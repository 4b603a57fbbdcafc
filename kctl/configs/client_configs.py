"""The names of the configs of Kafka's clients: admin client, consumer and producer.

Kafka 2.7: org.apache.kafka.clients.admin.AdminClientConfig, consumer.ConsumerConfig,
producer.ProducerConfig
"""

import difflib

from kctl.errors import UsageError

# Those of TLS and SASL are recognized by their prefixes: later versions have others.
_PREFIXES = ("ssl.", "sasl.", "security.")
# Those of librdkafka that have other names, or that only its own implementation of HTTPS reads.
_OF_LIBRDKAFKA = frozenset({
    "api.version.request", "broker.version.fallback",
    "enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification",
    "https.ca.location", "https.ca.pem",
})  # fmt: skip
CLIENT_CONFIGS = frozenset({
    "acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset",
    "batch.size", "bootstrap.servers", "buffer.memory", "check.crcs", "client.dns.lookup",
    "client.id", "client.rack", "compression.type", "connections.max.idle.ms",
    "default.api.timeout.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence",
    "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.id", "group.instance.id", "heartbeat.interval.ms", "interceptor.classes",
    "isolation.level", "key.deserializer", "key.serializer", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms",
    "max.poll.records", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms",
    "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "partitioner.class",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retries", "retry.backoff.ms", "send.buffer.bytes",
    "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms", "transaction.timeout.ms", "transactional.id",
    "value.deserializer", "value.serializer",
})  # fmt: skip

# Those that kctl's own client reads: Java's, and librdkafka's for the same things.
_EFFECTIVE = frozenset({
    "api.version.request", "bootstrap.servers", "broker.version.fallback", "client.id",
    "security.protocol",
    "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password",
    "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
    "enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification",
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem",
    "ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.key.location", "ssl.key.password", "ssl.key.pem", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.protocol", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password", "ssl.truststore.type",
})  # fmt: skip
# The options of commands that take the place of configs.
_OPTIONS = {
    "acks": "--acks",
    "compression.type": "--compression",
    "default.api.timeout.ms": "--timeout",
    "group.id": "--group",
    "isolation.level": "--isolation",
    "request.timeout.ms": "--timeout",
    "transactional.id": "--transactional-id",
}


def without_effect(name: str) -> str | None:
    """Return the reason to print if kctl does not use `name`, a config of Kafka's clients."""
    if name in _EFFECTIVE:
        return None
    option = _OPTIONS.get(name)
    return f"{name} has no effect in kctl" + (f"; the option is {option}" if option else "")


def is_client_config(name: str) -> bool:
    """Return whether `name` is a config of Kafka's clients, or of librdkafka."""
    return name in CLIENT_CONFIGS or name in _OF_LIBRDKAFKA or name.startswith(_PREFIXES)


def check_client_config(name: str, option: str) -> None:
    """Raise UsageError if `name`, a value of `option`, is not a config of Kafka's clients."""
    if is_client_config(name):
        return
    near = difflib.get_close_matches(name, CLIENT_CONFIGS | _EFFECTIVE, n=1, cutoff=0.7)
    raise UsageError(
        f"{option} {name}: Kafka's clients have no such config",
        hint=f"did you mean {near[0]}?"
        if near
        else "e.g. client.id; configs of topics and brokers are set with kctl config alter",
    )
