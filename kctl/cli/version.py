"""kctl version: prints what `kctl --version` prints."""

from kctl import __version__
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.failures import DONE
from kctl.cli.output import Output


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "version")(version)


def version() -> int:
    """Show the version.

    \b
    Examples:
      kctl version
    """
    Output().write(f"kctl {__version__}\n")
    return DONE
