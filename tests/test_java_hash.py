"""Java's hash of a string; the numbers are those of Java 17."""

import pytest

from kctl.java_hash import abs_java_hash, java_hash, unsigned_java_hash

HASHES = [
    ("", 0),
    ("a", 97),
    ("g-coop", -1301546765),
    ("tx-group", 815736310),
    ("billing", -109829509),
    ("ключ", 33309882),
    ("𝄞", 1772394),
    ("polygenelubricants", -(2**31)),
]


@pytest.mark.parametrize(("text", "hash_code"), HASHES)
def test_strings_hash_as_in_java(text, hash_code):
    assert java_hash(text) == hash_code
    assert unsigned_java_hash(text) == hash_code % 2**32


def test_the_absolute_value_of_the_smallest_hash_is_0_as_in_kafka():
    assert [abs_java_hash(text) for text, _ in HASHES[-4:]] == [109829509, 33309882, 1772394, 0]
