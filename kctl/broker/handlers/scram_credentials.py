"""DescribeUserScramCredentials and AlterUserScramCredentials: users' SCRAM credentials.

Behaviour:

- Credentials are configs of users in the store. Only the controller changes them; other brokers
  return NOT_CONTROLLER for every user.
- All changes of one user succeed or fail together; users do not affect each other.
- Describing no users, or null, describes all that have credentials, sorted by name.

Versions: 0, flexible.

Kafka 2.7: kafka.server.AdminManager.describeUserScramCredentials, alterUserScramCredentials;
KIP-554.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import alter_user_scram_credentials as alter
from kctl.protocol.messages import describe_user_scram_credentials as describe
from kctl.protocol.sasl.scram import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
    decode_credential,
    encode_credential,
)
from kctl.runtime.turns import pace_of
from kctl.store.errors import StoreError
from kctl.store.znodes import USER_CONFIGS, sanitize

_EMPTY_NAME = "Username must not be empty"
_UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"
# Cost of writing one user, and of describing it, in units of `Pace`.
_USER_UNITS = 50
_DESCRIBED_UNITS = 10

Change = alter.ScramCredentialDeletion | alter.ScramCredentialUpsertion


# --- describe ----------------------------------------------------------------------------------


def handle_describe_user_scram_credentials(services: Services, request: Request) -> None:
    """Reply when the store has been read."""
    reply_from(
        services.runtime.scheduler,
        request,
        _describe(services, request),
        "describe-scram-credentials",
    )


async def _describe(services: Services, request: Request) -> None:
    body: describe.DescribeUserScramCredentialsRequest = request.body
    names = [user.name for user in body.users or ()]
    try:
        results = await (_named_users(services, names) if names else _all_users(services))
    except StoreError as error:
        request.reply(
            describe.DescribeUserScramCredentialsResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=str(error)
            )
        )
        return
    request.reply(describe.DescribeUserScramCredentialsResponse(error_message="", results=results))


async def _all_users(services: Services) -> list[describe.DescribeUserScramCredentialsResult]:
    store = services.cluster_store
    configs = await store.get_entity_configs(
        USER_CONFIGS, await store.get_entities_with_config(USER_CONFIGS)
    )
    pace = pace_of(services.runtime.scheduler)
    results = []
    for sanitized, config in configs.items():
        await pace.spend(_DESCRIBED_UNITS)
        if _has_credentials(config):
            # Kafka 2.7 does not decode the names of znodes here.
            results.append(_described(sanitized, config))
    return sorted(results, key=lambda result: result.user)


async def _named_users(
    services: Services, names: list[str]
) -> list[describe.DescribeUserScramCredentialsResult]:
    counts = Counter(names)
    sanitized = {name: sanitize(name) for name in counts if name}
    configs = await services.cluster_store.get_entity_configs(
        USER_CONFIGS, list(sanitized.values())
    )
    pace = pace_of(services.runtime.scheduler)
    results = []
    for name, count in counts.items():
        await pace.spend(_DESCRIBED_UNITS)
        if not name:
            result = _refused(name, ErrorCode.RESOURCE_NOT_FOUND, _EMPTY_NAME)
        elif count > 1:
            result = _refused(
                name,
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request:"
                f" {name}",
            )
        elif _has_credentials(configs[sanitized[name]]):
            result = _described(name, configs[sanitized[name]])
        else:
            result = _refused(
                name,
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
        results.append(result)
    return results


def _has_credentials(config: Mapping[str, str]) -> bool:
    return any(mechanism.value in config for mechanism in ScramMechanism)


def _described(name: str, config: Mapping[str, str]) -> describe.DescribeUserScramCredentialsResult:
    try:
        infos = [
            describe.CredentialInfo(
                mechanism=mechanism.number,
                iterations=decode_credential(config[mechanism.value]).iterations,
            )
            for mechanism in ScramMechanism
            if mechanism.value in config
        ]
    except CorruptDataError as error:
        return _refused(name, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return describe.DescribeUserScramCredentialsResult(
        user=name, error_message="", credential_infos=infos
    )


def _refused(
    name: str, code: ErrorCode, reason: str
) -> describe.DescribeUserScramCredentialsResult:
    return describe.DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=reason
    )


# --- alter -------------------------------------------------------------------------------------


def handle_alter_user_scram_credentials(services: Services, request: Request) -> None:
    """Reply when the changes are in the store."""
    reply_from(
        services.runtime.scheduler, request, _alter(services, request), "alter-scram-credentials"
    )


async def _alter(services: Services, request: Request) -> None:
    body: alter.AlterUserScramCredentialsRequest = request.body
    by_user: dict[str, list[Change]] = {}
    changes: list[Change] = [*body.deletions, *body.upsertions]
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    pace = pace_of(services.runtime.scheduler)
    results = []
    for name, of_user in by_user.items():
        await pace.spend(_USER_UNITS)
        result = alter.AlterUserScramCredentialsResult(user=name, error_message="")
        try:
            await _alter_user(services, name, of_user)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
        except StoreError as error:
            result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            result.error_message = str(error)
        results.append(result)
    request.reply(alter.AlterUserScramCredentialsResponse(results=results))


async def _alter_user(services: Services, name: str, changes: list[Change]) -> None:
    if not services.controller.is_active:
        raise ApiError(
            ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster."
        )
    _check(changes)

    def updated(before: Mapping[str, str]) -> dict[str, str]:
        after = dict(before)
        for change in changes:
            mechanism = BY_NUMBER[change.mechanism]
            if isinstance(change, alter.ScramCredentialUpsertion):
                credential = credential_of(
                    mechanism, change.salted_password, change.salt, change.iterations
                )
                after[mechanism.value] = encode_credential(credential)
            elif after.pop(mechanism.value, None) is None:
                raise ApiError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        return after

    await services.cluster_store.update_entity_config(USER_CONFIGS, sanitize(name), updated)


def _check(changes: Iterable[Change]) -> None:
    """Raise ApiError unless the changes of one user are valid."""
    mechanisms = set()
    for change in changes:
        if not change.name:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, _EMPTY_NAME)
        if change.mechanism not in BY_NUMBER:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, _UNKNOWN_MECHANISM)
        if isinstance(change, alter.ScramCredentialUpsertion):
            if change.iterations < ITERATIONS_MIN:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
            if change.iterations > ITERATIONS_MAX:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if change.mechanism in mechanisms:
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        mechanisms.add(change.mechanism)
