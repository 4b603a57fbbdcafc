"""Reads MirrorMaker 2's option file: one flow from a source cluster to a target. Pure.

    clusters = A, B
    A.bootstrap.servers = a1:9092
    B.bootstrap.servers = b1:9092
    A->B.enabled = true
    A->B.topics = orders.*

A setting `A->B.x` precedes `x`. What has an effect is in `_EFFECTIVE` and the clients' settings of
each cluster; every other name is reported, so that nothing is ignored silently.

Kafka 2.7: org.apache.kafka.connect.mirror.MirrorMakerConfig, MirrorConnectorConfig
"""

from collections.abc import Mapping
from dataclasses import field

from kctl.configs.client_configs import is_client_config, without_effect
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.mm2_formats import Mm2Settings
from kctl.mirror.name_filter import NameFilter
from kctl.store.topic_filter import Whitelist

_DEFAULT_TOPICS = ".*"
_DEFAULT_TOPICS_EXCLUDE = r".*[\-\.]internal,.*\.replica,__.*"
_DEFAULT_GROUPS_EXCLUDE = "console-consumer-.*,connect-.*,__.*"
_DEFAULT_SEPARATOR = "."
_POLICY = "org.apache.kafka.connect.mirror."
_IDENTITY_POLICIES = (f"{_POLICY}IdentityReplicationPolicy",)
_POLICIES = (f"{_POLICY}DefaultReplicationPolicy", *_IDENTITY_POLICIES)
_EFFECTIVE = frozenset(
    {
        "enabled",
        "topics",
        "topics.whitelist",
        "topics.exclude",
        "topics.blacklist",
        "groups",
        "groups.whitelist",
        "groups.exclude",
        "groups.blacklist",
        "replication.factor",
        "replication.policy.class",
        "replication.policy.separator",
        "sync.group.offsets.enabled",
    }
)
_CHECKPOINTS, _HEARTBEATS = "emit.checkpoints", "emit.heartbeats"
# Have an effect if MirrorMaker 2's topics are kept.
_EMITTING = frozenset(
    f"{what}.{name}"
    for what in (_CHECKPOINTS, _HEARTBEATS)
    for name in ("enabled", "interval.seconds")
)


@dataclass(frozen=True, slots=True)
class MirrorFlow:
    """One flow of an option file."""

    source_alias: str
    target_alias: str
    # Client settings, with bootstrap.servers; they may contain secrets.
    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    topics: NameFilter
    # None: no group is carried over.
    groups: NameFilter | None
    # For `parse_rename`.
    rename: str
    replication_factor: int
    # MirrorMaker 2's own topics; None: they are not kept.
    mm2: Mm2Settings | None
    # Names in the file that have no effect.
    without_effect: list[str]


