"""Reads a password from a file, from standard input, or from the terminal without echo."""

import sys
from getpass import getpass

from kctl.cli.text_files import read_text
from kctl.errors import UsageError

STANDARD_INPUT = "-"


def read_password(name: str, source: str | None, *, is_new: bool) -> str:
    """Return the password of `name` from the first line of the file `source`, `-` being standard
    input; None asks on the terminal, a new password twice. Raise UsageError."""
    if source == STANDARD_INPUT:
        return sys.stdin.readline().rstrip("\r\n")
    if source is not None:
        return read_text(source).partition("\n")[0].rstrip("\r")
    if not sys.stdin.isatty():
        raise UsageError(
            f"No password for {name}: there is no terminal to ask",
            hint="give --password-file FILE, or --password-file - for standard input",
        )
    password = getpass(f"Password of {name}: ")
    if is_new and getpass("Again: ") != password:
        raise UsageError("The passwords differ")
    return password
