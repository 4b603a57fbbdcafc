"""Quick parsing returns what click returns."""

import re
from enum import Enum

import pytest

from kctl.cli.app import COMMANDS, build_app, hoist_shared_options
from kctl.cli.declaration import click_parser, quick
from kctl.cli.declaration.spec import commands_of, summary

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


@pytest.mark.parametrize(("path", "argv"), LINES, ids=lambda it: " ".join(it)[:40])
def test_quick_parsing_agrees_with_click(path, argv):
    spec = BY_PATH[path]

    assert quick.parse(spec, argv) == click_parser.parse(spec, argv)


@pytest.mark.parametrize(("path", "argv"), UNCLEAR, ids=lambda it: " ".join(it)[:40])
def test_unusual_command_lines_are_left_to_click(path, argv):
    assert quick.parse(BY_PATH[path], argv) is None


@pytest.mark.parametrize("argument", ["--help", "-h"])
def test_help_is_an_option_only_in_the_place_of_an_option(argument):
    app = build_app(["produce"])

    assert quick.run(app, ["produce", "t", argument]).path == ("produce",)
    assert quick.run(app, ["produce", "t", "--key", argument]) is None


def test_an_option_takes_a_value_in_all_commands_or_in_none():
    """Otherwise completion could not tell an option's value from the next argument."""
    flags = {name for spec in SPECS for it in spec.options if it.is_flag for name in it.options}
    valued = {
        name for spec in SPECS for it in spec.options if not it.is_flag for name in it.options
    }

    assert flags & valued == set()


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_the_help_of_kctl_and_of_each_group_lists_whole_sentences(row, kctl):
    summaries = {" ".join(spec.path): summary(spec.help) for spec in SPECS}
    own = {path: text for path, text in summaries.items() if path.split()[0] == row.name}

    assert re.fullmatch(r"[A-Z].*[^ ]\.", row.help)
    for path, text in own.items():
        spec = BY_PATH[path]
        paragraph = " ".join(spec.help.split("\n\n")[0].split())
        rest = paragraph.removeprefix(text)
        assert re.fullmatch(r"[A-Z].*[^ ]\.", text), path
        assert not re.search(r"\b(e\.g|i\.e|etc|vs)\.$", text), path
        # What is left out begins another sentence.
        assert rest != paragraph, path
        assert not rest or re.match(r" [A-Z]", rest), path
    if row.is_group:
        listed = " ".join(kctl(row.name, "--help").out.split())
        for path, text in own.items():
            assert f"{path.split()[1]} {text}" in listed


def test_a_summary_is_the_first_sentence_not_the_first_line():
    text = (
        "Commit the offsets in a file of\nApache Kafka 2.7, e.g. x.csv. The command\n"
        "asks first.\n\nMore."
    )

    assert summary(text) == "Commit the offsets in a file of Apache Kafka 2.7, e.g. x.csv."


def test_every_row_has_its_command():
    assert {spec.path[0] for spec in SPECS} == {row.name for row in COMMANDS}


@pytest.mark.parametrize("path", BY_PATH)
def test_every_option_is_described_and_every_help_has_examples(path):
    spec = BY_PATH[path]

    assert "Examples:" in spec.help
    for option in spec.options:
        assert option.help, option.options
        assert not option.choices or issubclass(option.value_type, Enum)


@pytest.mark.parametrize(
    ("argv", "expected"),
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
def test_shared_options_may_precede_the_command(argv, expected):
    assert hoist_shared_options(argv) == expected
