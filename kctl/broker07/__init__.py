"""The broker of Kafka 0.7 (`kctl serve --kafka-0.7`): byte offsets, `.kafka` files, no replicas."""
