"""Fixtures of golden log directories; a package's conftest imports those that its tests use."""

import pytest

from tests.support.forensics import partition_copier
from tests.support.golden_logs import unpacked


@pytest.fixture(scope="session")
def golden_logs():
    """A directory with logs-KIND and dump-KIND, KIND clean or unclean, which Apache Kafka 2.7.2
    wrote; read only."""
    return unpacked("clean", "unclean")


@pytest.fixture
def partition(golden_logs, tmp_path):
    """Return a function that copies a golden partition to a log directory of the test."""
    return partition_copier(golden_logs / "logs-clean", tmp_path / "logs")
