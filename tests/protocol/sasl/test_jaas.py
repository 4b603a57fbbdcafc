"""JAAS texts: what is read of them, and what is refused without showing a secret."""

import pytest

from kctl.errors import UsageError
from kctl.protocol.sasl.jaas import (
    KERBEROS_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    parse_jaas_config,
)


def test_broker_configuration_has_users():
    config = parse_jaas_config(
        f'{PLAIN_MODULE} required username="admin" password="a b;c" '
        "user_admin='x' /* a\ncomment */ user_alice=plain // to the end\n;"
    )
    assert config.module == PLAIN_MODULE
    assert config.options["username"] == "admin"
    assert config.options["password"] == "a b;c"
    assert config.users == {"admin": "x", "alice": "plain"}


def test_escapes_in_quotes():
    config = parse_jaas_config(rf'{SCRAM_MODULE} REQUIRED password="a\"b\\c";')
    assert config.options == {"password": 'a"b\\c'}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "MODULE required"),
        (f"{PLAIN_MODULE} required", "MODULE required"),
        (f"{PLAIN_MODULE} maybe a=secret;", "must be followed"),
        (f"{PLAIN_MODULE} required a;", "not KEY=VALUE"),
        (f"{PLAIN_MODULE} required a=;", "not KEY=VALUE"),
        (f"{PLAIN_MODULE} required a=secret; {SCRAM_MODULE} required b=c;", "more than one"),
        (f'{PLAIN_MODULE} required a="secret;', "not closed"),
        ("com.sun.jndi.JndiLoginModule required a=secret;", "not a login module"),
        (f"{KERBEROS_MODULE} required useKeyTab=true;", "GSSAPI is not supported"),
    ],
)
def test_what_is_not_one_module_is_refused(text, reason):
    with pytest.raises(UsageError, match=reason) as raised:
        parse_jaas_config(text)
    assert "secret" not in str(raised.value) + str(raised.value.hint)


def test_repr_shows_no_secret():
    config = parse_jaas_config(f'{PLAIN_MODULE} required password="hidden";')
    assert "hidden" not in repr(config)
