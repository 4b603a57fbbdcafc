"""A Kafka client: connections, routing, producer, consumer, group member, offsets."""
