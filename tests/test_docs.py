"""The documents say what is so."""

import re
from pathlib import Path

import pytest

from kctl.cli.declaration import reference

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
DECISION_LINES_MAX = 42


def test_the_reference_of_commands_is_current():
    """`python -m kctl.cli.declaration.reference` generates it."""
    assert (ROOT / "docs" / "commands.md").read_text() == reference.reference()


def test_every_command_is_in_the_reference():
    from kctl.cli.app import build_app
    from kctl.cli.declaration.spec import commands_of

    text = (ROOT / "docs" / "commands.md").read_text()
    for spec in commands_of(build_app([], everything=True)):
        assert f"## kctl {' '.join(spec.path)}\n" in text


def headings(page: Path) -> set[str]:
    """The anchors that GitHub and the site make of a page's headings."""
    titles = re.findall(r"^#+ +(.+?) *$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_sections_name_a_heading(page):
    targets = re.findall(r"\]\(((?:[\w./-]+\.md)?)#([\w-]+)\)", page.read_text())
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in targets
        if anchor not in headings(page.parent / target if target else page)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_decision_is_in_the_index_under_its_title():
    index = (ROOT / "docs/decisions/README.md").read_text()
    rows = dict(re.findall(r"^\| \[\d+\]\((.+?)\) \| (.+?) \|$", index, re.MULTILINE))
    titles = {}
    for path in DECISIONS:
        number, _, title = path.read_text().splitlines()[0].removeprefix("# ").partition(" ")
        assert number.rstrip(":") == path.name[:4]
        titles[path.name] = title
    assert rows == titles


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name[:4])
def test_a_decision_is_one_page_with_its_four_parts(path):
    lines = path.read_text().splitlines()
    parts = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert parts == ["Context", "Choice", "Rejected", "Consequences"]
    assert len(lines) <= DECISION_LINES_MAX
