"""Resolves the secrets of a profile: references to files, commands, variables and the keyring.

`password-file`, `password-command`, `password-env` and `password-keyring` (SERVICE/USER) stand for
`sasl.password`; any other key that ends with `password`, such as `ssl.key.password`, has the same
forms. A profile that contains
a secret itself is accepted only from a file that no other user can read.
"""

from collections.abc import Mapping
from pathlib import Path

from kctl.cli.text_files import read_text
from kctl.errors import UsageError
from kctl.lines import split_lines

SASL_PASSWORD = "sasl.password"
_FORMS = ("file", "command", "env", "keyring")
HIDDEN = "(hidden)"
# How the names of settings with passwords or private keys end, Java's and librdkafka's; a broker's
# may have a listener before that.
_SECRETS = ("password", ".secret", ".token", "sasl.jaas.config", "ssl.keystore.key", "ssl.key.pem")
# Bits of the mode with which the group or others could read or write the file.
_SHARED_BITS = 0o077


def is_secret(key: str) -> bool:
    """Return whether the value of the setting `key` must not be shown."""
    return key.endswith(_SECRETS)


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without their secrets; references are no secrets."""
    return {key: HIDDEN if is_secret(key) else value for key, value in properties.items()}


def shown_value(key: str, value: str | None) -> str | None:
    """Return the value of one setting, unless it is a secret."""
    return HIDDEN if value is not None and is_secret(key) else value


def reference(key: str) -> tuple[str, str] | None:
    """Return the setting that `key` refers to and the form of the reference, or None.

    >>> reference("password-file"), reference("ssl.key.password-env"), reference("client.id")
    (('sasl.password', 'file'), ('ssl.key.password', 'env'), None)
    """
    name, dash, form = key.replace("_", "-").rpartition("-")
    if not dash or form not in _FORMS or not name.endswith("password"):
        return None
    return (SASL_PASSWORD if name == "password" else name), form


def check_file_is_private(path: Path, properties: Mapping[str, str]) -> None:
    """Raise UsageError if other users can read `path`, a file with secrets."""
    secret = next(filter(is_secret, properties), None)
    if secret is not None and path.stat().st_mode & _SHARED_BITS:
        raise UsageError(
            f"{path} contains {secret} and is open to other users", hint=f"chmod 600 {path}"
        )


def resolve_secrets(
    properties: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings with the values that references stand for; raise UsageError, without
    naming any secret, for one that cannot be read."""
    resolved = {}
    for key, value in properties.items():
        found = reference(key)
        if found is None:
            resolved[key] = value
        else:
            resolved[found[0]] = _read(key, found[1], value, environment)
    return resolved


def _read(key: str, form: str, value: str, environment: Mapping[str, str]) -> str:
    if form == "env":
        if value not in environment:
            raise UsageError(
                f"{key}: the variable {value} is not set", hint=f"export {value}=... first"
            )
        return environment[value]
    if form == "keyring":
        from kctl.runtime.real.os_keyring import read_secret

        return read_secret(*keyring_entry(value))
    if form == "file":
        text = read_text(str(Path(value).expanduser()))
    else:
        from kctl.runtime.real.command_output import command_output

        text = command_output(value)
    lines = split_lines(text)
    if not lines or not lines[0]:
        raise UsageError(f"{key}: {value} returned no password", hint="it is the first line")
    return lines[0]


def keyring_entry(text: str) -> tuple[str, str]:
    """Return the service and the user of `SERVICE/USER`; raise UsageError.

    >>> keyring_entry("kctl/prod"), keyring_entry("https://a/b/me")
    (('kctl', 'prod'), ('https://a/b', 'me'))
    """
    service, _, user = text.rpartition("/")
    if not service or not user:
        raise UsageError(f"{text} is not an entry of the keyring", hint="write SERVICE/USER")
    return service, user