def parse_flow(
    properties: Mapping[str, str], flow: str | None = None, *, has_mm2_topics: bool = False
) -> MirrorFlow:
    """Return the flow that `flow` names (`A->B`), or the only one that is enabled; raise UsageError
    if there is none, or if the file is not one of MirrorMaker 2.

    MirrorMaker 2's own topics are kept with `has_mm2_topics`, or if the file names
    `emit.checkpoints.enabled` or `emit.heartbeats.enabled` and one of them is true.
    """
    clusters = [it.strip() for it in properties.get("clusters", "").split(",") if it.strip()]
    if len(clusters) < 2:
        raise UsageError(
            "The file names no two clusters: it is not one of MirrorMaker 2",
            hint="clusters = A, B",
        )
    source, target = _ends(properties, clusters, flow)
    prefix = f"{source}->{target}."

    def value(name: str, otherwise: str, *older: str) -> str:
        for each in (name, *older):
            for key in (prefix + each, each):
                if key in properties:
                    return properties[key].strip()
        return otherwise

    policy = value("replication.policy.class", _POLICIES[0])
    if policy not in _POLICIES:
        raise UsageError(f"replication.policy.class {policy} is not supported")
    separator = value("replication.policy.separator", _DEFAULT_SEPARATOR)
    emits = [value(f"{what}.enabled", "") for what in (_CHECKPOINTS, _HEARTBEATS)]
    has_mm2_topics = has_mm2_topics or "true" in (it.lower() for it in emits)
    groups = _filter(
        value("groups", ".*", "groups.whitelist"),
        value("groups.exclude", _DEFAULT_GROUPS_EXCLUDE, "groups.blacklist"),
    )
    mm2 = Mm2Settings(
        source, target,
        groups if emits[0].lower() != "false" else None,
        emits[1].lower() != "false",
        1000 * _count(value(f"{_CHECKPOINTS}.interval.seconds", "60"), _CHECKPOINTS, "seconds"),
        1000 * _count(value(f"{_HEARTBEATS}.interval.seconds", "1"), _HEARTBEATS, "seconds"),
    )  # fmt: skip
    effective = _EFFECTIVE | _EMITTING if has_mm2_topics else _EFFECTIVE
    has_groups = value("sync.group.offsets.enabled", "false").lower() == "true"
    return MirrorFlow(
        source,
        target,
        _client(properties, source, "consumer"),
        _client(properties, target, "producer"),
        _filter(
            value("topics", _DEFAULT_TOPICS, "topics.whitelist"),
            value("topics.exclude", _DEFAULT_TOPICS_EXCLUDE, "topics.blacklist"),
            None if policy in _IDENTITY_POLICIES else (target, separator),
        ),
        groups if has_groups else None,
        "identity" if policy in _IDENTITY_POLICIES else f"{source}{separator}{{topic}}",
        _count(value("replication.factor", "2"), "replication.factor", "replicas"),
        mm2 if has_mm2_topics else None,
        [
            name
            for name in properties
            if not _has_effect(name, (source, target), clusters, effective)
        ],
    )


def default_groups() -> NameFilter:
    """Return what MirrorMaker 2 makes checkpoints of unless its file says otherwise."""
    return _filter(".*", _DEFAULT_GROUPS_EXCLUDE)


def _ends(properties: Mapping[str, str], clusters: list[str], flow: str | None) -> tuple[str, str]:
    enabled = [
        (a, b)
        for a in clusters
        for b in clusters
        if a != b and properties.get(f"{a}->{b}.enabled", "false").strip().lower() == "true"
    ]
    names = ", ".join(f"{a}->{b}" for a, b in enabled) or "none"
    wanted = [it for it in enabled if flow is None or f"{it[0]}->{it[1]}" == flow.replace(" ", "")]
    if len(wanted) != 1:
        raise UsageError(
            f"The file enables these flows: {names}",
            hint="add --flow A->B" if len(enabled) > 1 else "A->B.enabled = true",
        )
    return wanted[0]


def _client(properties: Mapping[str, str], alias: str, role: str) -> dict[str, str]:
    """Return the client settings of a cluster; those of `role` precede those of the cluster."""
    found: dict[str, str] = {}
    for prefix in (f"{alias}.", f"{alias}.{role}."):
        for name, value in properties.items():
            inner = name.removeprefix(prefix)
            if inner != name and is_client_config(inner):
                found[inner] = value
    if "bootstrap.servers" not in found:
        raise UsageError(f"{alias}.bootstrap.servers is missing")
    return found


def _has_effect(
    name: str, ends: tuple[str, str], clusters: list[str], effective: frozenset[str]
) -> bool:
    source, target = ends
    if name == "clusters" or name in effective - {"enabled"}:
        return True
    for a in clusters:
        for b in clusters:
            if name.startswith(f"{a}->{b}."):
                inner = name.removeprefix(f"{a}->{b}.")
                return inner in effective if (a, b) == (source, target) else inner == "enabled"
    return any(
        name == f"{prefix}bootstrap.servers"
        or (
            is_client_config(name.removeprefix(prefix))
            and without_effect(name.removeprefix(prefix)) is None
        )
        for prefix in (
            f"{source}.", f"{source}.consumer.", f"{target}.", f"{target}.producer.",
        )
        if name.startswith(prefix)
    )  # fmt: skip


def _filter(included: str, excluded: str, target: tuple[str, str] | None = None) -> NameFilter:
    return NameFilter(Whitelist(included), Whitelist(excluded) if excluded else None, target)


def _count(text: str, name: str, unit: str) -> int:
    if not is_whole_number(text) or int(text) < 1:
        raise UsageError(f"{name} is a number of {unit}, not {text!r}")
    return int(text)
