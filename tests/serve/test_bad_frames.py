"""What a broker visibly says to bad frames is what Apache Kafka 2.7.2 says, and nothing ails it."""

import pytest

from tests.serve.bad_frames import (
    FRAMES,
    HEAVY,
    KAFKA,
    OUT_OF_REACH,
    STRICTER,
    TOPIC_CREATION,
    answered,
    visible,
)
from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

CASES = [*FRAMES, *HEAVY]
SAME_MIN = 60
SETTING = "auto.create.topics.enable"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with KctlBroker(tmp_path_factory.mktemp("kctl"), "-c", f"{SETTING}=false") as broker:
        assert visible(broker.address, TOPIC_CREATION) == answered(0)
        yield broker
        assert "Unexpected error" not in broker.errors


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    folder = tmp_path_factory.mktemp("apache")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(folder, zookeeper.address, settings={SETTING: "false"}) as it,
    ):
        assert visible(it, TOPIC_CREATION) == answered(0)
        yield it


def test_the_table_is_whole():
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) == 66
    assert set(KAFKA) == set(names)
    assert set(STRICTER) < set(names)
    assert len(names) - len(STRICTER) >= SAME_MIN


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_bad_frame_gets(broker, case):
    assert visible(broker.address, case) == STRICTER.get(case.name, KAFKA[case.name])
    assert visible(broker.address, FINE) == answered(0)


@pytest.mark.kafka
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in OUT_OF_REACH], ids=lambda case: case.name
)
def test_what_a_bad_frame_gets_of_apache_kafka(apache, case):
    assert visible(apache, case) == KAFKA[case.name]


# The request that shows that the broker still serves others.
FINE = next(case for case in FRAMES if case.name == "half-close behind a request")
