"""Credentials: the SCRAM credentials of users, as the store has them, bearer tokens, and nonces.

A user without a credential gets an imaginary one, derived from a secret of this broker: the
exchange then fails at its end, like one with a wrong password.

Kafka 2.7: kafka.security.CredentialProvider, ScramServerCallbackHandler; KIP-84.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from kctl.broker.bearer_tokens import BearerTokens
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.delegation_tokens import DelegationTokens
from kctl.configs.listener_security import SaslListener
from kctl.configs.oauthbearer_configs import BearerConfig
from kctl.errors import CorruptDataError
from kctl.protocol.sasl.mechanism import Identity
from kctl.protocol.sasl.scram import (
    ITERATIONS_MIN,
    NONCE_BYTES,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    credential_of_password,
    decode_credential,
    encode_credential,
    imaginary_credential,
)
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import USER_CONFIGS, sanitize

_SECRET_BYTES = 32


async def store_passwords(
    runtime: Runtime,
    cluster_store: ClusterStore,
    dynamic_configs: DynamicConfigs,
    users: Mapping[str, str],
) -> None:
    """Store SCRAM credentials of `users`, name -> password, and load them into this broker."""
    for name, password in users.items():
        credentials = {}
        for mechanism in ScramMechanism:
            salt = runtime.entropy.random_bytes(SALT_BYTES)
            credential = await runtime.scheduler.background(
                partial(credential_of_password, mechanism, password, salt, ITERATIONS_MIN)
            )
            credentials[mechanism.value] = encode_credential(credential)
        await cluster_store.update_entity_config(
            USER_CONFIGS, sanitize(name), partial(_merged, credentials)
        )
    await dynamic_configs.load_users([sanitize(name) for name in users])


def _merged(changes: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    return {**before, **changes}


class Credentials:
    """What the clients of this cluster authenticate with."""

    def __init__(
        self,
        runtime: Runtime,
        dynamic_configs: DynamicConfigs,
        delegation_tokens: DelegationTokens | None,
    ) -> None:
        self._entropy = runtime.entropy
        self._trace = runtime.trace
        self._configs = dynamic_configs
        self._delegation_tokens = delegation_tokens
        self._bearer_tokens = BearerTokens(runtime)
        self._secret = runtime.entropy.random_bytes(_SECRET_BYTES)
        # What is decoded for users that do not exist.
        self._decoys = {
            it: encode_credential(imaginary_credential(it, "", self._secret))
            for it in ScramMechanism
        }

    async def start(self, is_controller: Callable[[], bool]) -> None:
        """Load delegation tokens; raise KctlError.

        Expired delegation tokens are deleted while `is_controller()`.
        """
        tokens = self._delegation_tokens
        if tokens is not None:
            await tokens.start()
            tokens.sweep_while(is_controller)

    async def serve(self, listeners: Iterable[SaslListener]) -> None:
        """Fetch the keys that bearer tokens of `listeners` need; raise UsageError."""
        await self._bearer_tokens.accept(it.bearer for it in listeners if it.bearer)

    def close(self) -> None:
        """Stop fetching keys and deleting tokens."""
        if self._delegation_tokens is not None:
            self._delegation_tokens.close()
        self._bearer_tokens.close()

    def scram(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the credential of `user`, or one that no password fits.

        The same is computed for users that exist and for others: the time that an answer takes must
        not show which of them a user is.
        """
        imaginary = imaginary_credential(mechanism, user, self._secret)
        decoy = self._decoys[mechanism]
        text = self._configs.overrides(USER_CONFIGS, sanitize(user)).get(mechanism.value)
        try:
            stored = decode_credential(text or decoy)
        except CorruptDataError as error:
            self._trace.warning(f"user {user}: {error}")
            return imaginary
        return imaginary if text is None else stored

    def delegation_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential:
        """Return the credential of a delegation token, or one that no password fits."""
        credential = imaginary_credential(mechanism, token_id, self._secret)
        tokens = self._delegation_tokens
        found = None if tokens is None else tokens.credential(mechanism, token_id)
        return found or TokenCredential(credential, Identity(token_id))

    def bearer(self, config: BearerConfig, token: str) -> Identity:
        """Return the identity of a bearer token; raise RejectedToken."""
        return self._bearer_tokens.identity(config, token)

    def nonce(self) -> str:
        """Return a random text without commas."""
        return base64.b64encode(self._entropy.random_bytes(NONCE_BYTES)).decode()
