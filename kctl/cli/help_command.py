"""kctl help: shows what `kctl COMMAND --help` prints."""

from typing import Annotated

from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import Argument, CommandGroup


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "help")(help_command)


def help_command(
    command: Annotated[
        list[str] | None, Argument(metavar="COMMAND", help="A command. [default: kctl]")
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
