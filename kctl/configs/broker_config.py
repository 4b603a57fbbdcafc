"""BrokerConfig: a complete server.properties, typed and validated, with derived values.

Kafka 2.7: kafka.server.KafkaConfig.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kctl.configs.api_version import api_version, api_version_index
from kctl.configs.authorizer_settings import (
    AUTHORIZER_KEYS,
    AuthorizerSettings,
    authorizer_settings,
)
from kctl.configs.broker_configs import BrokerSettings
from kctl.configs.link_configs import SOURCES_DIRECTORY
from kctl.configs.listener_checks import (
    check_connection_limits,
    check_listeners,
    check_names_between_brokers,
)
from kctl.configs.listener_config import LISTENER_PREFIX
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.lines import split_lines
from kctl.model import Endpoint, SecurityProtocol

if TYPE_CHECKING:
    from kctl.configs.listener_security import SaslListener, TlsListener
    from kctl.protocol.sasl.login import SaslLogin
    from kctl.tls.settings import TlsSettings

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS
# Each cleaner needs more than this.
_LEAST_DEDUPE_BYTES = 1 << 20

# Settings that Apache Kafka does not have, and that its tools do not see unless they are given.
OWN_SETTINGS = (SOURCES_DIRECTORY,)


class BrokerConfig(BrokerSettings):
    """The settings of one broker. Attributes whose setting has fallbacks have the resulting value:
    `log_dir_list`, `log_retention_ms` (-1: unlimited), `log_roll_ms`, `log_roll_jitter_ms`,
    `log_flush_interval_ms`, `listener_list` and `advertised_listener_list` (Endpoints)."""

    # Log directories, absolute or relative as given.
    log_dir_list: list[str]
    listener_list: list[Endpoint]
    advertised_listener_list: list[Endpoint]
    inter_broker_listener: str
    # The one that controllers use for their requests to this broker; None: the inter-broker one.
    control_plane_listener: str | None
    # How this broker's controller speaks to that listener of others.
    control_plane_protocol: SecurityProtocol
    control_plane_tls: "TlsSettings | None"
    control_plane_login: "SaslLogin | None"
    # What the inter-broker listener speaks.
    inter_broker_protocol: SecurityProtocol
    # Listeners with TLS: name -> how they speak it.
    tls_listeners: "dict[str, TlsListener]"
    # How this broker speaks TLS to others; None if their listener has no TLS.
    inter_broker_tls: "TlsSettings | None"
    # Listeners with SASL: name -> what they accept.
    sasl_listeners: "dict[str, SaslListener]"
    # What this broker authenticates with to others; None if their listener has no SASL.
    inter_broker_login: "SaslLogin | None"
    # None: no access control.
    authorizer: AuthorizerSettings | None

    def __init__(self, given: Mapping[str, str]) -> None:
        # The given texts; settings that are not in here have their defaults.
        self.given: dict[str, str] = dict(given)
        self.unknown = sorted(name for name in given if not _is_known(name))
        for name, key in self.KEYS.items():
            value = key.parse(given[name]) if name in given else key.default
            setattr(self, self.ATTRIBUTES[name], value)
        self._derive()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, strict: Iterable[str] = ()
    ) -> "BrokerConfig":
        """Parse and validate `properties`; names in `strict` (from the command line) must be known.

        Other unknown names are kept in `unknown`, as Kafka ignores them with a warning. Raise
        UsageError.
        """
        for name in strict:
            if not _is_known(name):
                import difflib

                near = difflib.get_close_matches(name, cls.KEYS, n=1)
                raise UsageError(
                    f"Unknown broker setting {name}",
                    hint=f"did you mean {near[0]}?" if near else "see docs/compatibility.md",
                )
        return cls(properties)

    def raw_value(self, name: str) -> object:
        """Return the value of setting `name` before fallbacks, as DescribeConfigs shows it."""
        key = self.KEYS[name]
        return key.parse(self.given[name]) if name in self.given else key.default

    def idle(self) -> dict[str, str]:
        """Return the settings that differ from their defaults but have no effect, with the
        reason."""
        if not self.given:
            return {}
        from kctl.configs.idle_configs import IDLE_SETTINGS

        return {
            name: IDLE_SETTINGS[name]
            for name in self.given
            if name in IDLE_SETTINGS and self.raw_value(name) != self.KEYS[name].default
        }

    @property
    def listeners_between_brokers(self) -> list[str]:
        """Return the names of the listeners that other brokers and the controller connect to."""
        control = self.control_plane_listener
        return [self.inter_broker_listener, *([] if control is None else [control])]

    def topic_defaults(self) -> dict[str, object]:
        """Return the values of all topic configs for a topic without overrides."""
        defaults: dict[str, object] = {}
        for name, (key, broker_name) in TOPIC_CONFIGS.items():
            if broker_name is None:
                defaults[name] = key.default
            else:
                defaults[name] = getattr(self, self.ATTRIBUTES[broker_name])
        # Topics fall back to the full name of the version, not to the given text.
        defaults["message.format.version"] = api_version(self.log_message_format_version)
        return defaults

    def _derive(self) -> None:
        log_dirs = self.log_dir if self.log_dirs is None else self.log_dirs
        self.log_dir_list = [path.strip() for path in log_dirs.split(",") if path.strip()]
        self._derive_times()
        self._derive_listeners()
        self.authorizer = authorizer_settings(self.authorizer_class_name, self.given)
        self._check_together()

    def _derive_times(self) -> None:
        if self.log_retention_ms is None:
            minutes = self.log_retention_minutes
            self.log_retention_ms = (
                minutes * _MINUTE_MS if minutes is not None else self.log_retention_hours * _HOUR_MS
            )
        if self.log_retention_ms < 0:
            self.log_retention_ms = -1
        if self.log_roll_ms is None:
            self.log_roll_ms = self.log_roll_hours * _HOUR_MS
        if self.log_roll_jitter_ms is None:
            self.log_roll_jitter_ms = self.log_roll_jitter_hours * _HOUR_MS
        if self.log_flush_interval_ms is None:
            self.log_flush_interval_ms = self.log_flush_scheduler_interval_ms
        if self.zookeeper_connection_timeout_ms is None:
            self.zookeeper_connection_timeout_ms = self.zookeeper_session_timeout_ms

    def _derive_listeners(self) -> None:
        protocols = _protocol_map(self.listener_security_protocol_map)
        text = self.listeners or f"PLAINTEXT://{self.host_name}:{self.port}"
        self.listener_list = parse_listeners(text, protocols)
        if self.advertised_listeners:
            self.advertised_listener_list = parse_listeners(self.advertised_listeners, protocols)
        else:
            host, port = self.advertised_host_name, self.advertised_port
            self.advertised_listener_list = [
                Endpoint(
                    host or listener.host,
                    port or listener.port,
                    listener.listener_name,
                    listener.security_protocol,
                )
                for listener in self.listener_list
            ]
        self.inter_broker_listener = (
            self.inter_broker_listener_name or self.security_inter_broker_protocol
        ).upper()
        name = self.control_plane_listener_name
        self.control_plane_listener = None if name is None else name.upper()
        self._derive_security()

    def _derive_security(self) -> None:
        self.tls_listeners = {}
        self.inter_broker_tls = None
        self.sasl_listeners = {}
        self.inter_broker_protocol = SecurityProtocol.PLAINTEXT
        self.inter_broker_login = None
        self.control_plane_protocol = SecurityProtocol.PLAINTEXT
        self.control_plane_tls = None
        self.control_plane_login = None
        for endpoint in self.listener_list:
            name, protocol = endpoint.listener_name, endpoint.security_protocol
            if name == self.inter_broker_listener:
                self.inter_broker_protocol = protocol
            if name == self.control_plane_listener:
                self.control_plane_protocol = protocol
            if protocol.uses_tls or protocol.uses_sasl:
                self._derive_secured(name, protocol)

    def _derive_secured(self, name: str, protocol: SecurityProtocol) -> None:
        """Derive the TLS and SASL of a listener."""
        # A local import: most brokers of tests and developers have plaintext listeners only.
        from kctl.configs.listener_security import SecuredListenerConfig

        config = SecuredListenerConfig(self.given, name)
        is_inter_broker = name == self.inter_broker_listener
        is_control_plane = name == self.control_plane_listener
        if protocol.uses_tls:
            tls = config.tls(protocol)
            self.tls_listeners[name] = tls.between_brokers() if is_inter_broker else tls
            if is_inter_broker:
                self.inter_broker_tls = self.tls_listeners[name].settings
            elif is_control_plane:
                self.control_plane_tls = tls.settings
        if protocol.uses_sasl:
            self.sasl_listeners[name] = config.sasl()
            mechanism = self.sasl_mechanism_inter_broker_protocol
            if is_inter_broker:
                self._check_inter_broker(name, mechanism)
                self.inter_broker_login = config.login(mechanism)
            elif is_control_plane:
                self.control_plane_login = config.login(mechanism)

    def _check_inter_broker(self, listener_name: str, mechanism: str) -> None:
        offered = self.sasl_listeners[listener_name].mechanisms
        if mechanism not in offered:
            raise UsageError(
                "requirement failed: sasl.mechanism.inter.broker.protocol must be included in"
                f" sasl.enabled.mechanisms: {mechanism} is not among {', '.join(offered)}"
            )

    def _check_together(self) -> None:
        if not self.log_dir_list:
            raise UsageError("At least one log directory must be defined via log.dirs or log.dir.")
        check_listeners(self.listener_list, self.advertised_listener_list)
        check_names_between_brokers(
            self.given,
            self.inter_broker_listener,
            self.control_plane_listener,
            self.advertised_listener_list,
        )
        check_connection_limits(
            self.max_connections_per_ip,
            self.max_connections_per_ip_overrides,
            self.connection_failed_authentication_delay_ms,
            self.connections_max_idle_ms,
        )
        self._check_logs()

    def _check_logs(self) -> None:
        """Raise UsageError for values of logs with which no broker of Apache Kafka starts."""
        if self.log_roll_ms is not None and self.log_roll_ms < 1:
            raise UsageError("log.roll.ms must be equal or greater than 1")
        if self.log_roll_jitter_ms is not None and self.log_roll_jitter_ms < 0:
            raise UsageError("log.roll.jitter.ms must be equal or greater than 0")
        if self.log_retention_ms == 0:
            raise UsageError("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
        # By name: a check of a setting is no effect of it (docs/compatibility.md).
        threads = getattr(self, self.ATTRIBUTES["log.cleaner.threads"])
        if threads < 1:
            # Apache Kafka divides by it, whether or not the cleaner is enabled.
            raise UsageError("log.cleaner.threads must be equal or greater than 1")
        if self.log_cleaner_dedupe_buffer_size < threads * (_LEAST_DEDUPE_BYTES + 1):
            raise UsageError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
            )
        choices = TOPIC_CONFIGS["compression.type"].key.choices
        if self.compression_type not in choices:
            raise UsageError(
                f"compression.type : {self.compression_type} is not valid. Valid options are"
                f" {','.join(choices)}"
            )

    def is_at_least(self, api_version: str) -> bool:
        """Return whether inter.broker.protocol.version is `api_version` (e.g. "2.7-IV2") or
        later."""
        return api_version_index(self.inter_broker_protocol_version) >= api_version_index(
            api_version
        )


def _is_known(name: str) -> bool:
    """Return whether `name` is a config of a broker, of one listener, of the authorizer, or of
    OAUTHBEARER."""
    if name in OWN_SETTINGS:
        return True
    return (
        name in BrokerSettings.KEYS
        or name.startswith(LISTENER_PREFIX)
        or name in AUTHORIZER_KEYS
        or (name.startswith("sasl.oauthbearer.") and _is_oauthbearer_config(name))
    )


def _is_oauthbearer_config(name: str) -> bool:
    from kctl.configs.oauthbearer_configs import is_oauthbearer_config

    return is_oauthbearer_config(name)


def parse_listeners(text: str, protocols: Mapping[str, SecurityProtocol]) -> list[Endpoint]:
    """Parse `NAME://host:port,...`; raise UsageError. An empty host (all interfaces) is kept as "";
    brackets of IPv6 addresses are removed."""
    endpoints = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not (separator and colon and is_whole_number(port, 65_535)):
            raise UsageError(
                f"Unable to parse {item} to a broker endpoint",
                hint="e.g. PLAINTEXT://127.0.0.1:9092",
            )
        name = name.upper()
        if name not in protocols:
            raise UsageError(
                f"No security protocol defined for listener {name}",
                hint="name it in listener.security.protocol.map",
            )
        endpoints.append(Endpoint(host.strip("[]"), int(port), name, protocols[name]))
    return endpoints


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    pairs = (item.partition(":") for item in text.split(",") if item.strip())
    return {name.strip().upper(): _protocol(protocol.strip()) for name, _, protocol in pairs}


def _protocol(text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol(text.upper())
    except ValueError:
        raise UsageError(
            f"listener.security.protocol.map names {text}, which is not a security protocol",
            hint=f"use one of {', '.join(SecurityProtocol)}",
        ) from None


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's .properties format: comments, `=`, `:` or blank after the key, lines continued
    by a backslash, and escapes, including \\u0041."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split_property(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in split_lines(text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split_property(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    value = line[position:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return line[:position], value


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        if text[position] != "\\":
            out.append(text[position])
            position += 1
        elif text[position + 1 : position + 2] == "u":
            out.append(chr(int(text[position + 2 : position + 6], 16)))
            position += 6
        else:
            escaped = text[position + 1 : position + 2]
            out.append(_ESCAPES.get(escaped, escaped))
            position += 2
    return "".join(out)
