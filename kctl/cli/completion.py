"""kctl completion: prints or installs the completion script of a shell.

`completions/` has copies of the scripts.
"""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from kctl.cli.app import COMMANDS, build_app
from kctl.cli.declaration import completion_scripts
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import Argument, CommandGroup
from kctl.cli.declaration.spec import commands_of
from kctl.cli.failures import DONE
from kctl.cli.output import Output
from kctl.errors import UsageError


class Shell(StrEnum):
    """A shell with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class Action(StrEnum):
    """The argument of `kctl completion`: a shell, whose script it prints, or `install`."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    INSTALL = "install"


# The file of each shell's script in `completions/`.
FILE_NAMES = {Shell.BASH: "kctl.bash", Shell.ZSH: "_kctl", Shell.FISH: "kctl.fish"}


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    local_command(app, "completion")(completion)


def completion(
    action: Annotated[
        Action, Argument(metavar="SHELL|install", help="bash, zsh, fish or install.")
    ],
    shell: Annotated[
        Shell | None,
        Argument(metavar="SHELL", help="With install. [default: the shell in $SHELL]"),
    ] = None,
) -> int:
    """Print the completion script of a shell, or install it for the current user. The script also
    completes the names of topics, groups, brokers and profiles if the cluster responds within half
    a second.

    install writes one file to the directory where the shell looks for scripts, and prints what is
    left to do. It changes no other file.

    \b
    Examples:
      kctl completion install
      kctl completion install zsh
      kctl completion bash > ~/.local/share/bash-completion/completions/kctl
    """
    output = Output()
    if action is not Action.INSTALL:
        if shell is not None:
            raise UsageError(f"Too many arguments: {shell}", hint=f"kctl completion {action}")
        output.write(script(Shell(action.value)))
        return DONE
    chosen = shell or _own_shell(os.environ)
    path = script_path(chosen, os.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(chosen), encoding="utf-8")
    output.say(f"Wrote {path}. {_NEXT_STEPS[chosen].format(directory=path.parent, path=path)}")
    return DONE


_NEXT_STEPS = {
    Shell.BASH: "New shells load it if the package bash-completion is installed; otherwise add "
    "this line to ~/.bashrc: source {path}",
    Shell.ZSH: "If new shells do not complete kctl, add this line to ~/.zshrc, before compinit: "
    "fpath=({directory} $fpath)",
    Shell.FISH: "New shells load it.",
}


def script_path(shell: Shell, environment: Mapping[str, str]) -> Path:
    """Return the file from which `shell` loads the current user's script for kctl."""
    home = Path(environment.get("HOME", "~")).expanduser()
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    if shell is Shell.BASH:
        own = environment.get("BASH_COMPLETION_USER_DIR")
        directory = Path(own) if own else data / "bash-completion"
        return directory / "completions" / "kctl"
    if shell is Shell.ZSH:
        return data / "zsh" / "site-functions" / FILE_NAMES[shell]
    return config / "fish" / "completions" / FILE_NAMES[shell]


def _own_shell(environment: Mapping[str, str]) -> Shell:
    name = Path(environment.get("SHELL", "")).name
    if name not in list(Shell):
        raise UsageError(
            f"No completion for the shell {name or 'in $SHELL'}",
            hint="name one: kctl completion install bash, zsh or fish",
        )
    return Shell(name)


def script(shell: Shell) -> str:
    """Return the completion script for `shell`."""
    specs = list(commands_of(build_app([], everything=True)))
    helps = {row.name: row.help for row in COMMANDS}
    make = {
        Shell.BASH: completion_scripts.bash,
        Shell.ZSH: completion_scripts.zsh,
        Shell.FISH: completion_scripts.fish,
    }[shell]
    return make(specs, helps)
