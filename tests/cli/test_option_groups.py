"""Option groups: a command takes dataclasses, and the parsers see one parameter per field."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kctl.cli.app import build_app
from kctl.cli.declaration import click_parser, quick
from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.declaration.spec import commands_of

CLI = Path(__file__).parents[2] / "kctl/cli"
PARAMETERS_MAX = 18


@dataclass
class Filters:
    key: Annotated[str | None, Option("--key")] = None
    limit: Annotated[int, Option("--limit")] = 10


@dataclass
class Paths:
    paths: Annotated[list[str], Argument(metavar="PATH...")]


def make_app(calls):
    app = CommandGroup()

    @local_command(app, "dump")
    def dump(
        paths: Paths, *, is_hex: Annotated[bool, Option("--hex")] = False, filters: Filters
    ) -> int:
        """Dump files."""
        calls.append((paths, is_hex, filters))
        return 0

    local_command(app, "other")(lambda: 0)
    return app


def test_fields_are_parameters_in_the_order_of_the_groups():
    [spec, _] = commands_of(make_app([]))
    assert [it.name for it in spec.parameters] == ["paths", "is_hex", "key", "limit"]
    assert [it.is_required for it in spec.parameters] == [True, False, False, False]


def test_the_command_gets_groups_from_click_and_from_quick_parsing():
    calls = []
    app = make_app(calls)
    argv = ["dump", "a", "b", "--limit", "3", "--hex"]

    assert click_parser.run(app, argv) == 0
    assert quick.run(app, argv) == 0

    assert calls == [(Paths(["a", "b"]), True, Filters(None, 3))] * 2


def test_no_two_groups_of_a_command_have_a_field_of_the_same_name():
    for spec in commands_of(build_app([], everything=True)):
        names = [it.name for it in spec.parameters]
        assert len(names) == len(set(names)), spec.path


def test_functions_of_commands_take_few_parameters():
    many = [
        f"{path.relative_to(CLI)}: {node.name}"
        for path in sorted(CLI.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and len(node.args.args) + len(node.args.kwonlyargs) > PARAMETERS_MAX
    ]
    assert many == []
