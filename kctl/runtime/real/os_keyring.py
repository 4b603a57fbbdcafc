"""The keyring of the operating system: secrets by service and user, by the library `keyring`.

The library chooses the keyring: Keychain, Secret Service, the Credential Locker of Windows, or that
of PYTHON_KEYRING_BACKEND.
"""

import importlib
from typing import Any

from kctl.errors import UsageError

_WAY_OUT = "keep the password in a file that only you can read, or use --password-command"


def read_secret(service: str, user: str) -> str:
    """Return a secret; raise UsageError if there is none or no keyring."""
    secret = _call("get_password", service, user)
    if secret is None:
        raise UsageError(f"The keyring has no password {service}/{user}", hint="store it first")
    return str(secret)


def store_secret(service: str, user: str, secret: str) -> None:
    """Store a secret in place of a former one; raise UsageError if that is not possible."""
    _call("set_password", service, user, secret)


def delete_secret(service: str, user: str) -> None:
    """Delete a secret; raise UsageError if there is none or no keyring."""
    _call("delete_password", service, user)


def check_keyring() -> None:
    """Raise UsageError if this machine has no keyring."""
    keyring = _library()
    # The library's own reply is an object whose every call fails.
    if keyring.get_keyring().priority <= 0:
        raise _no_keyring()


def _call(function: str, *arguments: str) -> Any:
    keyring = _library()
    try:
        return getattr(keyring, function)(*arguments)
    except keyring.errors.NoKeyringError:
        raise _no_keyring() from None
    except keyring.errors.KeyringError as error:
        # Only the kind: the text of a backend could quote what it was given.
        raise UsageError(f"The keyring failed: {type(error).__name__}", hint=_WAY_OUT) from None


def _library() -> Any:
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise UsageError(
            "The keyring of the operating system needs the package keyring",
            hint=f"pip install 'kctl-kafka[keyring]', or {_WAY_OUT}",
        ) from None


def _no_keyring() -> UsageError:
    return UsageError("This machine has no keyring that kctl can use", hint=_WAY_OUT)
