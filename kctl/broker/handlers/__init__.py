"""HANDLERS: maps each ApiKey to its handler, the first place to look for how a request is
handled.

Only what a broker needs to become ready, and the most frequent requests, are imported at once. The
other handlers are imported with the first such request; those of FREQUENT by `load_handlers`, which
a broker runs beside its first requests.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from kctl.broker.handlers.api_versions import handle_api_versions
from kctl.broker.handlers.fetch import handle_fetch
from kctl.broker.handlers.leader_and_isr import handle_leader_and_isr, handle_stop_replica
from kctl.broker.handlers.metadata import handle_metadata
from kctl.broker.handlers.produce import handle_produce
from kctl.broker.handlers.update_metadata import handle_update_metadata
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.api_keys import ApiKey

Handler = Callable[[Services, Request], None]


# Modules that most brokers need some time: those of producers, consumers and groups.
FREQUENT: Final = (
    "configs",
    "find_coordinator",
    "groups",
    "list_offsets",
    "offsets",
    "topics",
    "transactions",
)


def load_handlers() -> None:
    """Import the modules of FREQUENT; on any thread."""
    for module in FREQUENT:
        import_module(f"{__name__}.{module}")


def _loaded_later(module: str, name: str) -> Handler:
    """Return the handler `name` of a module that is imported with the first request for it."""
    handler: Handler | None = None

    def handle(services: Services, request: Request) -> None:
        nonlocal handler
        if handler is None:
            loaded: Handler = getattr(import_module(handle.__module__), name)
            handler = loaded
        handler(services, request)

    handle.__name__ = handle.__qualname__ = name
    handle.__module__ = f"{__name__}.{module}"
    return handle


HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: _loaded_later("list_offsets", "handle_list_offsets"),
    ApiKey.METADATA: handle_metadata,
    ApiKey.LEADER_AND_ISR: handle_leader_and_isr,
    ApiKey.STOP_REPLICA: handle_stop_replica,
    ApiKey.UPDATE_METADATA: handle_update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _loaded_later("controlled_shutdown", "handle_controlled_shutdown"),
    ApiKey.OFFSET_COMMIT: _loaded_later("offsets", "handle_offset_commit"),
    ApiKey.OFFSET_FETCH: _loaded_later("offsets", "handle_offset_fetch"),
    ApiKey.FIND_COORDINATOR: _loaded_later("find_coordinator", "handle_find_coordinator"),
    ApiKey.JOIN_GROUP: _loaded_later("groups", "handle_join_group"),
    ApiKey.HEARTBEAT: _loaded_later("groups", "handle_heartbeat"),
    ApiKey.LEAVE_GROUP: _loaded_later("groups", "handle_leave_group"),
    ApiKey.SYNC_GROUP: _loaded_later("groups", "handle_sync_group"),
    ApiKey.DESCRIBE_GROUPS: _loaded_later("groups", "handle_describe_groups"),
    ApiKey.LIST_GROUPS: _loaded_later("groups", "handle_list_groups"),
    ApiKey.SASL_HANDSHAKE: _loaded_later("sasl", "handle_sasl_handshake"),
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.CREATE_TOPICS: _loaded_later("topics", "handle_create_topics"),
    ApiKey.DELETE_TOPICS: _loaded_later("topics", "handle_delete_topics"),
    ApiKey.DELETE_RECORDS: _loaded_later("delete_records", "handle_delete_records"),
    ApiKey.INIT_PRODUCER_ID: _loaded_later("transactions", "handle_init_producer_id"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _loaded_later(
        "offset_for_leader_epoch", "handle_offset_for_leader_epoch"
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _loaded_later("transactions", "handle_add_partitions_to_txn"),
    ApiKey.ADD_OFFSETS_TO_TXN: _loaded_later("transactions", "handle_add_offsets_to_txn"),
    ApiKey.END_TXN: _loaded_later("transactions", "handle_end_txn"),
    ApiKey.WRITE_TXN_MARKERS: _loaded_later("write_txn_markers", "handle_write_txn_markers"),
    ApiKey.TXN_OFFSET_COMMIT: _loaded_later("txn_offset_commit", "handle_txn_offset_commit"),
    ApiKey.DESCRIBE_ACLS: _loaded_later("acls", "handle_describe_acls"),
    ApiKey.CREATE_ACLS: _loaded_later("acls", "handle_create_acls"),
    ApiKey.DELETE_ACLS: _loaded_later("acls", "handle_delete_acls"),
    ApiKey.DESCRIBE_CONFIGS: _loaded_later("configs", "handle_describe_configs"),
    ApiKey.ALTER_CONFIGS: _loaded_later("configs", "handle_alter_configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _loaded_later("log_dirs", "handle_alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: _loaded_later("log_dirs", "handle_describe_log_dirs"),
    ApiKey.SASL_AUTHENTICATE: _loaded_later("sasl", "handle_sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: _loaded_later("topics", "handle_create_partitions"),
    ApiKey.CREATE_DELEGATION_TOKEN: _loaded_later(
        "delegation_tokens", "handle_create_delegation_token"
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: _loaded_later(
        "delegation_tokens", "handle_renew_delegation_token"
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _loaded_later(
        "delegation_tokens", "handle_expire_delegation_token"
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _loaded_later(
        "delegation_tokens", "handle_describe_delegation_token"
    ),
    ApiKey.DELETE_GROUPS: _loaded_later("groups", "handle_delete_groups"),
    ApiKey.ELECT_LEADERS: _loaded_later("elections", "handle_elect_leaders"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _loaded_later("configs", "handle_incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _loaded_later(
        "reassignments", "handle_alter_partition_reassignments"
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _loaded_later(
        "reassignments", "handle_list_partition_reassignments"
    ),
    ApiKey.OFFSET_DELETE: _loaded_later("offsets", "handle_offset_delete"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _loaded_later("client_quotas", "handle_describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: _loaded_later("client_quotas", "handle_alter_client_quotas"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _loaded_later(
        "scram_credentials", "handle_describe_user_scram_credentials"
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _loaded_later(
        "scram_credentials", "handle_alter_user_scram_credentials"
    ),
    ApiKey.ALTER_ISR: _loaded_later("alter_isr", "handle_alter_isr"),
    ApiKey.UPDATE_FEATURES: _loaded_later("features", "handle_update_features"),
}
