"""Consumer settings as options of the data source (`kafka.*`): which ones kctl applies, which have
no effect, and which it rejects.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider (validateGeneralOptions); Kafka:
org.apache.kafka.clients.consumer.ConsumerConfig
"""

from kctl.export.spark.client_settings import ClientSettings

_APPLIED = frozenset({
    "bootstrap.servers", "client.id", "group.id", "isolation.level", "security.protocol",
})  # fmt: skip
# They affect how records are fetched, or members of a group, and the data source joins none.
_WITHOUT_EFFECT = frozenset({
    "allow.auto.create.topics", "auto.commit.interval.ms", "check.crcs", "client.dns.lookup",
    "client.rack", "connections.max.idle.ms", "default.api.timeout.ms",
    "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes",
    "group.instance.id", "heartbeat.interval.ms", "internal.leave.group.on.close",
    "internal.throw.on.fetch.stable.offset.unsupported", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "partition.assignment.strategy", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms",
    "send.buffer.bytes", "session.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
})  # fmt: skip
_REJECTED = {
    "auto.offset.reset": "startingOffsets sets where a query begins",
    "key.deserializer": "keys are bytes; decode them in the DataFrame",
    "value.deserializer": "values are bytes; decode them in the DataFrame",
    "enable.auto.commit": "kctl.commit.offsets commits a stream's offsets",
    "interceptor.classes": "records are read by kctl, not by Kafka's consumer",
}  # fmt: skip

CONSUMER_SETTINGS = ClientSettings("consumers", _APPLIED, _WITHOUT_EFFECT, _REJECTED)
