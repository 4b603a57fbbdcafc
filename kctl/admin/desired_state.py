"""Parses the file of `kctl apply`: wanted topics, configs, quotas and ACLs of a cluster, as YAML.

    topics:
      orders: {partitions: 12, replication_factor: 3, configs: {retention.ms: 86400000}}
    brokers:
      default: {log.cleaner.threads: 2}
      "1": {log.retention.check.interval.ms: 60000}
    quotas:
      - {user: alice, client_id: reports, limits: {producer_byte_rate: 1048576}}
    acls:
      - {principal: alice, operations: [read, describe], resources: [topic:orders, group:shop-*]}
      - {principal: shop, producer: true, resources: topic:orders}
      - {principal: "*", deny: true, operations: write, resources: topic:audit, host: 10.0.0.7}

The rules of `acls` have the vocabulary of `kctl acl add`, see kctl.admin.acl_rules. Every error is
a UsageError that names the file and the place. Unknown keys are errors: a misspelt key must not
pass as "nothing to do".
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kctl.admin.acl_rules import AclRule
from kctl.admin.client_quotas import QuotaEntity
from kctl.counts import is_whole_number
from kctl.errors import UsageError, close_name
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import WILDCARD, AclBinding, AclOperation, AclPattern, ResourceType

# The key of `brokers` for the cluster-wide default.
DEFAULT_BROKER = "default"
INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1
_RULE_FLAGS = ("deny", "producer", "consumer", "idempotent")
_RULE_HINT = "- {principal: alice, operations: [read], resources: [topic:orders]}"
_RULE_KEYS = ("principal", "operations", "resources", "host", *_RULE_FLAGS)


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A wanted topic; None leaves a number as it is, and to the broker for a new topic."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What a file declares; resources that it does not name are not concerned."""

    topics: Mapping[str, DesiredTopic] = field(default_factory=dict)
    # Id of a broker, or "" for the cluster-wide default -> configs.
    brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    # None if the file has no such section, which then says nothing about ACLs.
    acls: tuple[AclBinding, ...] | None = None

    def acl_patterns(self) -> set[AclPattern]:
        """Return the resources whose ACLs the file lists in full: those of its rules and, if it has
        rules at all, its topics.

        IdempotentWrite is an operation on the cluster only. A rule that needs nothing else of the
        cluster does not declare that brokers may do nothing there.
        """
        if self.acls is None:
            return set()
        topics = (AclPattern(ResourceType.TOPIC, name) for name in self.topics)
        rules = (
            it.pattern for it in self.acls if it.entry.operation != AclOperation.IDEMPOTENT_WRITE
        )
        return {*topics, *rules}


def parse_desired_state(text: str, name: str) -> DesiredState:
    """Return the desired state in `text`, the content of the file `name`."""
    document = _mapping(_load(text, name), name, ("topics", "brokers", "quotas", "acls"))
    return DesiredState(
        {
            topic: _topic(topic, value, f"{name}: topics.{topic}")
            for topic, value in _items(document.get("topics"), f"{name}: topics")
        },
        {
            _broker(broker, f"{name}: brokers"): _configs(value, f"{name}: brokers.{broker}")
            for broker, value in _items(document.get("brokers"), f"{name}: brokers")
        },
        _quotas(document.get("quotas"), f"{name}: quotas"),
        _acls(document["acls"], f"{name}: acls") if "acls" in document else None,
    )


def _load(text: str, name: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Loads YAML, and rejects a mapping in which a key appears twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """Return the mapping of `node`; raise ConstructorError for a repeated key."""
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key in keys:
                if keys.count(key) > 1:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key} appears twice", node.start_mark
                    )
            return super().construct_mapping(node, deep)

    try:
        document = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{name} is not valid YAML: {error}", hint="see kctl apply --help for an example"
        ) from None
    if not document:
        raise UsageError(f"{name} declares nothing", hint="see kctl apply --help for an example")
    return document


