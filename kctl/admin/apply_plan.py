"""Plans how a cluster becomes what a file declares: one change per difference, or a conflict.

The plan compares the declared values with those that the cluster has at the same level: a topic's
own override, a broker's own dynamic config. A value that is only inherited differs from a declared
one, so that a second run after a successful one finds no difference. Resources and configs that the
file does not name are left alone, unless `Prune` says otherwise. An entry of an ACL is created even
if a wider one allows the same, as each entry is a declaration of its own.

A conflict is a difference that no request can remove, such as fewer partitions. A plan with
conflicts is not executed: its other changes may depend on them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.config_plan import losses
from kctl.admin.configs import ConfigChanges, ConfigDescription, ConfigResource, ResourceType
from kctl.admin.desired_state import DEFAULT_BROKER, DesiredState, DesiredTopic
from kctl.admin.selection import is_pattern, matching
from kctl.errors import KctlError, not_found
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl_text import pattern_text

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.client_quotas import QuotaEntity
    from kctl.admin.topics import TopicDescription
    from kctl.protocol.acl import AclBinding


class Kind(StrEnum):
    """The kinds of resources in a file."""

    TOPIC = "topic"
    BROKER = "broker"
    QUOTA = "quota"
    # The name is the resource that the entry applies to.
    ACL = "acl"


class Action(StrEnum):
    """What a change does."""

    CREATE = "create"
    # Adds partitions.
    ENLARGE = "enlarge"
    SET = "set"
    RESET = "reset"
    DELETE = "delete"


class Target(NamedTuple):
    """The resource of a change; the name of the default broker is DEFAULT_BROKER."""

    kind: Kind
    name: str

    @property
    def config_resource(self) -> ConfigResource:
        """Return the resource whose configs change."""
        if self.kind is Kind.TOPIC:
            return ConfigResource(ResourceType.TOPIC, self.name)
        return ConfigResource(ResourceType.BROKER, "" if self.name == DEFAULT_BROKER else self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between a file and the cluster."""

    target: Target
    action: Action
    # A config, a quota, "partitions"; empty if the resource as a whole is created or deleted.
    name: str = ""
    old: str | None = None
    new: str | None = None
    # The quotas' entity.
    entity: "QuotaEntity | None" = None
    # The entry of an ACL.
    binding: "AclBinding | None" = None
    may_delete_records: bool = False
    # A conflict, the broker's verdict on a change, or the reason why its execution failed.
    error: KctlError | None = None


