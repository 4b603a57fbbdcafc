"""kctl completion: prints the completion script of a shell; `completions/` holds the same."""

from enum import StrEnum
from typing import Annotated

import typer

from kctl.cli.command import local_command
from kctl.cli.failures import DONE
from kctl.cli.output import Output


class Shell(StrEnum):
    """Whose script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Where each shell's script is kept in the repository.
FILE_NAMES = {Shell.BASH: "kctl.bash", Shell.ZSH: "_kctl", Shell.FISH: "kctl.fish"}


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "completion")(completion)


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> int:
    """Print the completion script of a shell. Names of topics, groups and profiles are completed
    too, if the cluster answers within half a second.

    \b
    Examples:
      kctl completion bash > ~/.local/share/bash-completion/completions/kctl
      kctl completion zsh > "${fpath[1]}/_kctl"
      kctl completion fish > ~/.config/fish/completions/kctl.fish
    """
    Output().write(script(shell))
    return DONE


def script(shell: Shell) -> str:
    """The script for `shell`, for the commands as they are."""
    from kctl.cli import completion_scripts
    from kctl.cli.app import COMMANDS, build_app
    from kctl.cli.spec import commands_of

    specs = list(commands_of(build_app([], everything=True)))
    helps = {row.name: row.help for row in COMMANDS}
    make = {
        Shell.BASH: completion_scripts.bash,
        Shell.ZSH: completion_scripts.zsh,
        Shell.FISH: completion_scripts.fish,
    }[shell]
    return make(specs, helps)
