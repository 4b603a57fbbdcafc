"""ClientQuotaEntity: the clients that a quota covers, its path in the store, and filters. Pure.

An entity is a user, a client id, or a client id of a user; each part has a name or is the default
of its type. Names are sanitized, as in znodes: the default is `<default>`, which no sanitized name
equals.

Kafka 2.7: org.apache.kafka.common.quota.ClientQuotaEntity, kafka.server.AdminManager; KIP-546.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from math import isfinite, isnan
from typing import NamedTuple

from kctl.configs.config_key import ConfigKey, ConfigType
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.store.znodes import CLIENT_CONFIGS, DEFAULT_ENTITY, USER_CONFIGS

USER = "user"
CLIENT_ID = "client-id"

# Maximum distance of a quota of type LONG from a whole number.
_EPSILON = 1e-6

QUOTA_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("producer_byte_rate", ConfigType.LONG, None),
        ConfigKey("consumer_byte_rate", ConfigType.LONG, None),
        ConfigKey("request_percentage", ConfigType.DOUBLE, None),
        ConfigKey("controller_mutation_rate", ConfigType.DOUBLE, None),
    )
}


class MatchType(IntEnum):
    """How a component of a filter selects entities (KIP-546)."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class ClientQuotaEntity(NamedTuple):
    """Sanitized names; None if the entity does not have the part."""

    user: str | None
    client_id: str | None

    @property
    def config_entity(self) -> tuple[str, str]:
        """Return the entity's type and name below `/config`."""
        if self.user is None:
            return CLIENT_CONFIGS, self.client_id or ""
        if self.client_id is None:
            return USER_CONFIGS, self.user
        return USER_CONFIGS, f"{self.user}/{CLIENT_CONFIGS}/{self.client_id}"


class ClientQuotaFilter(NamedTuple):
    """The sanitized names that a filter selects; ANY_NAME: any; None: not part of the filter."""

    user: str | None
    client_id: str | None
    is_strict: bool

    def matches(self, entity: ClientQuotaEntity) -> bool:
        """Return whether the filter selects `entity`."""
        return self._part_matches(self.user, entity.user) and self._part_matches(
            self.client_id, entity.client_id
        )

    def _part_matches(self, wanted: str | None, name: str | None) -> bool:
        if wanted is None:
            return name is None or not self.is_strict
        return name is not None if wanted == ANY_NAME else name == wanted


# Sanitized names contain no blank.
ANY_NAME = " any "


def entity_of_path(entity_type: str, name: str) -> ClientQuotaEntity:
    """Return the entity of a type and name below `/config` (see `config_entity`)."""
    if entity_type == CLIENT_CONFIGS:
        return ClientQuotaEntity(None, name)
    user, separator, client_id = name.partition(f"/{CLIENT_CONFIGS}/")
    return ClientQuotaEntity(user, client_id if separator else None)


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> ClientQuotaEntity:
    """Return the entity for (entity type, sanitized name or None for the default) pairs.

    Raise ApiError for invalid pairs.
    """
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if not name and name is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        names[kind] = DEFAULT_ENTITY if name is None else name
    if not names:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    return ClientQuotaEntity(names.get(USER), names.get(CLIENT_ID))


def quota_filter(
    components: Iterable[tuple[str, int, str | None]], *, is_strict: bool
) -> ClientQuotaFilter:
    """Return the filter for (entity type, match type, sanitized name) triples; raise ApiError."""
    names: dict[str, str] = {}
    for kind, match_type, name in components:
        if kind in names:
            label = "user" if kind == USER else "client"
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Duplicate {label} filter component entity type"
            )
        if not kind:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type"
            )
        if kind not in (USER, CLIENT_ID):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported"
            )
        if match_type == MatchType.EXACT:
            names[kind] = name or ""
        elif match_type == MatchType.DEFAULT:
            names[kind] = DEFAULT_ENTITY
        elif match_type == MatchType.ANY:
            names[kind] = ANY_NAME
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {match_type}")
    return ClientQuotaFilter(names.get(USER), names.get(CLIENT_ID), is_strict)


def changed_quotas(
    before: Mapping[str, str], changes: Sequence[tuple[str, float | None]]
) -> dict[str, str]:
    """Return an entity's configs after `changes` (key, value or None to remove it); raise
    ApiError."""
    after = dict(before)
    for name, value in changes:
        if value is None:
            after.pop(name, None)
            continue
        key = QUOTA_KEYS.get(name)
        if key is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {name}")
        if not isfinite(value):
            # Apache Kafka stores such a percentage, and NaN bytes per second as 0.
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Configuration {name} must be a finite number"
            )
        is_whole = key.type is ConfigType.LONG
        after[name] = str(key.format(_whole(name, value) if is_whole else value))
    return after


def quotas_in(config: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among an entity's configs, which may include SCRAM credentials. Values that
    are no numbers, written by other tools, are left out."""
    found = {}
    for name, text in config.items():
        if name in QUOTA_KEYS:
            with suppress(ValueError):
                found[name] = float(text)
    return {name: value for name, value in found.items() if not isnan(value)}


def _whole(name: str, value: float) -> int:
    # As Java converts it.
    whole = max(min(int(value + _EPSILON), 2**63 - 1), -(2**63))
    if abs(whole - value) > _EPSILON:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Configuration {name} must be a Long value")
    return whole
