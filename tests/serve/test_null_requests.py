"""Null in every field that may be null, in every API and version that clients use: answered or
refused, and never with a traceback in the log."""

from collections.abc import Iterator
from typing import Any

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Struct
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.broker_client import BrokerClient
from tests.support.filled_requests import Path, array_paths, filled

# Requests of brokers to each other, and of a controller that stops a broker.
BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_ISR, ApiKey.WRITE_TXN_MARKERS,
}  # fmt: skip


def null_paths(struct: type[Struct], version: int, outer: Path = ()) -> Iterator[Path]:
    """Return the path of every field that may be null in `version`."""
    for field in struct.fields:
        if not field.is_in(version):
            continue
        path = (*outer, field.name)
        if field.is_nullable_in(version) or field.kind == "records":
            yield path
        if field.kind == "array" and isinstance(field.element, type):
            yield from null_paths(field.element, version, path)


def set_null(struct: Any, path: Path) -> None:
    for name in path[:-1]:
        struct = getattr(struct, name)[0]
    setattr(struct, path[-1], None)


def requests_with_a_null(api: ApiKey, version: int) -> Iterator[tuple[Path, Any]]:
    cls = api.request_class
    longest = {}
    for path in array_paths(cls, version):
        longest[path] = filled(cls, version, path, 1, "t")
    for path in null_paths(cls, version):
        if len(path) == 1:
            message = filled(cls, version, (), 1, "t")
        else:
            message = filled(cls, version, path[:-1], 1, "t")
        set_null(message, path)
        yield path, message


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker(topics=["t:1"]) as broker:
        yield broker


@pytest.mark.parametrize(
    "api", [it for it in ApiKey if it not in BETWEEN_BROKERS], ids=lambda api: api.name
)
def test_nulls_leave_no_traceback(broker, api):
    for version in range(api.max_version + 1):
        for path, message in requests_with_a_null(api, version):
            if "timeout_ms" in {field.name for field in message.fields}:
                message.timeout_ms = 100
            client = BrokerClient(broker.bootstrap_servers)
            try:
                client.ask(message, version)
            except ConnectionError:
                pass
            finally:
                client.close()
            bad = [line for line in broker.log_lines if "Traceback" in line or "Error" in line]
            assert bad == [], (api, version, path)
