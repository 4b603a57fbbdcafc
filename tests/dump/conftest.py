"""Log directories that Apache Kafka 2.7.2 wrote, unpacked once."""

import tarfile
from pathlib import Path

import pytest

from tests.support.golden import GOLDEN


@pytest.fixture(scope="session")
def golden_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with logs-clean, dump-clean, logs-unclean and dump-unclean."""
    root = tmp_path_factory.mktemp("golden-logs")
    for kind in ("clean", "unclean"):
        with tarfile.open(GOLDEN / f"logs/{kind}.tar.xz") as tar:
            tar.extractall(root, filter="data")
    return root
