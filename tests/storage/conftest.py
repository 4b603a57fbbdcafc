import pytest

from tests.support import golden_logs


@pytest.fixture(scope="session")
def clean_logs(tmp_path_factory):
    """The golden log directory after a clean stop; read only."""
    return golden_logs.unpack("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="session")
def unclean_logs(tmp_path_factory):
    """The golden log directory right after `kill -9`; read only."""
    return golden_logs.unpack("unclean", tmp_path_factory.mktemp("unclean"))
