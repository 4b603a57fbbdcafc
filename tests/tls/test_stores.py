"""Key and trust stores: keytool's JKS and PKCS12, PEM of every kind, and errors that name the
cause."""

from pathlib import Path

import pytest

from kctl.errors import UsageError
from kctl.tls.settings import ClientAuth, TlsSettings
from kctl.tls.stores import load_stores

STORES = Path(__file__).with_name("stores")


@pytest.fixture(scope="module")
def pem():
    """(PKCS#8 key, encrypted key, PKCS#1 key, certificate)."""
    trustme = pytest.importorskip("trustme")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    leaf = trustme.CA(key_type=trustme.KeyType.RSA).issue_cert(
        "localhost", key_type=trustme.KeyType.RSA
    )
    raw = leaf.private_key_pem.bytes()
    key = serialization.load_pem_private_key(raw, None)

    def encoded(form, encryption):
        return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()

    pkcs8, pkcs1 = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
    nothing = serialization.NoEncryption()
    secret = serialization.BestAvailableEncryption(b"secret")
    return (
        encoded(pkcs8, nothing),
        encoded(pkcs8, secret),
        encoded(pkcs1, nothing),
        leaf.cert_chain_pems[0].bytes().decode(),
    )


def load(files=None, **settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}

    def read(location):
        if files is not None and location in files:
            return files[location].encode()
        return (STORES / location).read_bytes()

    return load_stores(TlsSettings.of(given), read)


def usable(loaded):
    """Whether OpenSSL takes the key."""
    import ssl

    from kctl.runtime.real.tls_context import _load_key

    _load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), loaded.key)
    return True


def test_a_jks_key_store_of_keytool():
    loaded = load(
        ssl_keystore_location="key.jks",
        ssl_keystore_password="secret",
        ssl_key_password="other1",
    )
    assert usable(loaded)
    assert loaded.key.certificate.subject == "CN=kafka-1,O=Acme"


@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_a_pkcs12_key_store_of_keytool_under_any_name(store_type):
    pytest.importorskip("cryptography")
    loaded = load(
        ssl_keystore_location="key.p12",
        ssl_keystore_password="secret",
        ssl_keystore_type=store_type,
    )
    assert usable(loaded)
    assert loaded.key.certificate.subject == "CN=kafka-1,O=Acme"


@pytest.mark.parametrize(
    ("location", "password"),
    [("trust.jks", "secret"), ("trust.p12", "secret"), ("trust.jks", None)],
)
def test_trust_stores_of_keytool(location, password):
    if location.endswith("p12"):
        pytest.importorskip("cryptography")
    settings = {"ssl_truststore_location": location}
    if password is not None:
        settings["ssl_truststore_password"] = password
    assert load(**settings).trusted.count("BEGIN CERTIFICATE") == 1


@pytest.mark.parametrize("location", ["key.jks", "key.p12"])
def test_a_wrong_password_is_named(location):
    if location.endswith("p12"):
        pytest.importorskip("cryptography")
    with pytest.raises(UsageError, match=f"Cannot read the store {location}: .*password") as raised:
        load(ssl_keystore_location=location, ssl_keystore_password="guess")
    assert "guess" not in str(raised.value)


def test_a_wrong_key_password_is_named():
    with pytest.raises(UsageError, match="password of the key is wrong"):
        load(
            ssl_keystore_location="key.jks",
            ssl_keystore_password="secret",
            ssl_key_password="guess",
        )


def test_a_jceks_store_is_refused_with_the_command_that_converts_it():
    with pytest.raises(UsageError, match="JCEKS") as raised:
        load(ssl_keystore_location="key.jceks", ssl_keystore_password="secret")
    assert "keytool -importkeystore" in raised.value.hint


def test_a_missing_file_is_named():
    with pytest.raises(UsageError, match=r"ssl.keystore.location: cannot read none.jks: No such"):
        load(ssl_keystore_location="none.jks", ssl_keystore_password="secret")


def test_a_damaged_store_is_refused_at_every_length():
    data = (STORES / "key.jks").read_bytes()
    for length in range(4, len(data)):
        with pytest.raises(UsageError, match="Cannot read the store"):
            load_stores(
                TlsSettings.of({"ssl.truststore.location": "cut.jks"}),
                lambda _, length=length: data[:length],
            )


# PEM


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "Bag Attributes\n  friendlyName: x\n" + text + "\ntrailing text",
        # Lines that a properties file continues.
        lambda text: text.replace("\n", ""),
        lambda text: text.replace("\n", " "),
        lambda text: text.replace("\n", "\n   "),
    ],
)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_pem_keys_of_every_kind(pem, spoil, kind):
    # T17
    key, certificate = spoil(pem[kind]), spoil(pem[3])
    settings = {"ssl_key_password": "secret"} if kind == 1 else {}
    inline = load(
        ssl_keystore_type="PEM",
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=certificate,
        **settings,
    )
    assert usable(inline)
    for text in (key + "\n" + certificate, certificate + "\n" + key):
        in_file = load(
            {"broker.pem": text},
            ssl_keystore_type="PEM",
            ssl_keystore_location="broker.pem",
            **settings,
        )
        assert usable(in_file)


def test_an_encrypted_key_needs_its_password(pem):
    with pytest.raises(UsageError, match="the key is encrypted") as raised:
        load({"b.pem": pem[1] + pem[3]}, ssl_keystore_type="PEM", ssl_keystore_location="b.pem")
    assert raised.value.hint == "set ssl.key.password"


