"""kctl help: shows what `kctl COMMAND --help` prints."""

from typing import Annotated

import typer

from kctl.cli.declaration.command import local_command


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "help")(help_command)


def help_command(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A command. [default: kctl]")
    ] = None,
) -> int:
    """Show the help of a command. `kctl COMMAND --help` does the same, and --help-json describes
    it for programs.

    \b
    Examples:
      kctl help topic create
    """
    from kctl.cli.app import run

    return run([*(command or ()), "--help"])
