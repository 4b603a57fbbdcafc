"""Passwords among a broker's overrides: Apache Kafka's encoding, and what is kept off the loop."""

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.broker.config.stored_passwords import PASSWORDS_MAX, StoredPasswords
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.password_encoder import IV_BYTES, SALT_BYTES, EncoderSettings, PasswordEncoder
from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.error_codes import ErrorCode
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.znodes import BROKER_CONFIGS
from tests.support.broker_cluster import running_brokers
from tests.support.real_loop import real_loop

pytest.importorskip("cryptography")

SECRET = "encoder-secret"
NAME = "listener.name.secure.ssl.keystore.password"
# What kafka.utils.PasswordEncoder of 2.7.2 made of these passwords with SECRET.
CBC = (
    "encryptedPassword:9lXNReKy6IufPn50egnHhA==,keyLength:128,cipherAlgorithm:AES/CBC/PKCS5Pa"
    "dding,initializationVector:h0kMfb9ipJTXgpn0FbrLAQ==,keyFactoryAlgorithm:PBKDF2WithHmacSH"
    "A512,passwordLength:12,salt:GXL/U/TcixaB2HlQlb3tYvYJkSZcJhh4utDQlmYAf+X609s2MofRA+QySMr2"
    "ymeESg2Mqkt9Tdt8Ut1D2h3fJWtvI50t8uazxCEVRb7QUzyZ2oeViTQXjVJd8yOqayTLCxuHimFSk9nybmPaIIwL"
    "UoToqAkAV0FWAUuiQTe0ZmojIn4Z77A09KxiENJLUt8ZFp2UKi262pvik6QEVWmxR+32ejlYaJzT1m0daIocI5O+"
    "oJ72vkw4d0767OXBGD5xqEc3upxVub3+OEOeRJPn6AVjJTdiLXXklLKZDGtpBPxLh1xXKG9sHCpCqdyN+ZkgyyV2"
    "OLOEaX5exXLnVSq1Kw==,iterations:4096"
)
CBC_UNICODE = (
    "encryptedPassword:3HFBtl3uWaOZ1fcPJyGO1g==,keyLength:128,cipherAlgorithm:AES/CBC/PKCS5Pa"
    "dding,initializationVector:N7gdyE8wFa4TENmJ94GLgg==,keyFactoryAlgorithm:PBKDF2WithHmacSH"
    "A512,passwordLength:11,salt:kTndxN5zoEuVqXqrF4zaPNP1E5xIZe/hWsd+vf7YzeX+yWPQRAG66O0+Y0yH"
    "pjcP8yUb44xEH4v3hIvZzT5b1uZgmsqzc6oId17oTl4KIBxncH+iRb43c+VnKHhZTadCKeuj87lUDtCU0TSbhfrh"
    "tEwyhS/O370pqqI3vcQBzcG/AMNYVVxI1OM6eqSmrSiay+Rbww49slHzmRCTC+NeuA33WU4UxUz5URrNmQ/hElTY"
    "VaMvBZZ8y9uH1/xlS/+q4NR1dofojLwOdYLFkFUEfRdD8PajzurYnByOFo1pllt7RVgqeVrkAUJ5GLrh9IlIYGlh"
    "BPbIvAYcYwSRnbtG7A==,iterations:4096"
)
GCM = (
    "encryptedPassword:Ue/qnTwzqmIITk4j9uJyqPFn9tKYf7lcO99XJw==,keyLength:256,cipherAlgorithm"
    ":AES/GCM/NoPadding,initializationVector:5bNECYPJYSZXTDFX,keyFactoryAlgorithm:PBKDF2WithH"
    "macSHA1,passwordLength:12,authenticationTagLength:128,salt:B3kAR0pxOBAzrUgMgF6jD7fX0RMQb"
    "82ewz/qGGvcxUA7vZ8W/eXylD3+30yjB5j0Cz/C5Ed6Yi1R1ecEOL6yFA3lzpAgWJdrU+HbnLToe6gZ9LbL2T5bH"
    "rcL6GSP+cZk3Dk79BTzYBkP52gM8NHp6gq/1We3jNCweffCJehz+2Inu8CV0uMTnFdwJ4lMwl3rOXZyPYxNvfVbx"
    "7Dp3x9nxUM+qo6EQwmI2KfH5MTrwR8H++7C7fQS859cJTgHfQAiMEo5XUbDFia9JVeyDY1up/P0ePy6w7MXY4ck9"
    "S+ZCUAzLQ1Qf32KkEeV8ch8cLKUtNWvvYSwSXc22c1DseMvRg==,iterations:4096"
)
GCM_SETTINGS = EncoderSettings("PBKDF2WithHmacSHA1", "AES/GCM/NoPadding", 256, 4096)
ANY = (bytes(SALT_BYTES), bytes(range(IV_BYTES)))


@pytest.mark.parametrize(
    ("text", "password"),
    [(CBC, "store-secret"), (CBC_UNICODE, "pässwörd 🔑"), (GCM, "store-secret")],
)
def test_passwords_of_apache_kafka_are_decoded(text, password):
    assert PasswordEncoder(SECRET, EncoderSettings()).decode(text) == password


