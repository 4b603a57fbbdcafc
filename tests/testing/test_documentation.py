"""The examples of docs/testing.md and docs/api/testing.md run as they are."""

import inspect
import re
from pathlib import Path

import pytest

from kctl.testing.kafka_broker import KafkaBroker
from tests.support import api_pages

pytest_plugins = "pytester"

PAGE = (Path(__file__).parents[2] / "docs/testing.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[INI] = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
API_EXAMPLES = api_pages.examples("testing.md")
PUBLIC = [
    "kctl.testing.kafka_broker",
    "kctl.testing.kafka_versions",
    "kctl.testing.pytest_plugin",
    "kctl.testing.scripted_broker",
    "kctl.testing.topic_records",
]
CLIENTS = ("confluent_kafka", "kafka", "aiokafka")


@pytest.mark.slow
def test_every_example_passes(pytester):
    pytester.makepyfile(**{f"test_example_{n}": text for n, text in enumerate(EXAMPLES)})
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist")
    attempts = sum(text.count('"attempt"') for text in EXAMPLES)
    result.assert_outcomes(passed=len(re.findall(r"^def test_", PAGE, re.MULTILINE)) + attempts)


@pytest.mark.slow
def test_every_example_of_the_reference_passes(pytester):
    pytester.makepyfile(**{f"test_api_{n}": text for n, text in enumerate(API_EXAMPLES)})
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=sum(text.count("def test_") for text in API_EXAMPLES))


def test_every_public_name_is_documented():
    assert api_pages.undocumented("testing.md", PUBLIC) == []


def test_the_reference_names_every_argument_and_member_of_a_broker():
    page = (api_pages.API / "testing.md").read_text()
    members = [name for name in vars(KafkaBroker) if not name.startswith("_")]
    arguments = list(inspect.signature(KafkaBroker).parameters)
    assert [it for it in members + arguments if not re.search(rf"`.*\b{it}\b", page)] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_there_is_an_example_for_the_client(client):
    assert any(f"from {client} import" in text for text in EXAMPLES)


def test_the_ini_file_is_for_all_brokers(pytester):
    pytester.makefile(".toml", pyproject=INI)
    pytester.makepyfile(
        """
        def test_own(kafka_broker):
            assert kafka_broker.topics == {"orders": 3, "invoices": 1}
            assert kafka_broker.kctl_as_version == "2.4"

        def test_shared(kafka_broker_session):
            assert kafka_broker_session.topics == {"orders": 3, "invoices": 1}
        """
    )
    pytester.runpytest_inprocess("-p", "no:xdist").assert_outcomes(passed=2)