def _mapping(value: Any, place: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return `value`; raise UsageError unless it is a mapping with some of `keys`."""
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected keys and values", hint=f"keys: {', '.join(keys)}")
    for key in value:
        if key not in keys:
            near = close_name(str(key), keys)
            raise UsageError(
                f"{place}: unknown key {key}",
                hint=f"did you mean {near}?" if near else f"keys: {', '.join(keys)}",
            )
    return value


def _items(value: Any, place: str) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected names, each with its values")
    for key in value:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise UsageError(f"{place}: {key} is not a name", hint="put it in quotes")
    return [(str(key), item) for key, item in value.items()]


def _topic(topic: str, value: Any, place: str) -> DesiredTopic:
    given = _mapping(value or {}, place, ("partitions", "replication_factor", "configs"))
    return DesiredTopic(
        topic,
        _count(given.get("partitions"), f"{place}.partitions", INT32_MAX),
        _count(given.get("replication_factor"), f"{place}.replication_factor", INT16_MAX),
        _configs(given.get("configs"), f"{place}.configs"),
    )


def _count(value: Any, place: str, most: int) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise UsageError(f"{place} must be a whole number from 1 to {most}, not {value}")
    return value


def _broker(key: str, place: str) -> str:
    if key == DEFAULT_BROKER:
        return ""
    if not is_whole_number(key):
        raise UsageError(
            f"{place}: {key} is not the id of a broker", hint=f"use an id or {DEFAULT_BROKER}"
        )
    return key


def _configs(value: Any, place: str) -> dict[str, str]:
    return {key: _text(item, f"{place}.{key}") for key, item in _items(value, place)}


def _text(value: Any, place: str) -> str:
    """Return a config's value as text; a list as Kafka writes it, with commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(it, str | int) for it in value):
        return ",".join(map(str, value))
    raise UsageError(
        f"{place} must be a text, a number or a list",
        hint="to reset a config to its default, leave it out and give --prune-configs",
    )


def _quotas(value: Any, place: str) -> dict[QuotaEntity, dict[str, float]]:
    if value is not None and not isinstance(value, list):
        raise UsageError(f"{place}: expected a list", hint="- {user: alice, limits: {...}}")
    found: dict[QuotaEntity, dict[str, float]] = {}
    for index, item in enumerate(value or ()):
        here = f"{place}[{index}]"
        given = _mapping(item, here, ("user", "client_id", "limits"))
        user, client_id = given.get("user"), given.get("client_id")
        names = [it for it in (user, client_id) if it is not None]
        if not names or not all(isinstance(it, str) and it for it in names):
            raise UsageError(f"{here}: user or client_id is missing, or is not a text")
        entity = QuotaEntity(user, client_id)
        if entity in found:
            raise UsageError(f"{here}: {entity} appears twice")
        found[entity] = {
            key: _limit(limit, f"{here}.limits.{key}")
            for key, limit in _items(given.get("limits"), f"{here}.limits")
        }
    return found


def _limit(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError(f"{place} must be a number greater than 0, not {value}")
    return float(value)


def _acls(value: Any, place: str) -> tuple[AclBinding, ...]:
    if value is not None and not isinstance(value, list):
        raise UsageError(f"{place}: expected a list", hint="- {principal: alice, ...}")
    found: list[AclBinding] = []
    for index, item in enumerate(value or ()):
        here = f"{place}[{index}]"
        rule = _rule(_mapping(item, here, _RULE_KEYS), here)
        try:
            found += rule.bindings()
        except UsageError as error:
            raise UsageError(f"{here}: {error}", hint=error.hint or _RULE_HINT) from None
    return tuple(dict.fromkeys(found))


def _rule(given: Mapping[str, Any], place: str) -> AclRule:
    flags = {key: given.get(key, False) for key in _RULE_FLAGS}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise UsageError(f"{place}.{key} must be true or false, not {flag}", hint=_RULE_HINT)
    principal, host = given.get("principal", ""), given.get("host", WILDCARD)
    for key, text in (("principal", principal), ("host", host)):
        if not isinstance(text, str):
            raise UsageError(f"{place}.{key} is not a text", hint="put it in quotes")
    return AclRule(
        principal,
        _texts(given.get("resources"), f"{place}.resources"),
        ",".join(_texts(given.get("operations"), f"{place}.operations")),
        host,
        is_denied=flags["deny"],
        is_producer=flags["producer"],
        is_consumer=flags["consumer"],
        is_idempotent=flags["idempotent"],
    )


def _texts(value: Any, place: str) -> list[str]:
    """Return a list of texts, of which a single one needs no brackets."""
    texts = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(it, str) for it in texts):
        raise UsageError(f"{place} must be a list of texts", hint=_RULE_HINT)
    return texts
