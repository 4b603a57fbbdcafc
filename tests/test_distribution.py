"""What pip installs: its name, and every place that names it."""

import re
import tomllib
from pathlib import Path

import pytest

import kctl
from kctl.cli.app import build_app
from kctl.cli.declaration.man_pages import man_pages
from kctl.cli.declaration.spec import commands_of
from kctl.errors import UsageError, missing_extra

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("kctl", "docs", "tests", "benchmarks", "tools", "completions", ".ci", ".github")
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".fish", ".bash", ".rb", ".in", ""}

# The name `kctl` on PyPI is another project: to install it is to run a stranger's code.
STRANGER = re.compile(
    r"""(pip3?|pipx|uv|uvx)(\ +[a-z]+)*\ +(-[-\w]+\ +)*   # pip install -q, uv tool install
        ['"]?kctl(?!-kafka)\b(?!/)                         # kctl, but not kctl-kafka or kctl/
        | \bkctl\[[a-z{]                                   # an extra of it: kctl [spark]
    """,
    re.VERBOSE,
)


def texts() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in found if path.suffix in SUFFIXES and "__pycache__" not in path.parts]


def test_the_distribution_has_one_name():
    assert PROJECT["name"] == kctl.DISTRIBUTION == "kctl-kafka"
    assert PROJECT["scripts"] == {"kctl": "kctl.__main__:main"}


def test_no_text_installs_the_stranger_s_package():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if STRANGER.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_stranger"),
    [
        ("pip install kctl", True),
        ("pip install -q 'kctl[spark]'", True),
        ("pipx install kctl", True),
        ("uvx kctl serve", True),
        ("uv tool install kctl", True),
        ("needs kctl[spark]", True),
        ("pip install kctl-kafka", False),
        ("pip install -q 'kctl-kafka[spark]'", False),
        ("pip install -e .", False),
        ("Apache Kafka in a pip install: `kctl serve`", False),
    ],
)
def test_the_check_recognizes_the_stranger(line, is_stranger):
    assert bool(STRANGER.search(line)) is is_stranger


def test_a_hint_names_an_extra_that_exists():
    sources = [path.read_text() for path in (ROOT / "kctl").rglob("*.py")]
    named = {
        extra
        for text in sources
        for extra in re.findall(r'missing_extra\([^)]*,\s*"([a-z]+)"\s*\)', text)
    }
    assert named
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_hint_is_a_command():
    error = missing_extra("Avro values need fastavro", "avro")
    assert isinstance(error, UsageError)
    assert error.hint == "pip install 'kctl-kafka[avro]'"


def test_the_systemd_unit_says_how_to_install_the_page_that_it_names():
    unit = (ROOT / "contrib/systemd/kctl.service").read_text()
    (page, section) = re.findall(r"^Documentation=man:([\w-]+)\((\d)\)$", unit, re.MULTILINE)[0]

    assert f"{page}.{section}" in man_pages(list(commands_of(build_app([], everything=True))))
    assert f"kctl man --out /usr/local/share/man/man{section}" in unit
