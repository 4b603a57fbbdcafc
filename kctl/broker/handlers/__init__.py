"""HANDLERS: maps each ApiKey to its handler, the first place to look for how a request is
handled.

Handlers of requests that few clients send, and those about security, are imported with the first
such request: most brokers of tests and developers never need them.
"""

from collections.abc import Callable
from importlib import import_module

from kctl.broker.handlers.api_versions import handle_api_versions
from kctl.broker.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
)
from kctl.broker.handlers.fetch import handle_fetch
from kctl.broker.handlers.find_coordinator import handle_find_coordinator
from kctl.broker.handlers.groups import (
    handle_delete_groups,
    handle_describe_groups,
    handle_heartbeat,
    handle_join_group,
    handle_leave_group,
    handle_list_groups,
    handle_sync_group,
)
from kctl.broker.handlers.leader_and_isr import handle_leader_and_isr, handle_stop_replica
from kctl.broker.handlers.list_offsets import handle_list_offsets
from kctl.broker.handlers.metadata import handle_metadata
from kctl.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from kctl.broker.handlers.offsets import (
    handle_offset_commit,
    handle_offset_delete,
    handle_offset_fetch,
)
from kctl.broker.handlers.produce import handle_produce
from kctl.broker.handlers.topics import (
    handle_create_partitions,
    handle_create_topics,
    handle_delete_topics,
)
from kctl.broker.handlers.transactions import (
    handle_add_offsets_to_txn,
    handle_add_partitions_to_txn,
    handle_end_txn,
    handle_init_producer_id,
)
from kctl.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from kctl.broker.handlers.update_metadata import handle_update_metadata
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.api_keys import ApiKey

Handler = Callable[[Services, Request], None]


def _loaded_later(module: str, name: str) -> Handler:
    """Return the handler `name` of a module that is imported with the first request for it."""

    def handle(services: Services, request: Request) -> None:
        handler: Handler = getattr(import_module(handle.__module__), name)
        handler(services, request)

    handle.__name__ = handle.__qualname__ = name
    handle.__module__ = f"{__name__}.{module}"
    return handle


HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.METADATA: handle_metadata,
    ApiKey.LEADER_AND_ISR: handle_leader_and_isr,
    ApiKey.STOP_REPLICA: handle_stop_replica,
    ApiKey.UPDATE_METADATA: handle_update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _loaded_later("controlled_shutdown", "handle_controlled_shutdown"),
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.SASL_HANDSHAKE: _loaded_later("sasl", "handle_sasl_handshake"),
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.DELETE_RECORDS: _loaded_later("delete_records", "handle_delete_records"),
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets_to_txn,
    ApiKey.END_TXN: handle_end_txn,
    ApiKey.WRITE_TXN_MARKERS: _loaded_later("write_txn_markers", "handle_write_txn_markers"),
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: _loaded_later("acls", "handle_describe_acls"),
    ApiKey.CREATE_ACLS: _loaded_later("acls", "handle_create_acls"),
    ApiKey.DELETE_ACLS: _loaded_later("acls", "handle_delete_acls"),
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _loaded_later("log_dirs", "handle_alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: _loaded_later("log_dirs", "handle_describe_log_dirs"),
    ApiKey.SASL_AUTHENTICATE: _loaded_later("sasl", "handle_sasl_authenticate"),
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
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
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.ELECT_LEADERS: _loaded_later("elections", "handle_elect_leaders"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _loaded_later(
        "reassignments", "handle_alter_partition_reassignments"
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _loaded_later(
        "reassignments", "handle_list_partition_reassignments"
    ),
    ApiKey.OFFSET_DELETE: handle_offset_delete,
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
