"""Random sessions of requests, drawn from a seed: kctl answers as Apache Kafka 2.7.2 does.

KCTL_SESSIONS=N plays N of each kind from the seed on, KCTL_SEED=S begins at another.
"""

import os

import pytest

from tests.support.random_sessions import LogSession

STEPS = 60
COUNT = int(os.environ.get("KCTL_SESSIONS", "10"))
SEED = int(os.environ.get("KCTL_SEED", "1"))


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_sessions_of_producers_and_readers(twins, seed):
    LogSession(twins, seed).run(STEPS)
