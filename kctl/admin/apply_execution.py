"""Executes the changes that `kctl apply` plans, or has the brokers check them.

Requests go out in an order in which a failure leaves least behind: new entries of ACLs, topics,
partitions, configs, quotas, and deletions last. ACLs come before topics, so that a new topic is
never open to more clients than the file says; entries that deny are created first and removed last
for the same reason. A change that fails does not stop the others.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kctl.admin.apply_plan import Action, Change, Kind, Prune, Target, find_changes, gather_facts
from kctl.admin.configs import ConfigChanges
from kctl.admin.topics import BROKER_DEFAULT, NewTopic
from kctl.errors import KctlError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.client_quotas import QuotaEntity
    from kctl.admin.desired_state import DesiredState, DesiredTopic
    from kctl.protocol.acl import AclBinding

# By the entry of an ACL, and by the resource of every other change.
Outcomes = dict["Target | AclBinding", KctlError | None]


async def plan_apply(
    admin: "AdminClient", desired: "DesiredState", prune: Prune | None = None
) -> list[Change]:
    """Return the changes that make the cluster what `desired` declares, changing nothing.

    If there is no conflict, the brokers have checked the changes, and those that they would reject
    have an error as well. Raise UnreachableError, or UnsupportedVersionError if the brokers are
    older than Kafka 0.11.
    """
    changes = find_changes(desired, await gather_facts(admin, desired), prune)
    if any(it.error for it in changes):
        return changes
    return await apply_changes(admin, desired, changes, validate_only=True)


async def apply_changes(
    admin: "AdminClient",
    desired: "DesiredState",
    changes: Sequence[Change],
    *,
    validate_only: bool = False,
) -> list[Change]:
    """Execute `changes`, of a plan for `desired`; return them with the errors of those that failed.

    A plan that has errors is returned as it is. With `validate_only`, the brokers check all changes
    except ACLs and deletions, for which they have no check, and change nothing.
    """
    results = list(changes)
    if any(it.error for it in changes):
        return results

    async def step(
        is_part: Callable[[Change], bool],
        run: Callable[[list[Change]], Coroutine[Any, Any, Outcomes]],
    ) -> None:
        chosen = [it for it in changes if is_part(it)]
        if chosen:
            outcomes = await run(chosen)
            for index, it in enumerate(results):
                if is_part(it):
                    results[index] = replace(it, error=outcomes.get(it.binding or it.target))

    if not validate_only:
        await step(
            lambda it: _is_acl(it) and it.action is Action.CREATE,
            lambda some: _create_acls(admin, some),
        )
    await step(
        lambda it: it.action is Action.CREATE and not _is_acl(it),
        lambda some: _create(admin, desired.topics, some, validate_only),
    )
    await step(
        lambda it: it.action is Action.ENLARGE, lambda some: _enlarge(admin, some, validate_only)
    )
    await step(_is_config, lambda some: _alter_configs(admin, some, validate_only))
    await step(
        lambda it: it.target.kind is Kind.QUOTA,
        lambda some: _alter_quotas(admin, some, validate_only),
    )
    if not validate_only:
        await step(
            lambda it: it.action is Action.DELETE and not _is_acl(it),
            lambda some: _delete(admin, some),
        )
        await step(
            lambda it: _is_acl(it) and it.action is Action.DELETE,
            lambda some: _delete_acls(admin, some),
        )
    return results


def _is_acl(change: Change) -> bool:
    return change.target.kind is Kind.ACL


def _is_config(change: Change) -> bool:
    return change.target.kind is not Kind.QUOTA and change.action in (Action.SET, Action.RESET)


async def _create_acls(admin: "AdminClient", some: list[Change]) -> Outcomes:
    results = await admin.acls.create_acls(_entries(some))
    return {it.binding: it.error for it in results}


async def _delete_acls(admin: "AdminClient", some: list[Change]) -> Outcomes:
    results = await admin.acls.delete_acls(_entries(some)[::-1])
    return {it.binding: it.error for it in results}


def _entries(some: Sequence[Change]) -> "list[AclBinding]":
    """Return the entries of changes, those that deny first."""
    entries = [it.binding for it in some if it.binding is not None]
    return sorted(entries, key=lambda it: it.entry.permission)


async def _create(
    admin: "AdminClient",
    topics: "Mapping[str, DesiredTopic]",
    some: list[Change],
    validate_only: bool,
) -> Outcomes:
    wanted = [topics[it.target.name] for it in some]
    new = [
        NewTopic(
            it.name,
            it.partitions or BROKER_DEFAULT,
            it.replication_factor or BROKER_DEFAULT,
            it.configs,
        )
        for it in wanted
    ]
    results = await admin.topics.create(
        new, validate_only=validate_only, timeout_ms=admin.router.timeout_ms
    )
    return {Target(Kind.TOPIC, it.name): it.error for it in results}


async def _enlarge(admin: "AdminClient", some: list[Change], validate_only: bool) -> Outcomes:
    counts = {it.target.name: int(it.new or 0) for it in some}
    results = await admin.topics.add_partitions(
        counts, validate_only=validate_only, timeout_ms=admin.router.timeout_ms
    )
    return {Target(Kind.TOPIC, it.name): it.error for it in results}


async def _alter_configs(admin: "AdminClient", some: list[Change], validate_only: bool) -> Outcomes:
    targets = dict.fromkeys(it.target for it in some)
    changes = {
        target.config_resource: ConfigChanges(
            {
                it.name: it.new or ""
                for it in some
                if it.target == target and it.action is Action.SET
            },
            [it.name for it in some if it.target == target and it.action is Action.RESET],
        )
        for target in targets
    }
    results = await admin.configs.alter(changes, validate_only=validate_only)
    errors = {it.resource: it.error for it in results}
    return {target: errors.get(target.config_resource) for target in targets}


async def _alter_quotas(admin: "AdminClient", some: list[Change], validate_only: bool) -> Outcomes:
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    for it in some:
        assert it.entity is not None
        changes.setdefault(it.entity, {})[it.name] = None if it.new is None else float(it.new)
    errors = await admin.quotas.alter(changes, validate_only=validate_only)
    return {Target(Kind.QUOTA, str(entity)): error for entity, error in errors.items()}


async def _delete(admin: "AdminClient", some: list[Change]) -> Outcomes:
    names = [it.target.name for it in some]
    results = await admin.topics.delete(names, timeout_ms=admin.router.timeout_ms)
    return {Target(Kind.TOPIC, it.name): it.error for it in results}
