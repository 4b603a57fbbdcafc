"""UserAdmin: users' SCRAM credentials, which brokers keep in the cluster's metadata.

The client derives the salted password; brokers never learn the password itself.

Kafka 2.7: kafka.admin.ConfigCommand (`--entity-type users`); KIP-554
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl.client.results import error_of, raise_for
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.sasl.scram import (
    BY_NUMBER,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    salted_password,
)

if TYPE_CHECKING:
    from kctl.client.router import Router

__all__ = ["DEFAULT_ITERATIONS", "NewPassword", "UserAdmin", "UserCredentials", "UserResult"]

DEFAULT_ITERATIONS = 8_192


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """The mechanisms that a user can log in with, and the iterations of each."""

    name: str
    iterations: dict[ScramMechanism, int] = field(default_factory=dict)
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A password of a user for some mechanisms."""

    name: str
    password: str = field(repr=False)
    mechanisms: Sequence[ScramMechanism] = tuple(ScramMechanism)
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class UserResult:
    """The result of one user."""

    name: str
    error: ApiError | None = None


class UserAdmin:
    """The users of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_users(self, names: Sequence[str] = ()) -> list[UserCredentials]:
        """Return the users with SCRAM credentials, or those of `names`; raise ApiError.

        A name without credentials has the error RESOURCE_NOT_FOUND.
        """
        from kctl.protocol.messages.describe_user_scram_credentials import (
            DescribeUserScramCredentialsRequest,
            UserName,
        )

        request = DescribeUserScramCredentialsRequest(
            users=[UserName(name=name) for name in dict.fromkeys(names)] or None
        )
        response = await self._router.send_to_any(request)
        raise_for(response.error_code, response.error_message)
        return [
            UserCredentials(
                result.user,
                {BY_NUMBER[it.mechanism]: it.iterations for it in result.credential_infos},
                error_of(result.error_code, result.error_message),
            )
            for result in response.results
        ]

    async def create_user(self, wanted: NewPassword) -> UserResult:
        """Create a user, or give an existing one mechanisms that it does not have, and return the
        result. A user with one of the mechanisms keeps its password: the error is
        DUPLICATE_RESOURCE. Raise UsageError for a number of iterations that brokers reject.
        """
        _check(wanted)
        for user in await self.list_users([wanted.name]):
            has = [it.value for it in wanted.mechanisms if it in user.iterations]
            if has:
                taken = ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"the user has a password for {', '.join(has)}: kctl user passwd changes it",
                )
                return UserResult(wanted.name, taken)
        return (await self.set_passwords([wanted]))[0]

    async def set_passwords(self, passwords: Iterable[NewPassword]) -> list[UserResult]:
        """Set passwords of new or existing users and return a result for each user, in order.

        Raise UsageError for a number of iterations that brokers reject.
        """
        from kctl.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

        upsertions = []
        names = []
        for wanted in passwords:
            _check(wanted)
            names.append(wanted.name)
            for mechanism in wanted.mechanisms:
                runtime = self._router.runtime
                salt = runtime.entropy.random_bytes(SALT_BYTES)
                salted = await runtime.scheduler.background(
                    partial(salted_password, mechanism, wanted.password, salt, wanted.iterations)
                )
                upsertions.append(
                    ScramCredentialUpsertion(
                        name=wanted.name,
                        mechanism=mechanism.number,
                        iterations=wanted.iterations,
                        salt=salt,
                        salted_password=salted,
                    )
                )
        return await self._alter(names, upsertions=upsertions)

    async def change_passwords(
        self, users: Iterable[UserCredentials], password: str
    ) -> list[UserResult]:
        """Set the password of existing users, as `list_users` returns them, for the mechanisms and
        with the iterations that each has; return a result for each, in order.

        A user without credentials keeps that error. Raise UsageError for an empty password.
        """
        results = []
        for user in users:
            wanted = [
                NewPassword(user.name, password, [mechanism], iterations)
                for mechanism, iterations in user.iterations.items()
            ]
            if user.error is not None or not wanted:
                results.append(UserResult(user.name, user.error or _without_credentials(user)))
            else:
                results += (await self.set_passwords(wanted))[:1]
        return results

    async def delete_users(
        self, users: Iterable[UserCredentials], mechanisms: Sequence[ScramMechanism] = ()
    ) -> list[UserResult]:
        """Delete the credentials of `users`, all of them or those of `mechanisms`, and return a
        result for each user, in order."""
        from kctl.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion

        names, deletions = [], []
        for user in users:
            names.append(user.name)
            deletions += [
                ScramCredentialDeletion(name=user.name, mechanism=mechanism.number)
                for mechanism in mechanisms or user.iterations
            ]
        return await self._alter(names, deletions=deletions)

    async def _alter(self, names: Sequence[str], **changes: Any) -> list[UserResult]:
        from kctl.protocol.messages.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest,
        )

        response = await self._router.send_to_controller(
            AlterUserScramCredentialsRequest(**changes)
        )
        errors = {
            result.user: error_of(result.error_code, result.error_message)
            for result in response.results
        }
        missing = ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the broker did not answer for this user"
        )
        return [UserResult(name, errors.get(name, missing)) for name in names]


def _without_credentials(user: UserCredentials) -> ApiError:
    return ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"{user.name} has no SCRAM credentials")


def _check(wanted: NewPassword) -> None:
    if not wanted.name:
        raise UsageError("A user name must not be empty")
    if not wanted.password:
        raise UsageError(f"The password of {wanted.name} must not be empty")
    if not ITERATIONS_MIN <= wanted.iterations <= ITERATIONS_MAX:
        raise UsageError(
            f"Iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {wanted.iterations}"
        )
