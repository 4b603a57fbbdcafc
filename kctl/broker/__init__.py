"""A Kafka 2.7 broker. Start at broker.py."""
