"""A broker in this process, and brokers of Kafka 0.7 that only listen."""

import pytest

from kctl.testing.kafka_broker import KafkaBroker
from tests.support.listener07 import Listener07


@pytest.fixture(scope="module")
def kafka():
    """One broker for the tests of a module; each has topics of its own."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def listen():
    """Start a Listener07."""
    made = []

    def start(broker_id=0):
        made.append(Listener07(broker_id))
        return made[-1]

    yield start
    for it in made:
        it.close()