def test_a_wrong_password_of_a_pem_key_is_named(pem):
    loaded = load(
        {"b.pem": pem[1] + pem[3]},
        ssl_keystore_type="PEM",
        ssl_keystore_location="b.pem",
        ssl_key_password="guess",
    )
    with pytest.raises(UsageError, match=r"ssl\.key\.password is wrong"):
        usable(loaded)


def test_a_key_of_another_certificate_is_refused(pem):
    other = pytest.importorskip("trustme").CA().issue_cert("localhost")
    loaded = load(
        {"b.pem": pem[0] + other.cert_chain_pems[0].bytes().decode()},
        ssl_keystore_type="PEM",
        ssl_keystore_location="b.pem",
    )
    with pytest.raises(UsageError, match="does not belong to the certificate"):
        usable(loaded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "neither a key nor a certificate"),
        ("no PEM", "neither a key nor a certificate"),
        ("-----BEGIN PRIVATE KEY-----\n%%%\n-----END PRIVATE KEY-----", "not Base64"),
    ],
)
def test_files_that_are_no_pem(content, message):
    with pytest.raises(UsageError, match=message):
        load({"b.pem": content}, ssl_keystore_type="PEM", ssl_keystore_location="b.pem")


def test_a_file_with_a_key_alone_is_refused(pem):
    with pytest.raises(UsageError, match="the key has no certificate"):
        load({"b.pem": pem[0]}, ssl_keystore_type="PEM", ssl_keystore_location="b.pem")


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.keystore.key": "k", "ssl.keystore.type": "PEM"}, "certificate.chain"),
        ({"ssl.keystore.certificate.chain": "c", "ssl.keystore.type": "PEM"}, "ssl.keystore.key"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "type is JKS"),
        (
            {
                "ssl.keystore.key": "k",
                "ssl.keystore.certificate.chain": "c",
                "ssl.keystore.location": "f",
                "ssl.keystore.type": "PEM",
            },
            "both given",
        ),
        (
            {
                "ssl.keystore.location": "f",
                "ssl.keystore.password": "p",
                "ssl.keystore.type": "PEM",
            },
            "PEM has no ssl.keystore.password",
        ),
        ({"ssl.keystore.password": "p"}, "no ssl.keystore.location"),
        ({"ssl.keystore.location": "f"}, "needs ssl.keystore.password"),
        ({"ssl.truststore.certificates": "c"}, "type is JKS"),
        ({"ssl.truststore.password": "p"}, "no ssl.truststore.location"),
        (
            {
                "ssl.truststore.certificates": "c",
                "ssl.truststore.location": "f",
                "ssl.truststore.type": "PEM",
            },
            "both given",
        ),
        ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type=BKS"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not supported"),
        ({"ssl.protocol": "SSLv3"}, "SSLv3 is not supported"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "in common"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_SHA"}, "not safe"),
        ({"ssl.cipher.suites": "SSL_RSA_WITH_3DES_EDE_CBC_SHA"}, "not safe"),
        ({"ssl.cipher.suites": "TLS_DH_anon_WITH_AES_128_CBC_SHA"}, "not safe"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA"}, "not safe"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth=maybe"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "algorithm=ldap"),
    ],
)
def test_what_apache_kafka_refuses_is_refused_and_what_is_not_safe(settings, message):
    # T12: 1.0, 1.1 and broken cipher suites.
    with pytest.raises(UsageError, match=message):
        TlsSettings.of(settings)


def test_a_key_store_without_its_password_may_be_pem():
    with pytest.raises(UsageError) as raised:
        TlsSettings.of({"ssl.keystore.location": "f"})
    assert raised.value.hint == "or set ssl.keystore.type=PEM if the file is PEM"


def test_cipher_suites_select_versions():
    both = TlsSettings.of(
        {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
    )
    assert both.versions == ("TLSv1.2", "TLSv1.3")
    assert both.suites.tls_1_2 == ("ECDHE-RSA-AES128-GCM-SHA256",)
    older = TlsSettings.of({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"})
    assert older.versions == ("TLSv1.2",)
    assert older.suites.tls_1_2 == ("ECDHE-ECDSA-AES256-SHA384",)
    assert TlsSettings.of({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}).versions == ("TLSv1.3",)


def test_every_translated_suite_is_one_that_openssl_knows():
    import ssl

    names = [
        f"TLS_{exchange}_WITH_{cipher}"
        for exchange in ("ECDHE_RSA", "ECDHE_ECDSA")
        for cipher in (
            "AES_128_GCM_SHA256",
            "AES_256_GCM_SHA384",
            "CHACHA20_POLY1305_SHA256",
            "AES_128_CBC_SHA256",
            "AES_256_CBC_SHA384",
            "AES_128_CBC_SHA",
        )
    ]
    suites = TlsSettings.of({"ssl.cipher.suites": ",".join(names)}).suites.tls_1_2
    for suite in suites:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(suite)
        assert suite in [it["name"] for it in context.get_ciphers()]


def test_client_authentication_and_host_names():
    assert TlsSettings.of({}).client_auth is ClientAuth.NONE
    assert TlsSettings.of({"ssl.client.auth": "required"}).client_auth is ClientAuth.REQUIRED
    assert TlsSettings.of({}).verifies_host
    assert not TlsSettings.of({"ssl.endpoint.identification.algorithm": ""}).verifies_host


def test_no_secret_is_shown():
    # T32
    settings = TlsSettings.of(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "planted-key",
            "ssl.keystore.certificate.chain": "planted-chain",
            "ssl.key.password": "planted-password",
        }
    )
    assert "planted" not in repr(settings)
