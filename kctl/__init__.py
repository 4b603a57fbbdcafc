"""kctl: Apache Kafka 2.7 in a pip install, and the toolkit to run the real one."""

__version__ = "0.1.0"

# What pip installs: the name `kctl` on PyPI belongs to another project.
DISTRIBUTION = "kctl-kafka"
