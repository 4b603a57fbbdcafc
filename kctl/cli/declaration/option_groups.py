"""Option groups: dataclasses whose fields are options of a command.

A command with many options takes a few groups instead of one parameter per option:

    @dataclass
    class PathOptions:
        paths: Annotated[list[str], Argument(metavar="PATH...")]

    def dump(paths: PathOptions, filters: FilterOptions) -> int: ...

To the parsers and to the help, each field is a parameter of its own, in the order of the
groups. Names of fields are therefore unique within a command.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

Groups = Mapping[str, type]


def option_groups(function: Callable[..., Any]) -> dict[str, type]:
    """Return the groups among the parameters of a function, by the parameter's name."""
    parameters = inspect.signature(function).parameters.values()
    return {
        it.name: it.annotation
        for it in parameters
        if isinstance(it.annotation, type) and is_dataclass(it.annotation)
    }


def with_fields(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters, each group replaced by its fields."""
    expanded = []
    for it in parameters:
        if isinstance(it.annotation, type) and is_dataclass(it.annotation):
            expanded += _fields_of(it.annotation)
        else:
            expanded.append(it)
    return expanded


def grouped(groups: Groups, values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function with `groups`, given a value for each option."""
    made = {
        name: group(**{it.name: values[it.name] for it in fields(group)})
        for name, group in groups.items()
    }
    inside = {it.name for group in groups.values() for it in fields(group)}
    return made | {name: value for name, value in values.items() if name not in inside}


def _fields_of(group: type) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            it.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if it.default is MISSING else it.default,
            annotation=it.type,
        )
        for it in fields(group)
    ]
