"""docs/simulation.md lists every fault and habit of a seed, its modules exist, its example runs."""

import re
from pathlib import Path

import pytest

from kctl.simulation.operator import HABITS
from kctl.simulation.plan import FAULTS, LATER_FAULTS, Plan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/simulation.md").read_text()
[EXAMPLE] = re.findall(r"^   ```python\n(.*?)^   ```", PAGE, re.MULTILINE | re.DOTALL)


def rows_of(heading):
    """Return the names in the first column of the first table after a heading."""
    section = PAGE.split(heading, 1)[1].split("\n#", 1)[0]
    firsts = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for first in firsts for name in re.findall(r"`(\w+)`", first)}


def test_the_manual_lists_every_fault():
    faults = rows_of("### Faults")
    assert set(FAULTS + LATER_FAULTS) <= faults
    assert faults <= set(Plan.__dataclass_fields__)


def test_the_manual_lists_every_habit():
    assert rows_of("### Clients and operator") == set(HABITS)


def test_the_manual_names_modules_that_exist():
    named = re.findall(r"`(\w+\.py)`", PAGE)
    assert {name for name in named if not (ROOT / "kctl/simulation" / name).exists()} == set()


@pytest.mark.sim
def test_the_example_runs(capsys):
    exec("\n".join(line[3:] for line in EXAMPLE.splitlines()), {})
    assert capsys.readouterr().out.startswith("None ")
