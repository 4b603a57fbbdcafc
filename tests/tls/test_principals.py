"""Principals of certificates, byte for byte as Java makes them.

`java_names.txt` has names in DER and what X500Principal.getName() returns for them, in UTF-16;
`java_principals.tsv` has rules, names, and what SslPrincipalMapper of Apache Kafka 2.7.2 returns.
"""

from pathlib import Path

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.tls.certificate import Certificate
from kctl.tls.distinguished_name import java_name
from kctl.tls.principal_rules import PrincipalRules

STORES = Path(__file__).with_name("stores")


def golden_names():
    for line in (STORES / "java_names.txt").read_text().splitlines():
        der, _, text = line.partition(" ")
        yield bytes.fromhex(der), bytes.fromhex(text).decode("utf-16-be")


def test_distinguished_names_are_javas():
    # T15
    pairs = list(golden_names())
    assert len(pairs) >= 40
    assert [java_name(der) for der, _ in pairs] == [text for _, text in pairs]


def test_mapping_rules_are_apache_kafkas():
    # T16
    cases = 0
    for line in (STORES / "java_principals.tsv").read_text().splitlines():
        rules, name, expected = line.split("\t")
        try:
            found = PrincipalRules(rules.replace("\\n", "\n")).name_of(name)
        except UsageError:
            found = "<error>"
        assert ("<none>" if found is None else found) == expected, (rules, name)
        cases += 1
    assert cases >= 60


@pytest.mark.parametrize("construct", [r"\p{L}", r"\Qx\E", "[a&&b]"])
def test_patterns_that_only_java_has_are_refused_by_name(construct):
    with pytest.raises(UsageError, match="is not supported in the pattern"):
        PrincipalRules(f"RULE:{construct}/x/")


def test_names_that_are_no_der_are_refused():
    der, _ = next(pair for pair in golden_names() if len(pair[0]) > 40)
    for length in range(1, len(der)):
        with pytest.raises((CorruptDataError, ValueError)):
            java_name(der[:length])


def test_a_certificates_facts():
    trustme = pytest.importorskip("trustme")
    from kctl.tls.pem import der_of, pem_blocks

    leaf = trustme.CA().issue_cert("localhost", "127.0.0.1", common_name="kafka-1")
    (block,) = pem_blocks(leaf.cert_chain_pems[0].bytes().decode())
    der = der_of(block)
    certificate = Certificate.of(der)
    assert certificate.subject.startswith("CN=kafka-1,")
    assert certificate.not_before < certificate.not_after
    assert len(certificate.names) == 2
    for length in range(1, len(der) // 2):
        with pytest.raises(CorruptDataError):
            Certificate.of(der[:length])
