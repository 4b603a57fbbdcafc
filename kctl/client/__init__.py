"""A small Kafka client: what admin commands and brokers use to talk to brokers."""
