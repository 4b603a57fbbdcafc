import pytest

from tests.support.controller_cluster import running_cluster


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        yield cluster
