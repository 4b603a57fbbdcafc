"""Names of what a cluster has, for completion: topics, groups, brokers, transactional ids."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


async def list_names(admin: "AdminClient", kind: str) -> list[str]:
    """Return the names of a kind: `groups`, `brokers`, `config-broker`, `config-logger`, `ids`
    (transactional ids), or the topics that are not internal for any other `kind`.

    Names of brokers are their ids; `config-broker` has `default`, too.
    """
    match kind:
        case "groups":
            return [it.group_id for it in (await admin.groups.list_groups()).groups]
        case "ids":
            return [it.transactional_id for it in await admin.transactions.list_transactions()]
        case "brokers" | "config-logger":
            return await _brokers(admin)
        case "config-broker":
            return [*await _brokers(admin), "default"]
    return [it.name for it in await admin.topics.list_topics() if not it.is_internal]


async def _brokers(admin: "AdminClient") -> list[str]:
    return [str(it.broker_id) for it in (await admin.cluster.describe()).brokers]
