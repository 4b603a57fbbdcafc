"""The pytest plugin: brokers as fixtures. It loads nothing of kctl until a fixture is asked for.

- `kafka_broker`: a broker of the test's own, with the topics of its marker `kafka_topics`.
- `kafka_broker_session`: one that all tests of the session share.
- `kafka_broker_factory`: starts brokers that last for the session, as its caller wants them.

Markers and settings of the ini file: docs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kctl.testing.kafka_broker import KafkaBroker

    KafkaBrokerFactory = Callable[..., KafkaBroker]

_MARKERS = {
    "kafka_topics": '("name:partitions", ...): topics that the fixture kafka_broker starts with',
    "kafka_settings": "({name: value}): settings that the fixture kafka_broker starts with",
    "kctl_as_version": '("2.4"): the release that the fixture kafka_broker passes for',
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the ini file may say, for every broker."""
    parser.addini("kafka_topics", "topics of every kctl broker: name:partitions", "linelist")
    parser.addini("kafka_settings", "settings of every kctl broker: name=value", "linelist")
    parser.addini("kctl_as_version", "the release that kctl brokers pass for, e.g. 2.4", "string")


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for name, text in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}{text}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker that cannot have an effect is a mistake."""
    names = getattr(item, "fixturenames", ())
    if "kafka_broker_session" in names and "kafka_broker" not in names:
        for mark in item.own_markers:
            if mark.name in _MARKERS:
                pytest.fail(
                    f"{mark.name} has no effect on kafka_broker_session, which other tests share:"
                    " use kafka_broker, create_topic() or the ini file",
                    pytrace=False,
                )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A kctl broker of this test's own, on a free port; its data go with it."""
    topics = [*request.config.getini("kafka_topics")]
    settings = _ini_settings(request.config)
    version = request.config.getini("kctl_as_version")
    # Outer markers come last: the nearest one has the last word.
    for mark in reversed(list(request.node.iter_markers("kafka_topics"))):
        topics += mark.args
    for mark in reversed(list(request.node.iter_markers("kafka_settings"))):
        settings |= _marked_settings(mark)
    for mark in reversed(list(request.node.iter_markers("kctl_as_version"))):
        version = _only_argument(mark)
    broker = _started(topics, settings, version)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def kafka_broker_factory(pytestconfig: pytest.Config) -> Iterator[KafkaBrokerFactory]:
    """Starts brokers that last until the end of the session: `kafka_broker_factory(topics=[...],
    settings={...}, kctl_as_version="2.4")`. What is not given is as the ini file says."""
    brokers: list[KafkaBroker] = []

    def start(
        *,
        topics: Iterable[str] | None = None,
        settings: Mapping[str, object] | None = None,
        kctl_as_version: str | None = None,
    ) -> KafkaBroker:
        broker = _started(
            pytestconfig.getini("kafka_topics") if topics is None else topics,
            {**_ini_settings(pytestconfig), **(settings or {})},
            kctl_as_version or pytestconfig.getini("kctl_as_version"),
        )
        brokers.append(broker)
        return broker

    try:
        yield start
    finally:
        for broker in reversed(brokers):
            broker.stop()


@pytest.fixture(scope="session")
def kafka_broker_session(kafka_broker_factory: KafkaBrokerFactory) -> KafkaBroker:
    """One kctl broker for all tests of the session, as the ini file describes it."""
    return kafka_broker_factory()


def _started(topics: Iterable[str], settings: Mapping[str, object], version: str) -> KafkaBroker:
    from kctl.errors import KctlError
    from kctl.testing.kafka_broker import KafkaBroker
    from kctl.testing.kafka_versions import NATIVE

    try:
        broker = KafkaBroker(topics=topics, settings=settings, kctl_as_version=version or NATIVE)
        return broker.start()
    except KctlError as error:
        hint = f" ({error.hint})" if error.hint else ""
        reason = f"kafka_broker: {error}{hint}"
    return pytest.fail(reason, pytrace=False)


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini("kafka_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            pytest.fail(f"kafka_settings: not name=value: {line}", pytrace=False)
        settings[name.strip()] = value.strip()
    return settings


def _marked_settings(mark: pytest.Mark) -> Mapping[str, object]:
    settings = _only_argument(mark)
    if not isinstance(settings, dict):
        pytest.fail('kafka_settings takes a dict: {"num.partitions": 3}', pytrace=False)
    return settings


def _only_argument(mark: pytest.Mark) -> Any:
    if len(mark.args) != 1 or mark.kwargs:
        pytest.fail(f"{mark.name}{_MARKERS[mark.name]}", pytrace=False)
    return mark.args[0]
