import dataclasses

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.runtime.real.disk import RealDisk
from tests.support import golden_logs
from tests.support.log_world import LogWorld
from tests.support.virtual_runtime import virtual_runtime


@pytest.fixture
def runtime():
    """A runtime with real files whose time the test controls."""
    return dataclasses.replace(virtual_runtime(), disk=RealDisk())


@pytest.fixture
def clean_logs(tmp_path):
    """A fresh copy of the golden log directory after a clean shutdown."""
    return golden_logs.unpack("clean", tmp_path)


@pytest.fixture
def unclean_logs(tmp_path):
    """A fresh copy of the golden log directory right after `kill -9`."""
    return golden_logs.unpack("unclean", tmp_path)


@pytest.fixture
def make_world(runtime, tmp_path):
    """Create a broker's logs in a temporary directory; keyword arguments are topic configs."""

    def make(*, log_dirs=1, options=None, **settings):
        return LogWorld(
            runtime, tmp_path / "logs", LogConfig(**settings), log_dirs, **(options or {})
        )

    return make
