"""What programs read about kctl: --help-json, manual pages, `kctl help` and `kctl version`."""

import shutil
import subprocess

import pytest

from kctl import __version__
from kctl.cli.app import COMMANDS, build_app
from kctl.cli.declaration.man_pages import man_pages
from kctl.cli.declaration.names import find_names
from kctl.cli.declaration.spec import commands_of


def specs():
    return list(commands_of(build_app([], everything=True)))


def test_help_json_describes_every_command(kctl):
    ran = kctl("--help-json")

    assert ran.status == 0, ran.err
    assert ran.documents["version"] == __version__
    assert {it["status"] for it in ran.documents["exit_statuses"]} >= {0, 1, 2, 3}
    assert [it["command"] for it in ran.documents["commands"]] == [
        " ".join(("kctl", *spec.path)) for spec in specs()
    ]
    for command in ran.documents["commands"]:
        assert command["summary"].endswith("."), command["command"]
        assert all(
            it.startswith(("kctl", "echo", "cat")) or "kctl" in it for it in command["examples"]
        )


def test_help_json_of_one_command_has_its_options_and_arguments(kctl):
    [found] = kctl("topic", "create", "--help-json").documents["commands"]

    assert found["changes"]
    assert found["connects"]
    [argument] = found["arguments"]
    assert (argument["metavar"], argument["required"], argument["repeatable"]) == (
        "NAME", True, True,
    )  # fmt: skip
    options = {it["names"][0]: it for it in found["options"]}
    assert options["--partitions"]["names"] == ["--partitions", "-p"]
    assert options["--partitions"]["type"] == "integer"
    assert options["--output"]["choices"][:2] == ["table", "json"]
    assert options["--dry-run"] == {
        "names": ["--dry-run", "-n"], "shared": True, "metavar": None, "type": "flag",
        "help": "Show what would be done; change nothing.", "choices": [], "required": False,
        "repeatable": False, "default": False,
    }  # fmt: skip
    assert "kctl topic create orders -p 12 -r 3" in found["examples"]


def test_help_json_of_a_group_has_its_commands_only(kctl):
    found = kctl("records", "--help-json").documents["commands"]

    assert [it["command"] for it in found] == ["kctl records delete"]
    assert kctl("no-such-command", "--help-json").status == 2


def test_help_and_version_are_commands_that_completion_offers(kctl):
    assert kctl("help", "topic", "create").out == kctl("topic", "create", "--help").out
    assert kctl("help", "no-such-command").status == 2
    assert kctl("version").out.startswith(f"kctl {__version__} (")
    assert {"help", "version", "man"} <= {row.name for row in COMMANDS}
    assert find_names(["commands", "re"]) == ["records", "reassign", "repair-log"]


def test_man_writes_a_page_for_every_command(kctl, tmp_path):
    ran = kctl("man", "--out", tmp_path / "man1")

    assert ran.status == 0, ran.err
    written = {path.name for path in (tmp_path / "man1").iterdir()}
    assert written == {"kctl.1"} | {f"{'-'.join(('kctl', *it.path))}.1" for it in specs()}
    text = (tmp_path / "man1" / "kctl-topic-create.1").read_text()
    assert text.startswith('.TH "KCTL\\-TOPIC\\-CREATE" 1')
    assert "\\-\\-replication\\-factor" in text
    assert kctl("man", "--out", __file__).status == 2


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_troff_has_no_complaint_about_any_page():
    text = "".join(man_pages(specs()).values())
    ran = subprocess.run(
        ["groff", "-man", "-Tutf8", "-wmac"], input=text, capture_output=True, text=True,
        check=False, encoding="utf-8",
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "KCTL-TOPIC-CREATE" in ran.stdout.replace("‐", "-").replace("−", "-")


def test_a_page_shows_what_troff_would_interpret():
    [page] = [text for name, text in man_pages(specs()).items() if name == "kctl-consume.1"]

    assert "\\en" in page  # {value}\n of an example
