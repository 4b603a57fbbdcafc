"""The Kafka wire protocol as values and bytes. No sockets, no clock."""
