"""Producer settings as options of the data source's writer (`kafka.*`): which ones kctl applies,
which have no effect, and which it rejects.

Spark: org.apache.spark.sql.kafka010.KafkaSourceProvider (kafkaParamsForProducer); Kafka:
org.apache.kafka.clients.producer.ProducerConfig
"""

from kctl.export.spark.client_settings import ClientSettings

# Those that `kctl.kafka.ProducerConfig` reads.
READ_AS_PRODUCER = frozenset({
    "acks", "client.id", "compression.type", "delivery.timeout.ms", "enable.idempotence",
    "max.request.size", "request.timeout.ms",
})  # fmt: skip
_APPLIED = READ_AS_PRODUCER | {
    "bootstrap.servers", "batch.size", "security.protocol", "transaction.timeout.ms",
}  # fmt: skip
# They affect when records are sent, but not which, nor how safely.
_WITHOUT_EFFECT = frozenset({
    "auto.include.jmx.reporter", "buffer.memory", "client.dns.lookup", "compression.gzip.level",
    "compression.lz4.level", "compression.zstd.level", "connections.max.idle.ms",
    "enable.metrics.push", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
    "metadata.max.age.ms", "metadata.max.idle.ms", "metadata.recovery.strategy",
    "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms",
    "send.buffer.bytes", "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
})  # fmt: skip
_REJECTED = {
    "key.serializer": "keys are text or bytes; encode them in the DataFrame",
    "value.serializer": "values are text or bytes; encode them in the DataFrame",
    "interceptor.classes": "records are written by kctl, not by Kafka's producer",
    "partitioner.class": "the column partition names the partition of a row",
    "partitioner.ignore.keys": "the column partition names the partition of a row",
    "transactional.id": "kctl.exactly.once=true writes in transactions",
}  # fmt: skip

PRODUCER_SETTINGS = ClientSettings("producers", _APPLIED, _WITHOUT_EFFECT, _REJECTED)
