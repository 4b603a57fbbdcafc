from tests.support.golden_fixtures import golden_logs, partition

__all__ = ["golden_logs", "partition"]
