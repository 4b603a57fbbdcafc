"""StoredPasswords: the passwords among a broker's overrides, which the store holds encrypted.

Each takes some milliseconds to encrypt or to decrypt, which is done off the loop. What was decoded
is remembered by its encoded text, so that the overrides of the store can be compared and checked
without waiting.

Kafka 2.7: kafka.server.DynamicBrokerConfig (`toPersistentProps`, `fromPersistentProps`,
`maybeReEncodePasswords`)
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.broker.config.config_entries import is_password
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import CorruptDataError, UsageError
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import BROKER_CONFIGS

if TYPE_CHECKING:
    from kctl.configs.password_encoder import PasswordEncoder

# Passwords that the overrides of a broker may have: each takes milliseconds to decode.
PASSWORDS_MAX = 100
# Decoded passwords that are remembered: those in the store, and earlier ones.
REMEMBERED_MAX = 10 * PASSWORDS_MAX
_PREFIX = "password.encoder."


def check_password_count(overrides: Mapping[str, str]) -> None:
    """Raise UsageError if `overrides` have more than PASSWORDS_MAX passwords."""
    if sum(map(is_password, overrides)) > PASSWORDS_MAX:
        raise UsageError(f"A broker may have {PASSWORDS_MAX} passwords among its overrides")


def _encoders(config: BrokerConfig) -> "tuple[PasswordEncoder | None, PasswordEncoder | None]":
    """Return the encoders of the secret and of the old secret; raise UsageError for settings that
    are not supported."""
    # A local import: brokers without these settings do not need it.
    from kctl.configs.password_encoder import KEY_FACTORY, EncoderSettings, PasswordEncoder

    settings = EncoderSettings(
        config.password_encoder_keyfactory_algorithm or KEY_FACTORY,
        config.password_encoder_cipher_algorithm,
        config.password_encoder_key_length,
        config.password_encoder_iterations,
    )
    secret, old = config.password_encoder_secret, config.password_encoder_old_secret
    return (
        None if secret is None else PasswordEncoder(secret, settings),
        None if old is None else PasswordEncoder(old, settings),
    )


class StoredPasswords:
    """Encodes and decodes the passwords of one broker's overrides."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, broker_id: int) -> None:
        """Raise UsageError for settings password.encoder.* that are not supported."""
        self._runtime = runtime
        # The name of the broker's entity in the store.
        self.entity_name = str(broker_id)
        self._encoder: PasswordEncoder | None = None
        self._old: PasswordEncoder | None = None
        if any(name.startswith(_PREFIX) for name in config.given):
            self._encoder, self._old = _encoders(config)
        self._decoded: OrderedDict[str, str | None] = OrderedDict()

    async def decoded(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return `overrides` with their passwords as they are; those that cannot be decoded are
        logged and left out."""
        await self._learn(overrides)
        return self.decoded_now(overrides)

    def decoded_now(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the same, but decode on the loop what `decoded` has not seen: overrides that
        changed in the store a moment ago."""
        result = {}
        for name, text in overrides.items():
            value: str | None = text
            if is_password(name):
                if text not in self._decoded:
                    self._remember(text, self._decode(text))
                value = self._decoded[text]
            if value is not None:
                result[name] = value
        return result

    async def encoded(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the passwords among `values`, encoded; raise UsageError without a secret."""
        passwords = {name: value for name, value in values.items() if is_password(name)}
        encoder = self._encoder
        if not passwords:
            return {}
        if encoder is None:
            raise UsageError(
                "Password encoder secret not configured",
                hint="set password.encoder.secret in the broker's server.properties",
            )
        from kctl.configs.password_encoder import IV_BYTES, SALT_BYTES

        random = self._runtime.entropy.random_bytes
        noise = {name: (random(SALT_BYTES), random(IV_BYTES)) for name in passwords}

        def encode() -> dict[str, str]:
            return {name: encoder.encode(it, *noise[name]) for name, it in passwords.items()}

        result = await self._runtime.scheduler.background(encode)
        for name, text in result.items():
            self._remember(text, passwords[name])
        return result

    async def encode_again(self, cluster_store: ClusterStore) -> None:
        """Encode with password.encoder.secret what password.encoder.old.secret can decode; raise
        UsageError if the former is missing, and StoreError."""
        old = self._old
        if old is None:
            return
        stored = await cluster_store.get_entity_config(BROKER_CONFIGS, self.entity_name)
        values = {}
        for name, text in stored.items():
            value = await self._decoded_by(old, text) if is_password(name) else None
            if value is not None:
                values[name] = value
        encoded = await self.encoded(values)
        if encoded:
            await cluster_store.update_entity_config(
                BROKER_CONFIGS, self.entity_name, lambda now: {**now, **encoded}
            )

    async def _decoded_by(self, encoder: "PasswordEncoder", text: str) -> str | None:
        def decode() -> str | None:
            try:
                return encoder.decode(text)
            except (CorruptDataError, UsageError):
                return None

        return await self._runtime.scheduler.background(decode)

    async def _learn(self, overrides: Mapping[str, str]) -> None:
        new = [it for name, it in overrides.items() if is_password(name)]
        new = [text for text in new if text not in self._decoded]
        if not new:
            return

        def decode() -> dict[str, str | None]:
            return {text: self._decode(text) for text in new}

        for text, value in (await self._runtime.scheduler.background(decode)).items():
            self._remember(text, value)
            if value is None:
                self._runtime.trace.warning(
                    f"A password among the overrides of broker {self.entity_name} cannot be decoded"
                    " with password.encoder.secret, and is ignored"
                )

    def _decode(self, text: str) -> str | None:
        try:
            return None if self._encoder is None else self._encoder.decode(text)
        except (CorruptDataError, UsageError):
            return None

    def _remember(self, text: str, value: str | None) -> None:
        while len(self._decoded) >= REMEMBERED_MAX:
            del self._decoded[next(iter(self._decoded))]
        self._decoded[text] = value
