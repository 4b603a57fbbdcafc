"""The pytest plugin: brokers as fixtures. It imports the rest of kctl only when a fixture is used.

- `kafka_broker`: one broker per test, with the topics of the marker `kafka_topics`.
- `kafka_broker_session`: one broker that all tests of the session share.
- `kafka_broker_factory`: starts further brokers that last for the session.

Markers and ini options: docs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kctl.testing.kafka_broker import KafkaBroker

    KafkaBrokerFactory = Callable[..., KafkaBroker]

__all__ = ["kafka_broker", "kafka_broker_factory", "kafka_broker_session"]

_MARKERS = {
    "kafka_topics": '("name:partitions", ...): topics of the fixture kafka_broker',
    "kafka_settings": "({name: value}): settings that the fixture kafka_broker starts with",
    "kctl_as_version": '("2.4"): the Kafka release that the fixture kafka_broker serves as',
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options, which apply to every broker."""
    parser.addini("kafka_topics", "topics of every kctl broker: name:partitions", "linelist")
    parser.addini("kafka_settings", "settings of every kctl broker: name=value", "linelist")
    parser.addini(
        "kctl_as_version", "the Kafka release that kctl brokers serve as, e.g. 2.4", "string"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for name, text in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}{text}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker would have no effect."""
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
    """Start a broker for this test, on a free port; its data is removed afterwards."""
    topics = [*request.config.getini("kafka_topics")]
    settings = _ini_settings(request.config)
    version = request.config.getini("kctl_as_version")
    # iter_markers yields the nearest first; reversed, so that it takes precedence.
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
    """Return a function that starts brokers, which last until the end of the session.

    Call it as `kafka_broker_factory(topics=[...], settings={...}, kctl_as_version="2.4")`. Omitted
    arguments are taken from the ini file. With `users={"alice": "secret"}` clients must log in;
    with `acls=["alice: Read topic:orders"]` they may do only what these allow; with
    `security="SSL"` or `"SASL_SSL"` they must speak TLS.
    """
    brokers: list[KafkaBroker] = []

    def start(
        *,
        topics: Iterable[str] | None = None,
        settings: Mapping[str, object] | None = None,
        kctl_as_version: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] | None = None,
        security: str | None = None,
    ) -> KafkaBroker:
        broker = _started(
            pytestconfig.getini("kafka_topics") if topics is None else topics,
            {**_ini_settings(pytestconfig), **(settings or {})},
            kctl_as_version or pytestconfig.getini("kctl_as_version"),
            users,
            acls,
            security,
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
    """Return one broker for all tests of the session, as the ini file configures it."""
    return kafka_broker_factory()


def _started(
    topics: Iterable[str],
    settings: Mapping[str, object],
    version: str,
    users: Mapping[str, str] | None = None,
    acls: Iterable[str] | None = None,
    security: str | None = None,
) -> KafkaBroker:
    from kctl.errors import KctlError
    from kctl.testing.kafka_broker import KafkaBroker
    from kctl.testing.kafka_versions import NATIVE

    try:
        broker = KafkaBroker(
            topics=topics,
            settings=settings,
            kctl_as_version=version or NATIVE,
            users=users,
            acls=acls,
            security=security,
        )
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
