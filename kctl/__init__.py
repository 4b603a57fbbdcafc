"""kctl: Apache Kafka 2.7 in a pip install, and the toolkit to run the real one."""

import os

__version__ = "0.1.0"

# What pip installs: the name `kctl` on PyPI belongs to another project.
DISTRIBUTION = "kctl-kafka"

if os.environ.get("KCTL_PURE") == "1":
    # Before any other module of kctl is imported.
    from kctl.builds import choose_sources

    choose_sources()
