"""Reads the declaration of a command into plain values: its options, arguments and help."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.lazy_dataclass import dataclass

HELP_OPTIONS = ("--help", "-h")
HELP_JSON_OPTION = "--help-json"
# Between two sentences of a help text; "e.g. x" and "2.7" do not end one.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """An option or an argument of a command."""

    # The name of the function's parameter.
    name: str
    # `--long` and `-s`; empty for an argument.
    options: tuple[str, ...]
    # str, int, bool or an Enum.
    value_type: type
    is_list: bool
    is_required: bool
    default: Any
    metavar: str
    help: str

    @property
    def is_flag(self) -> bool:
        """Return whether the option takes no value."""
        return self.value_type is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the valid values of an Enum; empty for other types."""
        if issubclass(self.value_type, Enum):
            return tuple(str(member.value) for member in self.value_type)
        return ()


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: its path after `kctl`, its help and its parameters."""

    path: tuple[str, ...]
    help: str
    callback: Callable[..., None]
    parameters: tuple[ParameterSpec, ...] = field(default=())

    @property
    def options(self) -> list[ParameterSpec]:
        """Return the parameters that begin with a dash."""
        return [parameter for parameter in self.parameters if parameter.options]

    @property
    def arguments(self) -> list[ParameterSpec]:
        """Return the positional parameters."""
        return [parameter for parameter in self.parameters if not parameter.options]


def summary(text: str) -> str:
    """Return the first sentence of a help text, on one line, with its full stop.

    >>> summary("List topics, and the\\nsizes of them. Others are left out.")
    'List topics, and the sizes of them.'
    """
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph, maxsplit=1)[0]


def commands_of(app: CommandGroup, path: tuple[str, ...] = ()) -> Iterator[CommandSpec]:
    """Yield every command of `app` and of its groups, in the order of declaration."""
    for command in app.commands.values():
        yield command_spec((*path, command.name), command.help, command.callback)
    for name, group in app.groups.items():
        yield from commands_of(group, (*path, name))


def command_spec(path: tuple[str, ...], text: str, callback: Callable[..., None]) -> CommandSpec:
    """Return the spec of the command that `callback` declares."""
    parameters = inspect.signature(callback).parameters.values()
    return CommandSpec(path, text, callback, tuple(map(_parameter_spec, parameters)))


def _parameter_spec(parameter: inspect.Parameter) -> ParameterSpec:
    if get_origin(parameter.annotation) is not Annotated:
        raise TypeError(f"parameter {parameter.name} is not declared with Annotated")
    annotation, info = get_args(parameter.annotation)[:2]
    if not isinstance(info, Option | Argument):
        raise TypeError(f"parameter {parameter.name} is neither an Option nor an Argument")
    value_type, is_list = _value_type(annotation)
    is_required = parameter.default is inspect.Parameter.empty
    return ParameterSpec(
        parameter.name,
        option_names(parameter.name, info) if isinstance(info, Option) else (),
        value_type,
        is_list,
        is_required,
        None if is_required else parameter.default,
        info.metavar,
        info.help,
    )


def option_names(parameter: str, option: Option) -> tuple[str, ...]:
    """Return the names of an option: those declared, or `--` and the parameter's name."""
    return option.names or ("--" + parameter.replace("_", "-"),)


def _value_type(annotation: Any) -> tuple[type, bool]:
    """Return the value type and whether it is a list: (str, True) for `list[str] | None`."""
    if get_origin(annotation) in (UnionType, Union):
        [annotation] = [arm for arm in get_args(annotation) if arm is not type(None)]
    if get_origin(annotation) is list:
        [element] = get_args(annotation)
        return element, True
    return annotation, False
