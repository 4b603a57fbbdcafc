"""The classes that commands are declared with: groups of commands, options and arguments.

A command is a function. The `Annotated` of each parameter holds an Option or an Argument:

    app = CommandGroup()

    @local_command(app, "head")
    def head(
        path: Annotated[str, Argument("FILE", help="The file to read.")],
        count: Annotated[int, Option("--lines", "-n", metavar="N", help="How many lines.")] = 10,
    ) -> int: ...

The parameter's type (str, int, bool, an Enum, or a list of one of these) is that of the value; a
bool is a flag. The parameter's default makes it optional.
"""

from collections.abc import Callable
from dataclasses import field

from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, init=False)
class Option:
    """An option with its names, `--long` first; without names, `--` and the parameter's name."""

    names: tuple[str, ...]
    metavar: str
    help: str

    def __init__(self, *names: str, metavar: str = "", help: str = "") -> None:  # noqa: A002
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "metavar", metavar)
        object.__setattr__(self, "help", help)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A positional argument; a list takes all that are left."""

    metavar: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, its help and the function that it calls."""

    name: str
    help: str
    callback: Callable[..., None]


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands and groups of commands by their names, in the order of declaration."""

    help: str = ""
    commands: dict[str, Command] = field(default_factory=dict)
    groups: dict[str, "CommandGroup"] = field(default_factory=dict)

    def add_command(self, name: str, text: str, callback: Callable[..., None]) -> None:
        """Add the command `name` with the help `text`; `callback` gets a keyword per parameter."""
        self.commands[name] = Command(name, text, callback)

    def add_group(self, name: str, group: "CommandGroup") -> None:
        """Add the commands of `group` under `name`."""
        self.groups[name] = group


class Exit(Exception):
    """Raised to end the command with this exit status."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
