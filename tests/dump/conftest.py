"""Log directories that Apache Kafka 2.7.2 wrote, unpacked once."""

from tests.support.golden_fixtures import golden_logs

__all__ = ["golden_logs"]
