"""The damage matrix as a table in docs/forensics.md: `python -m tests.support.damage_table`.

Each cell is done: a copy of a log that Apache Kafka wrote is damaged, verified and repaired.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.archives import opened_archive
from tests.support.damage import FORMATS, Damage, kinds_for
from tests.support.files_in_memory import files_in_memory
from tests.support.forensics import findings, readable_records, repair
from tests.support.golden import GOLDEN

PAGE = Path(__file__).parents[2] / "docs/forensics.md"
BEGIN, END = "<!-- damage matrix: made by the tests -->\n", "<!-- end of the matrix -->\n"
HEAD = (
    "| Damage | Found as | Formats | Records lost | After repair |\n"
    "|---|---|---|---|---|\n"
)  # fmt: skip


def cell(source: Path, work: Path, kind: Damage) -> tuple[str, int, bool] | None:
    """The rule that names it, how many records repair could not keep, and whether nothing is
    left to find; None if the log has nothing that could be damaged so."""
    if not kind.needs(source):
        return None
    root = work / "logs"
    root.mkdir()
    for file in source.parent.iterdir():
        if file.is_file():
            shutil.copy(file, root)
    directory = root / source.name
    shutil.copytree(source, directory)
    before = readable_records(directory)
    kind.apply(directory)
    rule = findings(root)[0].rule.value
    repair(directory, work / "backup")
    lost = (before - readable_records(directory)).total()
    is_clean = not findings(root)
    shutil.rmtree(root)
    shutil.rmtree(work / "backup", ignore_errors=True)
    return rule, lost, is_clean


def table() -> str:
    """One row a kind of damage."""
    rows: dict[str, list[tuple[str, tuple[str, int, bool]]]] = {}
    with files_in_memory(), tempfile.TemporaryDirectory() as directory:
        with opened_archive(GOLDEN / "logs/clean.tar.xz") as tar:
            tar.extractall(directory)
        golden = Path(directory) / "logs-clean"
        for name in FORMATS:
            for kind in kinds_for(name):
                found = cell(golden / FORMATS[name], Path(directory), kind)
                if found is not None:
                    rows.setdefault(kind.name, []).append((name, found))
    return HEAD + "".join(_row(kind, cells) for kind, cells in rows.items())


def _row(kind: str, cells: list[tuple[str, tuple[str, int, bool]]]) -> str:
    rules = ", ".join(sorted({f"`{rule}`" for _, (rule, _, _) in cells}))
    names = [name for name, _ in cells]
    formats = "all" if len(names) == len(FORMATS) else ", ".join(names)
    most = max(lost for _, (_, lost, _) in cells)
    lost = "none" if not most else f"those of the damage (up to {most})"
    is_clean = all(clean for _, (_, _, clean) in cells)
    after = "nothing to find" if is_clean else "missing offsets are still reported"
    return f"| {kind} | {rules} | {formats} | {lost} | {after} |\n"


def with_table(page: str, text: str) -> str:
    """The page with `text` for a table."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + text + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), table()))
    sys.stderr.write(f"wrote {PAGE}\n")
