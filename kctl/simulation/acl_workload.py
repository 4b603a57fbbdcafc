"""AclWorkload: who changes ACLs in a secured simulated cluster, and who is not allowed everything.

The admin adds and removes entries. The intruder produces, fetches (also by sessions, which outlive
permissions), lists offsets, asks for metadata and commits offsets, each allowed or not at that
moment; `AclInvariants` judges every answer. The impostor and the stranger never get one.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.protocol.acl import (
    ANY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.protocol.constants import ACKS_LEADER, GROUP_METADATA_TOPIC
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kctl.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetTopic,
)
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.runtime.future import sleep
from kctl.simulation.acl_invariants import GROUP, PATTERNS, AclInvariants, Rule, is_allowed
from kctl.simulation.cluster import Life
from kctl.simulation.ledger import Key, identities
from kctl.simulation.requests import batch_of, commit_request, fetch_request, produce_request
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.security import ADMIN, IMPOSTOR, INTRUDER, STRANGER
from kctl.simulation.workload import Workload

CALL_TIMEOUT_MS = 400
PAUSE_MS = 40
_TOPIC_DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_GROUP_DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_DENIALS = frozenset({_TOPIC_DENIED, _GROUP_DENIED})
_LATEST = -1

Deed = Callable[[Router, SimEntropy, Key, int], Coroutine[Any, Any, None]]


class AclWorkload:
    """The clients of one secured simulation that its ACLs are about."""

    def __init__(self, workload: Workload, acls: AclInvariants) -> None:
        self.changes = 0
        self.rejections = 0
        self._workload = workload
        self._cluster = workload.cluster
        self._acls = acls
        self._number = 0
        # (broker, id, epoch, partition) of the intruder's fetch session.
        self._session: tuple[int, int, int, Key] | None = None
        self._deeds: list[Deed] = [
            self._produce, self._produce, self._fetch, self._fetch_by_session, self._list_offsets,
            self._describe, self._commit,
        ]  # fmt: skip

    def start(self) -> None:
        """Start all clients."""
        for name, work in (
            (ADMIN, self._administer),
            (INTRUDER, self._intrude),
            (IMPOSTOR, self._be_rejected),
            (STRANGER, self._be_rejected),
        ):
            self._workload.start_client(name, work)

    def _is_active(self) -> bool:
        return not self._workload.is_over and not self._workload.is_draining

    # --- the admin ---------------------------------------------------------------------------

    async def _administer(self, name: str, router: Router, entropy: SimEntropy) -> None:
        del name
        while self._is_active():
            await sleep(router.runtime.scheduler, entropy.between(10, 4 * PAUSE_MS))
            up = [it.broker_id for it in self._cluster.brokers.values() if it.life is Life.UP]
            if not up:
                continue
            broker_id = entropy.choice(up)
            pattern, entry = entropy.choice(PATTERNS), _some_entry(entropy)
            is_addition = entropy.chance(600)
            request = _creation(pattern, entry) if is_addition else _deletion(pattern, entry)
            sent_us = self._cluster.world.now_us
            try:
                answer = await router.send_to_broker(broker_id, request, timeout_ms=CALL_TIMEOUT_MS)
            except KctlError:
                continue
            found = answer.results if is_addition else answer.filter_results
            parts = [*found, *(it for each in found for it in getattr(each, "matching_acls", ()))]
            if not any(part.error_code for part in parts):
                self.changes += 1
                self._acls.acknowledged(broker_id, sent_us, pattern)

    # --- without credentials -----------------------------------------------------------------

    async def _be_rejected(self, name: str, router: Router, entropy: SimEntropy) -> None:
        while self._is_active():
            await sleep(router.runtime.scheduler, entropy.between(200, 1_500))
            try:
                await router.send_to_any(MetadataRequest(topics=None), timeout_ms=CALL_TIMEOUT_MS)
            except KctlError:
                self.rejections += 1
            else:
                self._cluster.fail(f"{name} has a response without valid credentials")

    def _known_partition(self) -> Key:
        """Return a partition that is used often, so that fast paths know the requests."""
        return self._workload.partitions[0]

    # --- the intruder ------------------------------------------------------------------------

    async def _intrude(self, name: str, router: Router, entropy: SimEntropy) -> None:
        del name
        while self._is_active():
            await sleep(router.runtime.scheduler, entropy.between(5, 2 * PAUSE_MS))
            keys = self._workload.partitions
            if not keys:
                continue
            deed = entropy.choice(self._deeds)
            key = entropy.choice(keys)
            # It cannot ask for the leaders of topics that it may not describe.
            leader_id = self._workload.invariants.leaders.get(key, -1)
            if leader_id in self._cluster.brokers:
                try:
                    await deed(router, entropy, key, leader_id)
                except KctlError:
                    continue

    async def _ask(self, router: Router, broker_id: int, request: Any) -> tuple[Any, int]:
        """Return the response, and when the request was sent."""
        sent_us = self._cluster.world.now_us
        answer = await router.send_to_broker(broker_id, request, timeout_ms=CALL_TIMEOUT_MS)
        return answer, sent_us

    async def _produce(self, router: Router, entropy: SimEntropy, key: Key, broker_id: int) -> None:
        self._number += 1
        known = self._known_partition()
        if entropy.chance(700):
            key, broker_id = known, self._workload.invariants.leaders.get(known, broker_id)
        batch = batch_of(INTRUDER, key, self._number, 1, -1, -1, entropy)
        request = produce_request(key, batch, acks=ACKS_LEADER)
        answer, sent_us = await self._ask(router, broker_id, request)
        code = answer.responses[0].partitions[0].error_code
        rule = _on_topic(key, AclOperation.WRITE)
        self._judge("Produce", broker_id, sent_us, rule, code)
        if code == _TOPIC_DENIED:
            self._acls.refused(broker_id, sent_us, rule, identities(batch, 1 << 62)[0].crc)

    async def _fetch(self, router: Router, entropy: SimEntropy, key: Key, broker_id: int) -> None:
        del entropy
        answer, sent_us = await self._ask(router, broker_id, fetch_request(key, 0))
        self._judge_fetch(answer, key, broker_id, sent_us)

    async def _fetch_by_session(
        self, router: Router, entropy: SimEntropy, key: Key, broker_id: int
    ) -> None:
        session, self._session = self._session, None
        request = fetch_request(key, 0)
        request.session_epoch = 0
        if session is not None and entropy.chance(800):
            broker_id, request.session_id, request.session_epoch, key = session
            # The session knows the partition.
            request.topics = []
        answer, sent_us = await self._ask(router, broker_id, request)
        if answer.error_code:
            return
        self._judge_fetch(answer, key, broker_id, sent_us)
        if answer.session_id:
            self._session = (broker_id, answer.session_id, request.session_epoch + 1, key)

    def _judge_fetch(self, answer: Any, key: Key, broker_id: int, sent_us: int) -> None:
        for topic in answer.responses:
            for found in topic.partition_responses:
                rule = _on_topic(key, AclOperation.READ)
                self._judge("Fetch", broker_id, sent_us, rule, found.error_code)

    async def _list_offsets(
        self, router: Router, entropy: SimEntropy, key: Key, broker_id: int
    ) -> None:
        del entropy
        partition = ListOffsetPartition(partition_index=key[1], timestamp=_LATEST)
        request = ListOffsetRequest(
            replica_id=-1, topics=[ListOffsetTopic(name=key[0], partitions=[partition])]
        )
        answer, sent_us = await self._ask(router, broker_id, request)
        code = answer.topics[0].partitions[0].error_code
        self._judge("ListOffsets", broker_id, sent_us, _on_topic(key, AclOperation.DESCRIBE), code)

    async def _describe(
        self, router: Router, entropy: SimEntropy, key: Key, broker_id: int
    ) -> None:
        del entropy
        request = MetadataRequest(topics=[MetadataRequestTopic(name=key[0])])
        answer, sent_us = await self._ask(router, broker_id, request)
        rule = _on_topic(key, AclOperation.DESCRIBE)
        self._judge("Metadata", broker_id, sent_us, rule, answer.topics[0].error_code)

    async def _commit(self, router: Router, entropy: SimEntropy, key: Key, broker_id: int) -> None:
        key = self._known_partition()
        key_of_offsets = (GROUP_METADATA_TOPIC, 0)
        broker_id = self._workload.invariants.leaders.get(key_of_offsets, broker_id)
        if broker_id not in self._cluster.brokers:
            return
        request = commit_request(GROUP, key, entropy.between(0, 9))
        answer, sent_us = await self._ask(router, broker_id, request)
        code = answer.topics[0].partitions[0].error_code
        on_topic = _on_topic(key, AclOperation.READ)

        def rule(snapshot: Any) -> int:
            if not is_allowed(snapshot, AclOperation.READ, ResourceType.GROUP, GROUP):
                return _GROUP_DENIED
            return on_topic(snapshot)

        self._judge("OffsetCommit", broker_id, sent_us, rule, code)

    def _judge(self, what: str, broker_id: int, sent_us: int, rule: Rule, code: int) -> None:
        """Judge an answer; what is not authorized is refused before anything else is wrong."""
        self._acls.judge(what, broker_id, sent_us, rule, code if code in _DENIALS else 0)


def _on_topic(key: Key, operation: AclOperation) -> Rule:
    def rule(snapshot: Any) -> int:
        is_fine = is_allowed(snapshot, operation, ResourceType.TOPIC, key[0])
        return 0 if is_fine else _TOPIC_DENIED

    return rule


# --- entries -------------------------------------------------------------------------------------


def _some_entry(entropy: SimEntropy) -> AclEntry:
    is_allowing = entropy.chance(800)
    # Denying everyone would stop the other clients.
    everyone = WILDCARD_PRINCIPAL if is_allowing else f"User:{INTRUDER}"
    intruder = f"User:{INTRUDER}"
    return AclEntry(
        entropy.choice([intruder, intruder, everyone]),
        entropy.choice([WILDCARD, WILDCARD, INTRUDER, "elsewhere"]),
        entropy.choice(
            [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL]
        ),
        PermissionType.ALLOW if is_allowing else PermissionType.DENY,
    )


def _creation(pattern: AclPattern, entry: AclEntry) -> CreateAclsRequest:
    creation = AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    return CreateAclsRequest(creations=[creation])


def _deletion(pattern: AclPattern, entry: AclEntry) -> DeleteAclsRequest:
    """Return a request to remove all entries of the entry's principal, of one kind."""
    selected = DeleteAclsFilter(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=None,
        operation=ANY,
        permission_type=entry.permission,
    )
    return DeleteAclsRequest(filters=[selected])
