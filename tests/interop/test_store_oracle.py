"""T17: of 45 key and trust stores kctl loads those that Apache Kafka 2.7.2 loads, but for the
differences that are listed here."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from kctl.errors import UsageError
from kctl.runtime.real.tls_context import client_context, read_stores, server_context
from kctl.tls.settings import TlsSettings
from tests.support import apache_kafka
from tests.support.certificates import trustme

STORES = Path(__file__).parent.parent / "tls" / "stores"
ORACLE = Path(__file__).parent.parent / "support" / "java" / "StoreOracle.java"
PEM = serialization.Encoding.PEM
PKCS8, PKCS1 = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL
CLEAR = serialization.NoEncryption()
SECRET = "secret"
ENCRYPTED = serialization.BestAvailableEncryption(SECRET.encode())

# Case -> why kctl, but not Apache Kafka 2.7.2, loads it.
ONLY_KCTL = {
    "encrypted by PBES2": "Java knows PBES1 there",
    "clear, no password": "Kafka 2.7 demands a password of keys in files",
    "clear, a password": "Java decrypts whatever is there",
    "inline PKCS#1": "Java knows PKCS#8 alone",
    "inline EC SEC1": "Java knows PKCS#8 alone",
}
# Case -> why Apache Kafka 2.7.2, but not kctl, loads it.
ONLY_APACHE = {
    "inline, the certificate of another": "every handshake would fail",
    "PKCS12 without a key": "every handshake would fail",
}

pytestmark = pytest.mark.kafka


def by_pbes1(private):
    """The key, encrypted as Java decrypts it."""
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{SECRET}"],
        input=private, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def pem_cases(directory):
    """Settings of PEM stores, by the name of the case."""
    ca = trustme.CA(key_type=trustme.KeyType.RSA)
    leaf = ca.issue_cert("localhost", key_type=trustme.KeyType.RSA)
    other = trustme.CA().issue_cert("localhost")
    chain = "".join(it.bytes().decode() for it in leaf.cert_chain_pems)
    ca_pem = ca.cert_pem.bytes().decode()
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    other_key = serialization.load_pem_private_key(other.private_key_pem.bytes(), None)
    ec_chain = other.cert_chain_pems[0].bytes().decode()

    def encoded(private, form=PKCS8, encryption=CLEAR):
        return private.private_bytes(PEM, form, encryption).decode()

    modern = encoded(key, PKCS8, ENCRYPTED)
    clear, encrypted, traditional = (
        encoded(key),
        by_pbes1(encoded(key)),
        encoded(key, PKCS1),
    )
    cases = {}

    def file(name, text, password=SECRET):
        path = directory / f"{len(cases)}.pem"
        path.write_bytes(text.encode())
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
        cases[name] = settings | ({"ssl.key.password": password} if password else {})

    def inline(name, private, certificates, password=None):
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.key": private}
        settings["ssl.keystore.certificate.chain"] = certificates
        cases[name] = settings | ({"ssl.key.password": password} if password else {})

    def trusted(name, text):
        cases[name] = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}

    file("encrypted PKCS#8", encrypted + chain)
    file("encrypted by PBES2", modern + chain)
    file("encrypted, the wrong password", encrypted + chain, "wrong")
    file("encrypted, no password", encrypted + chain, None)
    file("clear, a password", clear + chain)
    file("clear, no password", clear + chain, None)
    file("certificates first", chain + encrypted)
    file("CRLF", (encrypted + chain).replace("\n", "\r\n"))
    file("text around", f"Bag Attributes\n  x: y\n{encrypted}\nsubject=/CN=x\n{chain}\nthe end\n")
    file("no line end at the end", (encrypted + chain).rstrip("\n"))
    file("blank lines", encrypted + "\n\n\n" + chain + "\n\n")
    file("chain with the CA", encrypted + chain + ca_pem)
    file("no certificate", encrypted)
    file("no key", chain)
    file("empty", "")
    file("no PEM", "hello")
    file("truncated", (encrypted + chain)[:-200])
    inline("inline PKCS#8", clear, chain)
    inline("inline encrypted", encrypted, chain, SECRET)
    inline("inline encrypted, no password", encrypted, chain)
    inline("inline PKCS#1", traditional, chain)
    inline("inline EC PKCS#8", encoded(other_key), ec_chain)
    inline("inline EC SEC1", encoded(other_key, PKCS1), ec_chain)
    inline("inline, the certificate of another", clear, ec_chain)
    inline("inline, on one line", clear.replace("\n", " "), chain.replace("\n", " "))
    trusted("trusted, one", ca_pem)
    trusted("trusted, two and text", f"a CA\n{ca_pem}another\n{ec_chain}")
    trusted("trusted, none", "")
    trusted("trusted, a key", clear)
    return cases


def binary_cases(directory):
    """Settings of JKS and PKCS12 stores, by the name of the case."""
    cases = {}

    def key(name, path, store_type, password=SECRET, key_password=None):
        settings = {"ssl.keystore.type": store_type, "ssl.keystore.location": str(path)}
        settings |= {"ssl.keystore.password": password} if password is not None else {}
        settings |= {"ssl.key.password": key_password} if key_password else {}
        cases[name] = settings

    def trusted(name, path, store_type, password=SECRET):
        settings = {"ssl.truststore.type": store_type, "ssl.truststore.location": str(path)}
        settings |= {"ssl.truststore.password": password} if password is not None else {}
        cases[name] = settings

    key("JKS", STORES / "key.jks", "JKS", SECRET, "other1")
    key("JKS, the wrong password", STORES / "key.jks", "JKS", "wrong1", "other1")
    key("JKS, the wrong key password", STORES / "key.jks", "JKS", SECRET, "wrong1")
    key("JKS, no password", STORES / "key.jks", "JKS", None)
    key("JKS by the name of PKCS12", STORES / "key.jks", "PKCS12", SECRET, "other1")
    key("PKCS12", STORES / "key.p12", "PKCS12")
    key("PKCS12 by the name of JKS", STORES / "key.p12", "JKS")
    key("PKCS12, the wrong password", STORES / "key.p12", "PKCS12", "wrong1")
    key("no file", directory / "none", "JKS")
    trusted("trusted JKS", STORES / "trust.jks", "JKS")
    trusted("trusted JKS, no password", STORES / "trust.jks", "JKS", None)
    trusted("trusted PKCS12", STORES / "trust.p12", "PKCS12")
    trusted("trusted, the wrong password", STORES / "trust.p12", "PKCS12", "wrong1")
    leaf = trustme.CA().issue_cert("localhost")
    private = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    pbes = pkcs12.PBES
    algorithms = {
        "AES": pbes.PBESv2SHA256AndAES256CBC,
        "3DES": pbes.PBESv1SHA1And3KeyTripleDESCBC,
    }
    for name, algorithm in algorithms.items():
        form = serialization.PrivateFormat.PKCS12.encryption_builder()
        path = directory / f"{name}.p12"
        encryption = form.key_cert_algorithm(algorithm).build(SECRET.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"k", private, certificate, None, encryption)
        )
        key(f"PKCS12 of OpenSSL, {name}", path, "PKCS12")
    path = directory / "certificate.p12"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            None, None, certificate, None, serialization.BestAvailableEncryption(SECRET.encode())
        )
    )
    key("PKCS12 without a key", path, "PKCS12")
    return cases


def by_kctl(settings):
    """ "loaded", or why not."""
    context_of = client_context if "ssl.truststore.type" in settings else server_context
    try:
        parsed = TlsSettings.of(settings)
        context_of(parsed, read_stores(parsed))
    except UsageError as error:
        return f"refused: {error}"
    return "loaded"


def test_the_same_stores_are_loaded(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to encrypt a key as Java decrypts it")
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    cases = pem_cases(tmp_path) | binary_cases(tmp_path)
    assert len(cases) == 45

    *options, _ = apache_kafka.java_command("2.7.2", "-", level="ERROR")
    done = subprocess.run(
        [*options, str(ORACLE)],
        input="".join(json.dumps(it) + "\n" for it in cases.values()),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    theirs = dict(zip(cases, done.stdout.splitlines(), strict=True))
    ours = {name: by_kctl(settings) for name, settings in cases.items()}
    differing = {
        name: (ours[name], theirs[name])
        for name in cases
        if (ours[name] == "loaded") != (theirs[name] == "loaded")
    }
    known = ONLY_KCTL.keys() | ONLY_APACHE.keys()
    assert {name: it for name, it in differing.items() if name not in known} == {}
    assert {it for it in differing if ours[it] == "loaded"} == set(ONLY_KCTL)
    assert {it for it in differing if ours[it] != "loaded"} == set(ONLY_APACHE)
