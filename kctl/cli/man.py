"""kctl man: writes the manual pages."""

from pathlib import Path
from typing import Annotated

from kctl.cli.app import build_app
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.declaration.man_pages import man_pages
from kctl.cli.declaration.spec import commands_of
from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.errors import UsageError


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "man")(man)


def man(
    out: Annotated[
        str, Option("--out", metavar="DIR", help="Where to write them, e.g. share/man/man1.")
    ],
) -> int:
    """Write the manual pages of kctl, one a command, to a directory.

    \b
    Examples:
      kctl man --out ~/.local/share/man/man1
      kctl man --out pages && man -l pages/kctl-topic-create.1
    """
    directory = Path(out).expanduser()
    pages = man_pages(list(commands_of(build_app([], everything=True))))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write to {directory}: {error.strerror}") from None
    Output().say(f"Wrote {len(pages)} pages to {directory}.")
    return DONE
