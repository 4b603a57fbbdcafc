"""AclInvariants: what must hold of the requests that a secured simulated cluster serves.

A broker decides by the entries that it has in force, which follow the store as soon as it can be
reached. For every answer to a client whose permissions change:
- some entries that the answering broker had in force between request and answer, decided by the
  rules of KIP-11 and KIP-290, have the outcome that the answer shows;
- what was refused throughout is not in any log.
Besides:
- a request is served under the principal of the process that sent it, and no request of a process
  that did not authenticate is served;
- a broker that acknowledges a change of entries has them, or later ones, in force;
- at rest, the entries in force are those of the store;
- a listener has the last certificate that could be read.

The decision is made here once more, from the rules: the authorizer is what is checked.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)
from kctl.simulation.cluster import BROKER_PORT, Life, SimBroker, SimCluster
from kctl.simulation.ledger import Ledger
from kctl.simulation.scheduler import NodeScheduler
from kctl.simulation.security import INTRUDER, principal_of
from kctl.store.security_znodes import acl_path, decode_acls

# The patterns whose entries change.
GROUP = "loot"
PATTERNS = (
    AclPattern(ResourceType.TOPIC, "topic-0"),
    AclPattern(ResourceType.TOPIC, WILDCARD),
    AclPattern(ResourceType.TOPIC, "top", PatternType.PREFIXED),
    AclPattern(ResourceType.GROUP, GROUP),
    AclPattern(ResourceType.GROUP, "lo", PatternType.PREFIXED),
)
_IMPLY_DESCRIBE = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)

# The entries of each of PATTERNS.
Snapshot = tuple[frozenset[AclEntry], ...]
# What a request's outcome must be under some entries: the error of the denial, or 0.
Rule = Callable[[Snapshot], int]


@dataclass(slots=True)
class _History:
    """The entries over time, from `times[n]` until `times[n + 1]`, in microseconds."""

    times: list[int] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)

    def add(self, now_us: int, snapshot: Snapshot) -> None:
        if not self.snapshots or self.snapshots[-1] != snapshot:
            self.times.append(now_us)
            self.snapshots.append(snapshot)

    def between(self, start_us: int, end_us: int) -> list[Snapshot]:
        """Return what held at some moment of a range, both ends included."""
        ends = [*self.times[1:], end_us]
        return [
            snapshot
            for snapshot, first, last in zip(self.snapshots, self.times, ends, strict=True)
            if first <= end_us and last >= start_us
        ]


class AclInvariants:
    """Watches a secured SimCluster from its beginning."""

    def __init__(self, cluster: SimCluster) -> None:
        # Answers that were judged: of allowed and of denied requests.
        self.allowed = 0
        self.denied = 0
        self.reloads = 0
        # CRCs of batches that were refused.
        self._refused: set[int] = set()
        self._cluster = cluster
        self._store = _History()
        # By broker id.
        self._in_force: dict[int, _History] = {}
        self._zxid = -1
        # Broker id -> the process whose requests are watched.
        self._watched: dict[int, NodeScheduler] = {}
        # Raw entries of each broker, as last seen.
        self._seen: dict[int, list[Any]] = {}
        # Host -> the last usable certificate.
        self._certificates: dict[str, str] = {}
        self._check_next = cluster.world.after_event
        cluster.world.after_event = self.after_event

    # --- after every event -------------------------------------------------------------------

    def after_event(self, node: NodeScheduler) -> None:
        """Note the entries that this event may have changed; watch new brokers."""
        if self._check_next is not None:
            self._check_next(node)
        tree = self._cluster.store.database.tree
        if tree.last_zxid != self._zxid:
            self._zxid = tree.last_zxid
            self._store.add(self._cluster.world.now_us, self._stored())
        serving = self._cluster.serving(node)
        if serving is None or serving[1].acl_cache is None:
            return
        sim_broker, services = serving
        assert services.acl_cache is not None
        index = services.acl_cache.authorizer.index
        found = [index.entries(pattern) for pattern in PATTERNS]
        if found != self._seen.get(sim_broker.broker_id):
            self._seen[sim_broker.broker_id] = found
            history = self._in_force.setdefault(sim_broker.broker_id, _History())
            history.add(self._cluster.world.now_us, tuple(map(frozenset, found)))
        if self._watched.get(sim_broker.broker_id) is not node:
            self._watch(sim_broker, node)

    def _stored(self) -> Snapshot:
        nodes = self._cluster.store.database.tree.nodes
        snapshot = []
        for pattern in PATTERNS:
            node = nodes.get(acl_path(pattern))
            entries = [] if node is None else decode_acls(acl_path(pattern), node.data)
            snapshot.append(frozenset(entries))
        return tuple(snapshot)

    def _watch(self, sim_broker: SimBroker, node: NodeScheduler) -> None:
        """Check the principal of each request that a new process serves."""
        server = sim_broker.broker.server if sim_broker.broker is not None else None
        if server is None:
            return
        self._watched[sim_broker.broker_id] = node
        serve = server.on_request

        def checked(request: Any) -> object:
            context = request.context
            expected = principal_of(context.client_host)
            if context.principal != expected:
                self._cluster.fail(
                    f"{sim_broker.host} serves {request.api_key.name} of {context.client_host}"
                    f" as {context.principal}, which is {expected or 'not authenticated'}"
                )
            return serve(request)

        server.on_request = checked

    # --- answers -----------------------------------------------------------------------------

    def judge(self, what: str, broker_id: int, sent_us: int, rule: Rule, outcome: int) -> None:
        """Check the outcome (0, or the error of a denial) of a request that a broker answered."""
        if outcome:
            self.denied += 1
        else:
            self.allowed += 1
        outcomes = self._outcomes(broker_id, sent_us, rule)
        if outcome not in outcomes:
            self._cluster.fail(
                f"broker {broker_id} answered {what} of {INTRUDER} with {outcome or 'success'},"
                f" where its ACLs since the request say {sorted(outcomes)}"
            )

    def refused(self, broker_id: int, sent_us: int, rule: Rule, crc: int) -> None:
        """Note a batch that was refused; it must not be found unless it was allowed once."""
        if 0 not in self._outcomes(broker_id, sent_us, rule):
            self._refused.add(crc)

    def _outcomes(self, broker_id: int, sent_us: int, rule: Rule) -> set[int]:
        history = self._in_force.get(broker_id, _History())
        return set(map(rule, history.between(sent_us, self._cluster.world.now_us)))

    def acknowledged(self, broker_id: int, sent_us: int, pattern: AclPattern) -> None:
        """Check that a broker that acknowledged a change obeys it."""
        if self._cluster.brokers[broker_id].life is not Life.UP:
            return
        index = PATTERNS.index(pattern)
        in_force = self._in_force[broker_id].snapshots[-1][index]
        states = self._store.between(sent_us, self._cluster.world.now_us)
        if in_force not in {state[index] for state in states}:
            self._cluster.fail(
                f"broker {broker_id} acknowledged a change of {pattern}, but has"
                f" {sorted(map(str, in_force))} in force"
            )

    # --- certificates ------------------------------------------------------------------------

    def reload(self, broker: SimBroker, certificate: str, *, is_usable: bool) -> None:
        """Replace a broker's certificate, as an operator does, and check what it uses then."""
        network = self._cluster.network
        listener = network.listener(broker.host, BROKER_PORT)
        server = broker.broker.server if broker.broker is not None else None
        if listener is None or server is None or broker.life is not Life.UP or broker.is_paused:
            return
        before = listener.certificate
        network.certificates[broker.host] = certificate if is_usable else None
        server.reload_tls()
        self.reloads += 1
        # The operator repairs the file before the next start.
        network.certificates[broker.host] = expected = certificate if is_usable else before
        if listener.certificate != expected:
            self._cluster.fail(
                f"{broker.host} uses certificate {listener.certificate} instead of {expected}"
            )

    # --- at rest -----------------------------------------------------------------------------

    def problems(self) -> Iterable[str]:
        """Yield why the authorizers are not at rest yet."""
        stored = self._stored()
        for broker_id in self._cluster.brokers:
            history = self._in_force.get(broker_id)
            if history is None or history.snapshots[-1] != stored:
                yield f"broker {broker_id} has other ACLs in force than the store"

    def check_logs(self, ledgers: Iterable[Ledger]) -> None:
        """Check that no log has what was refused."""
        for ledger in ledgers:
            for batch in ledger.batches:
                if batch.crc in self._refused:
                    self._cluster.fail(f"{batch} was refused to {INTRUDER}, but is committed")


def is_allowed(
    snapshot: Snapshot, operation: AclOperation, resource_type: ResourceType, name: str
) -> bool:
    """Return whether entries allow the intruder an operation, by the rules of AclAuthorizer."""
    principals = (f"User:{INTRUDER}", WILDCARD_PRINCIPAL)
    applying = [
        entry
        for pattern, entries in zip(PATTERNS, snapshot, strict=True)
        if pattern.resource_type is resource_type and _covers(pattern, name)
        for entry in entries
        if entry.principal in principals and entry.host in (INTRUDER, WILDCARD)
    ]
    denied = {it.operation for it in applying if it.permission is PermissionType.DENY}
    if denied & {operation, AclOperation.ALL}:
        return False
    granted = {it.operation for it in applying if it.permission is PermissionType.ALLOW}
    implied = bool(granted & _IMPLY_DESCRIBE) and operation is AclOperation.DESCRIBE
    return implied or bool(granted & {operation, AclOperation.ALL})


def _covers(pattern: AclPattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (WILDCARD, name)
