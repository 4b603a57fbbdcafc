"""DescribeClientQuotas and AlterClientQuotas: quotas of users and client ids, as stored.

Behaviour:

- Quotas are configs of users and clients in the store; any broker changes them.
- Each entity of an AlterClientQuotas request succeeds or fails on its own; for an entity that is
  named twice the response has only the last result.
- Entities of type ip exist since Kafka 2.8: filters with them are UNSUPPORTED_VERSION, changes
  INVALID_REQUEST.

Versions: 0.

Kafka 2.7: kafka.server.AdminManager.describeClientQuotas, alterClientQuotas; KIP-546, KIP-612.
"""

from collections.abc import AsyncIterator, Mapping

from kctl.broker.client_quotas import (
    CLIENT_ID,
    USER,
    ClientQuotaEntity,
    changed_quotas,
    quota_entity,
    quota_filter,
    quotas_in,
)
from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import alter_client_quotas, describe_client_quotas
from kctl.runtime.turns import pace_of
from kctl.store.errors import StoreError
from kctl.store.znodes import CLIENT_CONFIGS, DEFAULT_ENTITY, USER_CONFIGS, desanitize, sanitize

# Cost of writing one entity, and of describing it, in units of `Pace`.
_ENTITY_UNITS = 20
_DESCRIBED_UNITS = 3


def handle_describe_client_quotas(services: Services, request: Request) -> None:
    """Reply when the store has been read."""
    reply_from(
        services.runtime.scheduler, request, _describe(services, request), "describe-client-quotas"
    )


async def _describe(services: Services, request: Request) -> None:
    body: describe_client_quotas.DescribeClientQuotasRequest = request.body
    try:
        wanted = quota_filter(
            (
                (c.entity_type, c.match_type, None if c.match is None else sanitize(c.match))
                for c in body.components
            ),
            is_strict=body.strict,
        )
        entries = []
        pace = pace_of(services.runtime.scheduler)
        async for entity, config in _all_configs(services):
            await pace.spend(_DESCRIBED_UNITS)
            quotas = quotas_in(config)
            if quotas and wanted.matches(entity):
                entries.append(_entry(entity, quotas))
        response = describe_client_quotas.DescribeClientQuotasResponse(
            error_message=None, entries=entries
        )
    except (ApiError, StoreError) as error:
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        response = describe_client_quotas.DescribeClientQuotasResponse(
            error_code=code, error_message=_reason(error), entries=None
        )
    request.reply(response)


async def _all_configs(
    services: Services,
) -> AsyncIterator[tuple[ClientQuotaEntity, Mapping[str, str]]]:
    """Yield the configs of all users, of all clients, and of the users' clients."""
    store = services.cluster_store
    users = await store.get_entities_with_config(USER_CONFIGS)
    clients = await store.get_entities_with_config(CLIENT_CONFIGS)
    pairs = [
        (user, client)
        for user, names in (await store.get_clients_of_users(users)).items()
        for client in names
    ]
    of_users = await store.get_entity_configs(USER_CONFIGS, users)
    of_pairs = await store.get_entity_configs(
        USER_CONFIGS, [f"{u}/{CLIENT_CONFIGS}/{c}" for u, c in pairs]
    )
    of_clients = await store.get_entity_configs(CLIENT_CONFIGS, clients)
    for user, config in of_users.items():
        yield ClientQuotaEntity(user, None), config
    for name, config in of_clients.items():
        yield ClientQuotaEntity(None, name), config
    for pair, config in zip(pairs, of_pairs.values(), strict=True):
        yield ClientQuotaEntity(*pair), config


def _entry(
    entity: ClientQuotaEntity, quotas: Mapping[str, float]
) -> describe_client_quotas.EntryData:
    parts = ((USER, entity.user), (CLIENT_ID, entity.client_id))
    return describe_client_quotas.EntryData(
        entity=[
            describe_client_quotas.EntityData(
                entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else desanitize(name)
            )
            for kind, name in parts
            if name is not None
        ],
        values=[
            describe_client_quotas.ValueData(key=key, value=value) for key, value in quotas.items()
        ],
    )


def handle_alter_client_quotas(services: Services, request: Request) -> None:
    """Reply when the changes are in the store."""
    reply_from(
        services.runtime.scheduler, request, _alter(services, request), "alter-client-quotas"
    )


async def _alter(services: Services, request: Request) -> None:
    body: alter_client_quotas.AlterClientQuotasRequest = request.body
    results = {}
    pace = pace_of(services.runtime.scheduler)
    for entry in body.entries:
        await pace.spend(_ENTITY_UNITS)
        result = alter_client_quotas.EntryDataResponse(error_message=None, entity=entry.entity)
        try:
            await _alter_one(services, entry, body.validate_only)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
        except StoreError as error:
            result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            result.error_message = str(error)
        results[frozenset((e.entity_type, e.entity_name) for e in entry.entity)] = result
    request.reply(alter_client_quotas.AlterClientQuotasResponse(entries=list(results.values())))


async def _alter_one(
    services: Services, entry: alter_client_quotas.EntryData, validate_only: bool
) -> None:
    entity = quota_entity(
        (e.entity_type, None if e.entity_name is None else sanitize(e.entity_name))
        for e in entry.entity
    )
    changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
    entity_type, entity_name = entity.config_entity
    store = services.cluster_store
    if validate_only:
        changed_quotas(await store.get_entity_config(entity_type, entity_name), changes)
    else:
        await store.update_entity_config(
            entity_type, entity_name, lambda before: changed_quotas(before, changes)
        )


def _reason(error: ApiError | StoreError) -> str | None:
    return error.reason if isinstance(error, ApiError) else str(error)
