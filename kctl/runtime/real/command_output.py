"""Runs a command that the user names, such as a password manager, and returns what it prints."""

import subprocess

from kctl.errors import UsageError

TIMEOUT_S = 60


def command_output(command: str) -> str:
    """Return the standard output of `command`, run by the shell; its standard error and input stay
    those of this process. Raise UsageError if it fails or takes more than a minute."""
    try:
        finished = subprocess.run(
            command, shell=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"The command did not end within {TIMEOUT_S} s: {command}") from None
    except UnicodeDecodeError:
        raise UsageError(f"The command does not print text: {command}") from None
    if finished.returncode:
        raise UsageError(f"The command failed with status {finished.returncode}: {command}")
    return finished.stdout
