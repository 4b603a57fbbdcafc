"""A Kafka broker for tests: the pytest plugin, `KafkaBroker` with fault injection, and
`ScriptedBroker`."""
