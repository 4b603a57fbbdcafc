"""Parses the command lines that `quick.py` leaves, and reports their errors, with click."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import click

from kctl.cli.declaration.declarations import CommandGroup, Exit
from kctl.cli.declaration.quick import find_command
from kctl.cli.declaration.spec import (
    HELP_OPTIONS,
    CommandSpec,
    ParameterSpec,
    command_spec,
)
from kctl.errors import UsageError


class _HelpWanted(Exception):
    """Raised for --help in the place of an option."""

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(spec.path)
        self.spec = spec


# Subscripts of click's classes need click 8.4.
class _WholeNumber(click.ParamType):  # type: ignore[type-arg]
    name = "integer"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number; fail if the text is none."""
        try:
            return int(value)
        except ValueError:
            self.fail("not a whole number", param, ctx)


class _Member(click.Choice):  # type: ignore[type-arg]
    """A member of an Enum, by its value."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([str(member.value) for member in kind])
        self._kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the member; fail if there is none with this value."""
        return self._kind(super().convert(value, param, ctx))

    def get_missing_message(self, *_: Any, **__: Any) -> str:
        """Return no more than the name: the choices are in the help."""
        return ""


class _Command(click.Command):
    """A command that reports surplus arguments itself, because click's error does not hold them."""

    allow_extra_args = True

    def __init__(self, spec: CommandSpec, **given: Any) -> None:
        super().__init__(spec.path[-1], add_help_option=False, **given)
        self._spec = spec

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise UsageError if some are left."""
        surplus = super().parse_args(ctx, args)
        if surplus:
            message = f"Too many arguments: ({' '.join(surplus)})"
            raise UsageError(message, hint=_surplus_hint(self._spec, surplus))
        return surplus


def run(app: CommandGroup, arguments: Sequence[str]) -> int | CommandSpec:
    """Run the command and return its exit status, or the command whose help is requested.

    Raise UsageError for a command line that is not valid, and what the command raises.
    """
    group = _group_of("kctl", app, ())
    try:
        with group.make_context("kctl", list(arguments)) as context:
            group.invoke(context)
    except Exit as stop:
        return stop.exit_code
    except _HelpWanted as wanted:
        return wanted.spec
    except click.ClickException as error:
        command = find_command(app, arguments)
        raise _misuse(error, command.path if command is not None else ()) from None
    return 0


def parse(spec: CommandSpec, argv: Sequence[str]) -> dict[str, Any]:
    """Return the keyword arguments for the command's function.

    Raise UsageError for a command line that is not valid.
    """
    try:
        context = _command_of(spec).make_context(" ".join(("kctl", *spec.path)), list(argv))
    except click.ClickException as error:
        raise _misuse(error, spec.path) from None
    return _values(spec, context.params)


def _group_of(name: str, group: CommandGroup, path: tuple[str, ...]) -> click.Group:
    made = click.Group(name, add_help_option=False)
    for command in group.commands.values():
        spec = command_spec((*path, command.name), command.help, command.callback)
        made.add_command(_command_of(spec))
    for inner_name, inner in group.groups.items():
        made.add_command(_group_of(inner_name, inner, (*path, inner_name)))
    return made


def _command_of(spec: CommandSpec) -> click.Command:
    def call(**given: Any) -> None:
        spec.callback(**_values(spec, given))

    parameters = [*map(_parameter_of, spec.parameters), _help_option(spec)]
    return _Command(spec, params=parameters, callback=call)


def _surplus_hint(spec: CommandSpec, surplus: Sequence[str]) -> str:
    """Return what may have been meant: settings without their option, or the command's help."""
    takes_settings = any(
        "--config" in parameter.options and parameter.metavar == "KEY=VALUE"
        for parameter in spec.parameters
    )
    if takes_settings and all("=" in argument for argument in surplus):
        return " ".join(f"-c {argument}" for argument in surplus)
    return _help_hint(spec.path)


def _help_hint(path: Sequence[str]) -> str:
    return f"see {' '.join(('kctl', *path))} --help"


def _help_option(spec: CommandSpec) -> click.Option:
    def show(_context: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
        if is_wanted:
            raise _HelpWanted(spec)

    return click.Option(
        HELP_OPTIONS, is_flag=True, is_eager=True, expose_value=False, callback=show
    )


def _parameter_of(spec: ParameterSpec) -> click.Parameter:
    metavar = spec.metavar or None
    if not spec.options:
        nargs = -1 if spec.is_list else 1
        return click.Argument(
            [spec.name], type=_type_of(spec), nargs=nargs, required=spec.is_required,
            metavar=metavar,
        )  # fmt: skip
    return click.Option(
        [spec.name, *spec.options], type=_type_of(spec), multiple=spec.is_list,
        is_flag=spec.is_flag or None, required=spec.is_required, metavar=metavar,
    )  # fmt: skip


def _type_of(spec: ParameterSpec) -> "click.ParamType[Any]":
    if issubclass(spec.value_type, Enum):
        return _Member(spec.value_type)
    return {int: _WholeNumber(), bool: click.BOOL}.get(spec.value_type, click.STRING)


def _values(spec: CommandSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the command's function: lists, and defaults for what is missing."""
    values = {}
    for parameter in spec.parameters:
        value = given[parameter.name]
        is_missing = value in (None, ()) or (parameter.is_flag and not value)
        listed = list(value) if parameter.is_list and not is_missing else value
        values[parameter.name] = parameter.default if is_missing else listed
    return values


def _misuse(error: click.ClickException, path: tuple[str, ...]) -> UsageError:
    """Convert click's error about a command line; `path` is the command's, if there is one."""
    message = error.format_message().removesuffix(".")
    context = getattr(error, "ctx", None)
    shown = context.command_path if context and not path else " ".join(("kctl", *path))
    return UsageError(message, hint=f"see {shown} --help")
