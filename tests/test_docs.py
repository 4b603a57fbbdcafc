"""The documents say what is so."""

from pathlib import Path

from kctl.cli import reference

ROOT = Path(__file__).parents[1]


def test_the_reference_of_commands_is_current():
    """`python -m kctl.cli.reference` makes it anew."""
    assert (ROOT / "docs" / "commands.md").read_text() == reference.reference()


def test_every_command_is_in_the_reference():
    from kctl.cli.app import build_app
    from kctl.cli.spec import commands_of

    text = (ROOT / "docs" / "commands.md").read_text()
    for spec in commands_of(build_app([], everything=True)):
        assert f"## kctl {' '.join(spec.path)}\n" in text