@dataclass(frozen=True, slots=True)
class Prune:
    """What is removed although the file does not name it; nothing by default."""

    # Configs and quotas of the resources in the file.
    configs: bool = False
    # Topics that match one of these globs.
    topics: tuple[str, ...] = ()
    # Entries of ACLs on the resources in the file, see DesiredState.acl_patterns.
    acls: bool = False


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a plan needs to know about the cluster."""

    topics: "Mapping[str, TopicDescription]"
    broker_ids: list[str]
    configs: Mapping[ConfigResource, ConfigDescription]
    quotas: "Mapping[QuotaEntity, Mapping[str, float]]"
    # In the order of the resources; empty unless the file concerns ACLs.
    acls: "Sequence[AclBinding]" = ()


async def gather_facts(admin: "AdminClient", desired: DesiredState) -> ClusterFacts:
    """Return the cluster as far as `desired` concerns it; raise UnreachableError, ApiError.

    SECURITY_DISABLED: the file has ACLs, and the brokers have no authorizer.
    """
    topics = {it.name: it for it in await admin.topics.list_topics()}
    brokers = [str(it.broker_id) for it in (await admin.cluster.describe()).brokers]
    resources = [ConfigResource(ResourceType.TOPIC, it) for it in desired.topics if it in topics]
    resources += [
        ConfigResource(ResourceType.BROKER, it)
        for it in desired.brokers
        if it == "" or it in brokers
    ]
    described = await admin.configs.describe(resources) if resources else []
    quotas = await admin.quotas.describe() if desired.quotas else {}
    acls = [] if desired.acls is None else await admin.acls.list_acls()
    return ClusterFacts(topics, brokers, {it.resource: it for it in described}, quotas, acls)


def find_changes(
    desired: DesiredState, facts: ClusterFacts, prune: Prune | None = None
) -> list[Change]:
    """Return the changes that make the cluster what `desired` declares; conflicts have an error."""
    asked = prune or Prune()
    return [
        *(it for topic in desired.topics.values() for it in _topic(topic, facts, asked)),
        *_brokers(desired, facts, asked),
        *_quotas(desired, facts, asked),
        *_acls(desired, facts, asked),
        *_unlisted(desired, facts, asked),
    ]


def _topic(wanted: DesiredTopic, facts: ClusterFacts, prune: Prune) -> Iterator[Change]:
    target = Target(Kind.TOPIC, wanted.name)
    found = facts.topics.get(wanted.name)
    if found is None:
        yield Change(target, Action.CREATE, new=_summary(wanted))
        return
    yield from _numbers(target, wanted, found)
    yield from _configs(target, wanted.configs, facts, prune)


def _numbers(target: Target, wanted: DesiredTopic, found: "TopicDescription") -> Iterator[Change]:
    has = len(found.partitions)
    if wanted.partitions is not None and wanted.partitions != has:
        is_fewer = wanted.partitions < has
        error = KctlError(
            "a topic cannot lose partitions: declare at least as many, or create another topic "
            "and copy the records"
        )
        yield Change(
            target,
            Action.ENLARGE,
            "partitions",
            str(has),
            str(wanted.partitions),
            error=error if is_fewer else None,
        )
    factors = sorted({len(it.replicas) for it in found.partitions})
    if wanted.replication_factor is not None and factors != [wanted.replication_factor]:
        yield Change(
            target,
            Action.SET,
            "replication_factor",
            ",".join(map(str, factors)),
            str(wanted.replication_factor),
            error=KctlError(
                "this moves replicas: run kctl reassign plan set-rf "
                f"{target.name} {wanted.replication_factor} first"
            ),
        )


def _summary(topic: DesiredTopic) -> str:
    parts = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
    return ",".join(
        [
            *(f"{name}={value}" for name, value in parts.items() if value is not None),
            *(f"{name}={value}" for name, value in topic.configs.items()),
        ]
    )


def _brokers(desired: DesiredState, facts: ClusterFacts, prune: Prune) -> Iterator[Change]:
    for name, configs in desired.brokers.items():
        target = Target(Kind.BROKER, name or DEFAULT_BROKER)
        if name and name not in facts.broker_ids:
            error = not_found("broker", name, facts.broker_ids)
            yield Change(target, Action.SET, error=error)
        else:
            yield from _configs(target, configs, facts, prune)


def _configs(
    target: Target, wanted: Mapping[str, str], facts: ClusterFacts, prune: Prune
) -> Iterator[Change]:
    found = facts.configs.get(target.config_resource)
    if found is None or found.error is not None:
        yield Change(target, Action.SET, error=found.error if found else KctlError("no response"))
        return
    own = {it.name: it for it in found.entries if it.is_own_of(found.resource)}
    values = {it.name: it.value for it in found.entries}
    hidden = {it.name for it in found.entries if it.is_sensitive}
    changed = {
        name: value
        for name, value in wanted.items()
        if name in hidden or name not in own or not is_equal(own[name].value, value)
    }
    gone = [name for name in own if name not in wanted] if prune.configs else []
    lost = {it.name for it in losses(found, ConfigChanges(changed, gone))}
    for name, value in changed.items():
        error = _hidden(target, name) if name in hidden else None
        yield Change(
            target,
            Action.SET,
            name,
            values.get(name),
            value if error is None else None,
            may_delete_records=name in lost,
            error=error,
        )
    for name in gone:
        yield Change(target, Action.RESET, name, own[name].value, may_delete_records=name in lost)


def _hidden(target: Target, name: str) -> KctlError:
    return KctlError(
        "brokers do not show this config, so it cannot be compared: leave it out of the file, and "
        f"set it with kctl config alter {target.kind} {target.name} -c {name}=..."
    )


def is_equal(left: str | None, right: str) -> bool:
    """Return whether two values of a config mean the same: `2` and `2.0`, `a,b` and `a, b`.

    >>> is_equal("compact,delete", "compact, delete"), is_equal("0.5", "0.50"), is_equal("1", "2")
    (True, True, False)
    """
    if left is None or left == right:
        return left == right
    try:
        return float(left) == float(right)
    except ValueError:
        return _normal(left) == _normal(right)


def _normal(value: str) -> list[str]:
    return [
        it.strip().lower() if it.strip().lower() in ("true", "false") else it.strip()
        for it in value.split(",")
    ]


def _quotas(desired: DesiredState, facts: ClusterFacts, prune: Prune) -> Iterator[Change]:
    for entity, limits in desired.quotas.items():
        found = facts.quotas.get(entity, {})
        target = Target(Kind.QUOTA, str(entity))
        for key, value in limits.items():
            if found.get(key) != value:
                old = None if key not in found else _number(found[key])
                yield Change(target, Action.SET, key, old, _number(value), entity)
        for key in found if prune.configs else ():
            if key not in limits:
                yield Change(target, Action.RESET, key, _number(found[key]), entity=entity)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _acls(desired: DesiredState, facts: ClusterFacts, prune: Prune) -> Iterator[Change]:
    wanted, found = dict.fromkeys(desired.acls or ()), set(facts.acls)
    for binding in wanted:
        if binding not in found:
            yield _entry(Action.CREATE, binding)
    concerned = desired.acl_patterns() if prune.acls else set()
    for binding in facts.acls:
        if binding.pattern in concerned and binding not in wanted:
            yield _entry(Action.DELETE, binding)


def _entry(action: Action, binding: "AclBinding") -> Change:
    pattern, entry = binding
    value = f"{entry.permission.text} from {entry.host}"
    return Change(
        Target(Kind.ACL, pattern_text(pattern)),
        action,
        f"{entry.principal} {entry.operation.text}",
        old=value if action is Action.DELETE else None,
        new=value if action is Action.CREATE else None,
        binding=binding,
    )


def _unlisted(desired: DesiredState, facts: ClusterFacts, prune: Prune) -> Iterable[Change]:
    """Return the deletions of topics that match a glob of `prune` and are not in the file."""
    if not prune.topics:
        return []
    own = [it.name for it in facts.topics.values() if not it.is_internal]
    named = [it for it in prune.topics if not is_pattern(it) and it in own]
    globs = [it for it in prune.topics if is_pattern(it)]
    chosen = dict.fromkeys([*named, *(matching(own, globs) if globs else [])])
    return [
        Change(
            Target(Kind.TOPIC, name),
            Action.DELETE,
            old=f"partitions={len(facts.topics[name].partitions)}",
            may_delete_records=True,
        )
        for name in chosen
        if name not in desired.topics
    ]
