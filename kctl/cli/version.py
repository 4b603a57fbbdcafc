"""kctl version: prints what `kctl --version` prints, and which build it is."""

from kctl import __version__
from kctl.builds import is_compiled
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.failures import DONE
from kctl.cli.output import Output


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "version")(version)


def version() -> int:
    """Show the version, and whether the request path is compiled.

    \b
    Examples:
      kctl version
    """
    build = "compiled" if is_compiled() else "pure Python"
    Output().write(f"kctl {__version__} ({build})\n")
    return DONE
