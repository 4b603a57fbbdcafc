"""QuotaAdmin: describe and alter the quotas of users and client ids.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient (describeClientQuotas,
alterClientQuotas); KIP-546
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kctl.client.results import error_of, raise_for
from kctl.protocol.error_codes import ApiError
from kctl.protocol.messages import alter_client_quotas, describe_client_quotas

if TYPE_CHECKING:
    from kctl.client.router import Router

# The name of the entity whose quotas apply to all users or client ids without their own.
DEFAULT_ENTITY = "<default>"
USER = "user"
CLIENT_ID = "client-id"


class QuotaEntity(NamedTuple):
    """The user, the client id, or the client id of a user, that quotas apply to; None leaves a part
    out, DEFAULT_ENTITY is Kafka's default."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        """Return the entity as `user=alice,client-id=reports`."""
        parts = ((USER, self.user), (CLIENT_ID, self.client_id))
        return ",".join(f"{kind}={name}" for kind, name in parts if name is not None)


class QuotaChange(NamedTuple):
    """The quotas of an entity before a change, and what changes; None removes a quota."""

    entity: QuotaEntity
    before: Mapping[str, float]
    changes: Mapping[str, float | None]


class QuotaAdmin:
    """The client quotas of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of every entity that has any, as Kafka's key -> value. Raise ApiError
        if the broker rejects the request (KIP-546)."""
        request = describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False)
        response = await self._router.send_to_any(request)
        raise_for(response.error_code, response.error_message)
        found = {}
        for entry in response.entries or ():
            names = {
                it.entity_type: DEFAULT_ENTITY if it.entity_name is None else it.entity_name
                for it in entry.entity
            }
            if names.keys() <= {USER, CLIENT_ID}:
                entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID))
                found[entity] = {it.key: it.value for it in entry.values}
        return found

    async def plan_setting(self, entity: QuotaEntity, values: Mapping[str, float]) -> QuotaChange:
        """Return the change that sets `values` and leaves other quotas of the entity."""
        return QuotaChange(entity, (await self.describe()).get(entity, {}), values)

    async def plan_removal(
        self, entity: QuotaEntity, names: Collection[str] | None = None
    ) -> QuotaChange:
        """Return the change that removes those quotas of `names` that the entity has; None: all."""
        before = (await self.describe()).get(entity, {})
        removed = [key for key in names or before if key in before]
        return QuotaChange(entity, before, dict.fromkeys(removed))

    async def execute(self, change: QuotaChange) -> ApiError | None:
        """Execute a change; return the broker's error, if any."""
        if not change.changes:
            return None
        return (await self.alter({change.entity: change.changes}))[change.entity]

    async def alter(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, ApiError | None]:
        """Set quotas, or remove those whose value is None; return an error or None per entity. With
        `validate_only` the broker only checks the changes (KIP-546)."""
        if not changes:
            return {}
        request = alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(entity=_parts(entity), ops=_operations(values))
                for entity, values in changes.items()
            ],
            validate_only=validate_only,
        )
        response = await self._router.send_to_any(request)
        found = {
            frozenset((it.entity_type, it.entity_name) for it in entry.entity): error_of(
                entry.error_code, entry.error_message
            )
            for entry in response.entries
        }
        return {
            entity: found.get(frozenset((it.entity_type, it.entity_name) for it in _parts(entity)))
            for entity in changes
        }


def _parts(entity: QuotaEntity) -> list[alter_client_quotas.EntityData]:
    return [
        alter_client_quotas.EntityData(
            entity_type=kind, entity_name=None if name == DEFAULT_ENTITY else name
        )
        for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id))
        if name is not None
    ]


def _operations(values: Mapping[str, float | None]) -> list[alter_client_quotas.OpData]:
    return [
        alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
