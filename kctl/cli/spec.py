"""What every command takes, read from its declaration: for completion, docs and quick parsing."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

HELP_OPTIONS = ("--help", "-h")


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """An option or an argument of a command."""

    # The function's keyword.
    name: str
    # `--long` and `-s`, or nothing: an argument.
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
        """Whether it takes no value."""
        return self.value_type is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it may have, if they are listed."""
        if issubclass(self.value_type, Enum):
            return tuple(str(member.value) for member in self.value_type)
        return ()


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: its words after `kctl`, and what it takes."""

    path: tuple[str, ...]
    help: str
    callback: Callable[..., None]
    parameters: tuple[ParameterSpec, ...] = field(default=())

    @property
    def options(self) -> list[ParameterSpec]:
        """What begins with a dash."""
        return [parameter for parameter in self.parameters if parameter.options]

    @property
    def arguments(self) -> list[ParameterSpec]:
        """What does not."""
        return [parameter for parameter in self.parameters if not parameter.options]


def first_line(text: str) -> str:
    """The first sentence's words, without the full stop."""
    return text.strip().split("\n")[0].rstrip(".")


def commands_of(app: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[CommandSpec]:
    """Every command of `app` and of its groups, in the order of declaration."""
    groups = [(it.name, it.typer_instance) for it in app.registered_groups]
    for info in app.registered_commands:
        if info.callback is not None and not info.hidden:
            yield command_spec((*path, str(info.name)), info.help or "", info.callback)
    for name, group in groups:
        if group is not None:
            yield from commands_of(group, (*path, str(name)))


def command_spec(path: tuple[str, ...], text: str, callback: Callable[..., None]) -> CommandSpec:
    """What the declaration of `callback` says."""
    parameters = inspect.signature(callback).parameters.values()
    return CommandSpec(path, text, callback, tuple(map(_parameter_spec, parameters)))


def _parameter_spec(parameter: inspect.Parameter) -> ParameterSpec:
    if get_origin(parameter.annotation) is not Annotated:
        raise TypeError(f"parameter {parameter.name} does not say what it is")
    annotation, info = get_args(parameter.annotation)[:2]
    is_option = isinstance(info, typer.models.OptionInfo)
    declared = info.default if isinstance(info.default, str) else None
    names = tuple(filter(None, (declared, *(info.param_decls or ()))))
    if is_option and not names:
        names = ("--" + parameter.name.replace("_", "-"),)
    value_type, is_list = _value_type(annotation)
    is_required = parameter.default is inspect.Parameter.empty
    return ParameterSpec(
        parameter.name,
        names if is_option else (),
        value_type,
        is_list,
        is_required,
        None if is_required else parameter.default,
        info.metavar or "",
        info.help or "",
    )


def _value_type(annotation: Any) -> tuple[type, bool]:
    """`list[str] | None` is (str, True)."""
    if get_origin(annotation) in (UnionType, Union):
        [annotation] = [arm for arm in get_args(annotation) if arm is not type(None)]
    if get_origin(annotation) is list:
        [element] = get_args(annotation)
        return element, True
    return annotation, False
