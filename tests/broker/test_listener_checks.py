"""What Apache Kafka 2.7.2 refuses at its start, of listeners and of limits of connections."""

import pytest

from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UsageError

TWO = "PLAINTEXT://h:9092,OTHER://h:9093"
MAP = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,THIRD:PLAINTEXT"


def settings(**changes):
    given = {"listeners": TWO, "listener.security.protocol.map": MAP}
    return {**given, **{name.replace("__", "."): text for name, text in changes.items()}}


REFUSED = {
    "a name twice": (
        {"listeners": "PLAINTEXT://h:1,plaintext://h:2"}, "different name: see listeners"
    ),
    "a port twice": ({"listeners": "PLAINTEXT://h:1,OTHER://h:1"}, "different port"),
    "an advertised name twice": (
        {"advertised__listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "see advertised.listeners"
    ),
    "a name without a protocol": ({"listeners": "X://h:1"}, "No security protocol defined for"),
    "an unknown protocol": ({"listener__security__protocol__map": "PLAINTEXT:TLS"}, "names TLS"),
    "no endpoint": ({"listeners": "PLAINTEXT://h"}, "Unable to parse"),
    "an advertised listener that does not listen": (
        {"advertised__listeners": "PLAINTEXT://h:1,THIRD://h:3"}, "subset of the ones defined"
    ),
    "an address that none can reach": (
        {"advertised__listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable"
    ),
    "both ways to say how brokers connect": (
        {
            "inter__broker__listener__name": "OTHER",
            "security__inter__broker__protocol": "PLAINTEXT",
        },
        "Only one of inter.broker.listener.name",
    ),
    "an inter-broker listener that does not exist": (
        {"inter__broker__listener__name": "THIRD"}, "inter.broker.listener.name must be"
    ),
    "an inter-broker listener that is not advertised": (
        {
            "inter__broker__listener__name": "OTHER",
            "advertised__listeners": "PLAINTEXT://h:9092",
        },
        "inter.broker.listener.name must be",
    ),
    "a protocol between brokers without a listener": (
        {"security__inter__broker__protocol": "SSL"}, "inter.broker.listener.name must be"
    ),
    "a control plane that does not exist": (
        {"control__plane__listener__name": "THIRD"}, "control.plane.listener.name must be"
    ),
    "a control plane that is the inter-broker listener": (
        {"control__plane__listener__name": "plaintext"}, "should have a different value"
    ),
    "no connection for anyone": (
        {"max__connections__per__ip": "0"}, "max.connections.per.ip can be set to zero only if"
    ),
    "an override that is no number": (
        {"max__connections__per__ip__overrides": "h:few"}, "max.connections.per.ip.overrides"
    ),
    "a failure delay as long as connections live": (
        {"connections__max__idle__ms": "100"}, "should always be less than"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_at_the_start(changes, reason):
    with pytest.raises(UsageError) as caught:
        BrokerConfig(settings(**changes))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"listeners": "PLAINTEXT://h:0,OTHER://h:0"},
        {"advertised__listeners": "PLAINTEXT://h:1,OTHER://h:1"},
        {"inter__broker__listener__name": "other", "control__plane__listener__name": "plaintext"},
        {"max__connections__per__ip": "0", "max__connections__per__ip__overrides": "h:1"},
        {"connections__max__idle__ms": "-1"},
    ],
)
def test_accepted(changes):
    BrokerConfig(settings(**changes))