@pytest.mark.parametrize("settings", [EncoderSettings(), GCM_SETTINGS])
@pytest.mark.parametrize("password", ["", "x", "x" * 16, "pässwörd 🔑"])
def test_what_is_encoded_can_be_decoded_with_the_same_secret_only(settings, password):
    text = PasswordEncoder(SECRET, settings).encode(password, *ANY)
    assert PasswordEncoder(SECRET, EncoderSettings()).decode(text) == password
    with pytest.raises(CorruptDataError):
        PasswordEncoder("another", EncoderSettings()).decode(text)


@pytest.mark.parametrize(
    "text",
    ["", "secret", CBC[:200], CBC.replace("keyLength:128", "keyLength:x"), CBC + "A", GCM + "A"],
)
def test_other_texts_are_no_passwords(text):
    with pytest.raises(CorruptDataError):
        PasswordEncoder(SECRET, EncoderSettings()).decode(text)


@pytest.mark.parametrize(
    "settings",
    [
        EncoderSettings(cipher="DES/CBC/PKCS5Padding"),
        EncoderSettings(key_factory="DES"),
        EncoderSettings(key_bits=64),
        EncoderSettings(iterations=10_000_000),
    ],
)
def test_algorithms_that_are_not_supported_are_refused_by_name(settings):
    with pytest.raises(UsageError, match=r"password\.encoder\."):
        PasswordEncoder(SECRET, settings)


class World:
    """A broker's passwords, and the store that has them."""

    def __init__(self, loop, **settings):
        self.loop = loop
        self.runtime = loop.runtime
        self.store = ClusterStore(
            EmbeddedStore(loop.runtime, ZnodeDatabase.in_memory(loop.runtime))
        )
        loop.run(self.store.ensure_persistent_paths())
        self.start(**settings)

    def start(self, **settings):
        given = {f"password.encoder.{name}": text for name, text in settings.items()}
        self.passwords = StoredPasswords(self.runtime, BrokerConfig(given), 1)

    def alter(self, **overrides):
        self.loop.run(self.store.change_entity_config(BROKER_CONFIGS, "1", overrides))

    def stored(self):
        return self.loop.run(self.store.get_entity_config(BROKER_CONFIGS, "1"))


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


def test_overrides_are_decoded_when_they_are_read(loop):
    world = World(loop, secret=SECRET)
    world.alter(**{NAME: CBC, "max.connections": "9"})
    configs = DynamicConfigs(world.runtime, world.store, world.passwords)
    loop.run(configs.start())
    assert configs.overrides(BROKER_CONFIGS, "1") == {
        NAME: "store-secret",
        "max.connections": "9",
    }


@pytest.mark.parametrize("settings", [{"secret": "another"}, {}])
def test_passwords_that_cannot_be_decoded_are_left_out(loop, settings):
    world = World(loop, **settings)
    assert loop.run(world.passwords.decoded({NAME: CBC, "max.connections": "9"})) == {
        "max.connections": "9"
    }
    (warning,) = loop.trace.warnings
    assert "password.encoder.secret" in warning
    assert CBC not in warning


def test_only_passwords_are_encoded(loop):
    world = World(loop, secret=SECRET)
    encoded = loop.run(world.passwords.encoded({NAME: "store-secret", "max.connections": "9"}))
    assert encoded.keys() == {NAME}
    assert "store-secret" not in encoded[NAME]
    assert world.passwords.decoded_now(encoded) == {NAME: "store-secret"}
    assert StoredPasswords(
        world.runtime, BrokerConfig({"password.encoder.secret": SECRET}), 1
    ).decoded_now(encoded) == {NAME: "store-secret"}


def test_a_password_without_a_secret_is_refused(loop):
    world = World(loop)
    with pytest.raises(UsageError, match="Password encoder secret not configured"):
        loop.run(world.passwords.encoded({NAME: "x"}))
    assert loop.run(world.passwords.encoded({"max.connections": "9"})) == {}


def test_a_broker_has_a_limited_number_of_passwords(tmp_path):
    """Each takes milliseconds to decode: many would hold the broker up at each change."""
    with running_brokers(tmp_path) as cluster:
        cluster.start(1, password_encoder_secret=SECRET)
        admin, broker = cluster.admin(), ConfigResource(ResourceType.BROKER, "1")

        def refusal(listeners):
            passwords = {f"listener.name.l{it}.ssl.key.password": "x" for it in listeners}
            changes = {broker: ConfigChanges(passwords)}
            (result,) = cluster.run(admin.configs.alter(changes))
            return result.error

        assert refusal(range(PASSWORDS_MAX)) is None
        error = refusal([PASSWORDS_MAX])
        assert error.code is ErrorCode.INVALID_REQUEST
        assert f"A broker may have {PASSWORDS_MAX} passwords" in str(error)


def test_a_changed_secret_encodes_the_stored_passwords_again(loop):
    world = World(loop, **{"secret": "new", "old.secret": SECRET})
    world.alter(**{NAME: CBC, "max.connections": "9"})
    loop.run(world.passwords.encode_again(world.store))
    after = world.stored()
    assert after[NAME] != CBC
    assert after["max.connections"] == "9"
    world.start(secret="new")
    assert loop.run(world.passwords.decoded(after))[NAME] == "store-secret"
    # What is encoded with the new secret already stays as it is.
    world.start(**{"secret": "new", "old.secret": SECRET})
    loop.run(world.passwords.encode_again(world.store))
    assert world.stored() == after
