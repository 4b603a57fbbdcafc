"""Quick parsing means what Typer means."""

import inspect
from enum import Enum

import pytest
import typer

from kctl.cli import quick
from kctl.cli.app import COMMANDS, build_app, hoist_shared_options
from kctl.cli.spec import commands_of

SPECS = list(commands_of(build_app([], everything=True)))
BY_PATH = {" ".join(spec.path): spec for spec in SPECS}

LINES = [
    ("topic list", []),
    ("topic list", ["a*", "b", "--internal", "-o", "json", "-b", "x:1"]),
    ("topic list", ["-b", "x:1", "--timeout=5s", "a"]),
    ("topic list", ["-X", "a=b", "-X", "c=d=e", "--output=csv"]),
    ("topic create", ["x", "y", "-p", "3", "--replication-factor", "2", "-c", "k=v", "-n"]),
    ("topic create", ["-p", "3", "x", "--if-not-exists"]),
    ("topic alter", ["x", "-p", "-1", "-d", "a", "-d", "b", "-y"]),
    ("topic delete", ["x", "--if-exists", "-y", "-n"]),
    ("config describe", ["topic", "x"]),
    ("config describe", ["broker", "0", "a", "b", "--all"]),
    ("config alter", ["topic", "x", "--append", "a=b"]),
    ("group reset-offsets", ["g", "--shift-by", "-5", "-t", "a", "-t", "b:0,1"]),
    ("group describe", ["--members"]),
    ("produce", ["t", "v1", "v2", "-z", "lz4", "--acks", "0"]),
    ("produce", ["t", "-f", "-"]),
    ("consume", ["a", "b", "--offset=-5", "-p", "0", "-p", "1,2", "-e"]),
    ("serve", ["--port", "0", "-c", "a=b", "-t", "x:3", "--durable"]),
    ("completion", ["bash"]),
    ("topic list", ["-o", "json", "-o", "yaml"]),
    ("topic list", [""]),
    ("topic create", ["x", "-c", ""]),
]
UNCLEAR = [
    ("topic list", ["--nonsense"]),
    ("topic list", ["-o", "nonsense"]),
    ("topic list", ["--", "-x"]),
    ("topic list", ["-b"]),
    ("topic list", ["-b", "--internal"]),
    ("topic create", []),
    ("topic create", ["x", "-p", "many"]),
    ("topic create", ["x", "-p3"]),
    ("topic delete", ["x", "-yn"]),
    ("topic delete", ["x", "--yes=1"]),
    ("topic alter", ["x", "y"]),
    ("config describe", ["topic"]),
    ("config describe", ["planet", "x"]),
]


def typer_values(spec, words):
    """The keywords that Typer gives the command's function for these words."""
    given = {}

    def callback(**values):
        given.update(values)

    callback.__signature__ = inspect.signature(spec.callback)
    callback.__annotations__ = spec.callback.__annotations__
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(callback)
    try:
        app(args=words, standalone_mode=True)
    except SystemExit as stop:
        return given if not stop.code else None
    return given


@pytest.mark.parametrize(("path", "words"), LINES, ids=lambda it: " ".join(it)[:40])
def test_what_is_understood_quickly_typer_understands_alike(path, words):
    spec = BY_PATH[path]

    assert quick.parse(spec, words) == typer_values(spec, words)


@pytest.mark.parametrize(("path", "words"), UNCLEAR, ids=lambda it: " ".join(it)[:40])
def test_anything_unusual_is_left_to_typer(path, words):
    assert quick.parse(BY_PATH[path], words) is None


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_wanted_only_where_an_option_may_stand(word):
    app = build_app(["produce"])

    assert quick.run(app, ["produce", "t", word]).path == ("produce",)
    assert quick.run(app, ["produce", "t", "--key", word]) is None


def test_an_option_takes_a_value_in_all_commands_or_in_none():
    """Else completion could not tell an option's value from the next word."""
    flags = {name for spec in SPECS for it in spec.options if it.is_flag for name in it.options}
    valued = {
        name for spec in SPECS for it in spec.options if not it.is_flag for name in it.options
    }

    assert flags & valued == set()


def test_every_command_row_is_there():
    assert {spec.path[0] for spec in SPECS} == {row.name for row in COMMANDS}


@pytest.mark.parametrize("path", BY_PATH)
def test_every_option_is_described_and_every_help_has_examples(path):
    spec = BY_PATH[path]

    assert "Examples:" in spec.help
    for option in spec.options:
        assert option.help, option.options
        assert not option.choices or issubclass(option.value_type, Enum)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-b", "x", "topic", "list"], ["topic", "list", "-b", "x"]),
        (["--output=json", "topic", "list", "a"], ["topic", "list", "--output=json", "a"]),
        (["-b", "x", "produce", "t", "v"], ["produce", "-b", "x", "t", "v"]),
        (["topic", "list", "-b", "x"], ["topic", "list", "-b", "x"]),
        (["--help"], ["--help"]),
        (["-b"], ["-b"]),
        ([], []),
    ],
)
def test_shared_options_may_stand_before_the_command(words, expected):
    assert hoist_shared_options(words) == expected
