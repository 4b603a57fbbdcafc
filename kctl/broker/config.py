"""BrokerConfig: a whole server.properties, typed and validated, with what follows from it.

Kafka 2.7: kafka.server.KafkaConfig.
"""

import difflib
from collections.abc import Iterable, Mapping

from kctl.broker.broker_settings import API_VERSIONS, BrokerSettings
from kctl.broker.config_key import LONG_MAX
from kctl.broker.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError
from kctl.model import Endpoint

_MINUTE_MS = 60 * 1000
_HOUR_MS = 60 * _MINUTE_MS


class BrokerConfig(BrokerSettings):
    """The settings of one broker. Attributes whose Kafka setting has fallbacks hold the outcome:
    `log_dirs` (a list), `log_retention_ms` (-1: for ever), `log_roll_ms`, `log_roll_jitter_ms`,
    `log_flush_interval_ms`, `listeners` and `advertised_listeners` (Endpoints)."""

    # Directories of the logs, absolute or relative as given.
    log_dir_list: list[str]
    listener_list: list[Endpoint]
    advertised_listener_list: list[Endpoint]
    inter_broker_listener: str

    def __init__(self, given: Mapping[str, str]) -> None:
        # As the user spelled them; what is not in here is at its default.
        self.given: dict[str, str] = dict(given)
        self.unknown = sorted(set(given) - set(self.KEYS))
        for name, key in self.KEYS.items():
            value = key.parse(given[name]) if name in given else key.default
            setattr(self, self.ATTRIBUTES[name], value)
        self._derive()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, strict: Iterable[str] = ()
    ) -> "BrokerConfig":
        """Check and type `properties`; names in `strict` (the command line's) must be known.

        Other unknown names are kept in `unknown`, as Kafka ignores them with a warning.
        """
        for name in strict:
            if name not in cls.KEYS:
                near = difflib.get_close_matches(name, cls.KEYS, n=1)
                raise UsageError(
                    f"Unknown broker setting {name}",
                    hint=f"did you mean {near[0]}?" if near else "see docs/compatibility.md",
                )
        return cls(properties)

    def raw_value(self, name: str) -> object:
        """The value of setting `name` before fallbacks, as DescribeConfigs shows it."""
        key = self.KEYS[name]
        return key.parse(self.given[name]) if name in self.given else key.default

    def idle(self) -> dict[str, str]:
        """The settings that were given a value of their own but change nothing, and why."""
        from kctl.broker.idle_settings import IDLE_SETTINGS

        return {
            name: IDLE_SETTINGS[name]
            for name in self.given
            if name in IDLE_SETTINGS and self.raw_value(name) != self.KEYS[name].default
        }

    def topic_defaults(self) -> dict[str, object]:
        """What each topic setting is when the topic does not say: topic setting -> value."""
        defaults: dict[str, object] = {}
        for name, (key, broker_name) in TOPIC_CONFIGS.items():
            if broker_name is None:
                defaults[name] = key.default
            else:
                defaults[name] = getattr(self, self.ATTRIBUTES[broker_name])
        return defaults

    def _derive(self) -> None:
        log_dirs = self.log_dir if self.log_dirs is None else self.log_dirs
        self.log_dir_list = [path.strip() for path in log_dirs.split(",") if path.strip()]
        self._derive_times()
        self._derive_listeners()
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
        )
        for listener in self.listener_list:
            if listener.security_protocol != "PLAINTEXT":
                raise UsageError(
                    f"Listener {listener.listener_name} wants {listener.security_protocol}: "
                    "kctl serves PLAINTEXT only as yet",
                    hint="see docs/compatibility.md",
                )

    def _check_together(self) -> None:
        names = [listener.listener_name for listener in self.listener_list]
        if len(set(names)) != len(names):
            raise UsageError("Each listener must have a different name")
        if self.authorizer_class_name:
            raise UsageError(
                f"authorizer.class.name is {self.authorizer_class_name}, but kctl has no access "
                "control yet: everything would be allowed to everybody",
                hint="leave authorizer.class.name empty where that is what you want",
            )
        if not self.log_dir_list:
            raise UsageError("At least one log directory must be defined via log.dirs or log.dir.")
        for advertised in self.advertised_listener_list:
            if advertised.host == "0.0.0.0":
                raise UsageError(
                    "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0",
                    hint="set advertised.listeners to an address that clients can reach",
                )

    def is_at_least(self, api_version: str) -> bool:
        """Whether inter.broker.protocol.version is `api_version` (e.g. "2.7-IV2") or later."""
        return api_version_index(self.inter_broker_protocol_version) >= api_version_index(
            api_version
        )


def api_version_index(name: str) -> int:
    """Where a release stands in the line of API_VERSIONS; "2.7" means its last one."""
    if name in API_VERSIONS:
        return API_VERSIONS.index(name)
    return max(i for i, version in enumerate(API_VERSIONS) if version.split("-")[0] == name)


def parse_listeners(text: str, protocols: Mapping[str, str]) -> list[Endpoint]:
    """`NAME://host:port,...` to Endpoints; UsageError for anything else. An empty host (all
    interfaces) is kept as ""; brackets of IPv6 addresses are dropped."""
    endpoints = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not (separator and colon and port.isdigit() and int(port) < 65536):
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


def _protocol_map(text: str) -> dict[str, str]:
    pairs = (item.partition(":") for item in text.split(",") if item.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def parse_properties(text: str) -> dict[str, str]:
    """Java's .properties: comments, `=`, `:` or blank after the key, lines continued by a
    backslash, and its escapes (among them \\u0041)."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split_property(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in text.splitlines():
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


__all__ = ["LONG_MAX", "BrokerConfig", "api_version_index", "parse_listeners", "parse_properties"]
