import pytest

from kctl.runtime.real.disk import RealDisk
from kctl.table_import.import_files import load_files
from kctl.table_import.import_plan import LoadOptions
from tests.support import golden_logs

NOW_MS = 1_700_000_000_000


@pytest.fixture
def golden(tmp_path):
    """A log directory that Apache Kafka 2.7.2 shut down cleanly."""
    return golden_logs.unpack("clean", tmp_path / "golden")


def run_here(work, items, _total):
    for item in items:
        yield work(item, lambda _more: None)


@pytest.fixture
def load(tmp_path):
    """Return a function that imports tables into a log directory."""

    def run(*tables, into=tmp_path / "logs", disk=None, confirm=lambda _plan: True, **options):
        return load_files(
            disk or RealDisk(), [str(table) for table in tables], str(into),
            LoadOptions(**options), NOW_MS, run_here, confirm,
        )  # fmt: skip

    return run
