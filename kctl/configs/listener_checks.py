"""check_listeners: refuses settings of listeners that Apache Kafka refuses at its start. Pure.

Kafka 2.7: kafka.server.KafkaConfig (`validateValues`), kafka.utils.CoreUtils
(`listenerListToEndPoints`).
"""

from collections.abc import Mapping, Sequence

from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.model import Endpoint


def check_listeners(listeners: Sequence[Endpoint], advertised: Sequence[Endpoint]) -> None:
    """Raise UsageError for names or ports that are not distinct, and for advertised listeners that
    do not exist or cannot be reached."""
    _check_distinct("listeners", listeners)
    _check_distinct("advertised.listeners", advertised)
    ports = [it.port for it in listeners if it.port]
    if len(set(ports)) != len(ports):
        raise UsageError("Each listener must have a different port: see listeners")
    names = {it.listener_name for it in listeners}
    unknown = sorted({it.listener_name for it in advertised} - names)
    if unknown:
        raise UsageError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined"
            f" in listeners: {', '.join(unknown)} is not among {', '.join(sorted(names))}"
        )
    if any(it.host == "0.0.0.0" for it in advertised):
        raise UsageError(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0",
            hint="set advertised.listeners to an address that clients can reach",
        )


def check_names_between_brokers(
    given: Mapping[str, str],
    inter_broker: str,
    control_plane: str | None,
    advertised: Sequence[Endpoint],
) -> None:
    """Raise UsageError unless the listeners of brokers and of controllers are advertised."""
    if "inter.broker.listener.name" in given and "security.inter.broker.protocol" in given:
        raise UsageError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be"
            " set."
        )
    names = sorted({it.listener_name for it in advertised})
    listed = ", ".join(names)
    if inter_broker not in names:
        raise UsageError(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners:"
            f" {inter_broker} is not among {listed}",
            hint="set inter.broker.listener.name, or security.inter.broker.protocol",
        )
    if control_plane is not None and control_plane not in names:
        raise UsageError(
            "control.plane.listener.name must be a listener name defined in advertised.listeners:"
            f" {control_plane} is not among {listed}"
        )
    if control_plane == inter_broker:
        raise UsageError(
            "control.plane.listener.name, when defined, should have a different value from the"
            f" inter broker listener name: both are {inter_broker}"
        )


def check_connection_limits(
    per_ip_max: int, per_ip_overrides: str, failure_delay_ms: int, idle_ms_max: int
) -> None:
    """Raise UsageError for limits of connections that contradict each other."""
    for item in filter(None, (part.strip() for part in per_ip_overrides.split(","))):
        host, _, number = item.rpartition(":")
        if not host.strip() or not is_whole_number(number.strip()):
            raise UsageError(
                f"Error parsing configuration property 'max.connections.per.ip.overrides': {item}",
                hint="e.g. 10.0.0.1:100,localhost:50",
            )
    if per_ip_max == 0 and not per_ip_overrides.strip():
        raise UsageError(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides"
            " property is set."
        )
    if 0 <= idle_ms_max <= failure_delay_ms:
        raise UsageError(
            f"connection.failed.authentication.delay.ms={failure_delay_ms} should always be less"
            f" than connections.max.idle.ms={idle_ms_max} to prevent failed authentication"
            " responses from timing out"
        )


def _check_distinct(setting: str, endpoints: Sequence[Endpoint]) -> None:
    names = [it.listener_name for it in endpoints]
    if len(set(names)) != len(names):
        raise UsageError(f"Each listener must have a different name: see {setting}")
