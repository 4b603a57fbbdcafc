"""kctl profile login: tries a password on the cluster of a profile, and stores where it is.

The profile keeps a reference, never the password. The order is: compute the text of the file, read
the password, log in to the cluster, store the secret, write the file. Each step can fail without
changing anything, except the last: a secret without a reference is in the keyring then, and the
next login replaces it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from kctl.cli.connect import ConnectOptions, flatten_profile, settings_of
from kctl.cli.output import Output
from kctl.cli.passwords import STANDARD_INPUT, read_password
from kctl.cli.profile import editing, secrets
from kctl.cli.profile.guard import take_guard
from kctl.cli.profile.profile_file import ProfileFile, write_private
from kctl.cli.session import Session
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import SecurityProtocol
from kctl.protocol.sasl.mechanism import PLAIN
from kctl.protocol.sasl.scram import BY_NAME

# The service of the passwords that kctl stores in the keyring; the user is the profile.
SERVICE = "kctl"


@dataclass(frozen=True, slots=True)
class Login:
    """What the command line asks for."""

    profile: str
    username: str | None
    # A setting of a profile that refers to the password, such as `password-command`; None asks for
    # the password.
    reference: tuple[str, str] | None
    # The new file that keeps the password; None keeps it in the keyring.
    save_in: str | None


def log_in(login: Login, output: Output) -> str:
    """Try the password, store the reference in the profile, and return where the password is.

    Raise UsageError if the profile does not log in by password or the password cannot be stored,
    and AuthenticationError or UnreachableError if the cluster does not accept it; then nothing is
    stored.
    """
    found = ProfileFile.read()
    given = flatten_profile(found.profile(login.profile))
    settings = {it: value for it, value in given.items() if not _is_password(it)}
    if login.username is not None:
        settings["sasl.username"] = login.username
    user = _check_takes_password(login.profile, settings)
    is_asked = login.reference is None or login.reference[1] == STANDARD_INPUT
    key, value = _stored_at(login, given) if is_asked else _absolute(login)
    changes = {key: value}
    if login.username is not None:
        changes["sasl.username"] = login.username
    gone = {it for it in given if _is_password(it)} | changes.keys()
    text = editing.with_settings(found.text, login.profile, gone, changes)

    if is_asked:
        source = STANDARD_INPUT if login.reference else None
        password = read_password(user, source, is_new=False)
    else:
        password = secrets.resolve_secrets({key: value}, os.environ)[secrets.SASL_PASSWORD]
    if not password:
        raise UsageError(f"The password of {user} is empty")
    _try(login.profile, {**settings, secrets.SASL_PASSWORD: password}, output)
    if is_asked:
        _store(key, value, password)
    found.write(text)
    return f"{key} = {value}"


def forget(profile: str, settings: Mapping[str, str]) -> None:
    """Delete the password of a profile from the keyring if `login` stored it there; raise
    UsageError."""
    if settings.get("password-keyring") == f"{SERVICE}/{profile}":
        from kctl.runtime.real.os_keyring import delete_secret

        delete_secret(SERVICE, profile)


def _is_password(key: str) -> bool:
    found = secrets.reference(key)
    return key == secrets.SASL_PASSWORD or (found is not None and found[0] == secrets.SASL_PASSWORD)


def _check_takes_password(profile: str, settings: Mapping[str, str]) -> str:
    """Return the name of the user; raise UsageError unless the settings log in by password."""
    protocol = settings.get("security.protocol", SecurityProtocol.PLAINTEXT).upper()
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")).upper()
    if not protocol.startswith("SASL_"):
        raise UsageError(
            f"The profile {profile} has security.protocol={protocol}, which has no login",
            hint=f"kctl profile add {profile} --replace -X security.protocol=SASL_SSL -X"
            " sasl.mechanism=SCRAM-SHA-512 -b ...",
        )
    if "sasl.jaas.config" in settings:
        raise UsageError(
            f"The profile {profile} logs in by sasl.jaas.config",
            hint="remove that setting, and give sasl.mechanism and --username",
        )
    if mechanism not in (PLAIN, *BY_NAME):
        raise UsageError(
            f"The profile {profile} has sasl.mechanism={mechanism or '(none)'}, which takes no"
            " password",
            hint=f"set one of {', '.join((PLAIN, *BY_NAME))}",
        )
    if not settings.get("sasl.username"):
        raise UsageError(f"The profile {profile} has no user name", hint="give --username NAME")
    return settings["sasl.username"]


def _stored_at(login: Login, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the reference to the password that will be stored; raise UsageError if it cannot."""
    if login.save_in is None:
        from kctl.runtime.real.os_keyring import check_keyring

        check_keyring()
        return "password-keyring", f"{SERVICE}/{login.profile}"
    path = str(Path(login.save_in).expanduser().absolute())
    if Path(path).exists() and given.get("password-file") != path:
        raise UsageError(
            f"{path} exists, and is not the password of {login.profile}", hint="name another file"
        )
    return "password-file", path


def _absolute(login: Login) -> tuple[str, str]:
    """Return the reference of the command line, valid in any directory; raise UsageError."""
    assert login.reference is not None
    if login.save_in is not None:
        raise UsageError("--save-in stores a password that is asked for, not a reference")
    key, value = login.reference
    return key, str(Path(value).expanduser().absolute()) if key == "password-file" else value


def _try(profile: str, settings: Mapping[str, str], output: Output) -> None:
    """Connect to the cluster; raise what any command would raise."""
    properties = secrets.resolve_secrets(settings, os.environ)
    guard = take_guard(properties, profile, None)
    session = Session(ConnectOptions(), output, settings=settings_of(properties, guard))
    session.run(lambda admin: admin.cluster.describe())


def _store(key: str, value: str, password: str) -> None:
    if key == "password-file":
        write_private(Path(value), f"{password}\n")
        return
    from kctl.runtime.real.os_keyring import store_secret

    store_secret(*secrets.keyring_entry(value), password)
