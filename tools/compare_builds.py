"""Compares the compiled build with pure Python: `python -m tools.compare_builds --compiled DIR`.

python -m tools.compare_builds --compiled ../compiled --seeds 0-999

Copies the sources to DIR and compiles them there, unless that was done before. Then plays each seed
of the simulation in both builds of DIR, and compares the digests of all events. One line for each
seed that differs, one for each block of seeds, and the total; the exit status is 1 if any differs.
DIR/digests.txt holds the seeds that were compared: another run continues behind them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.miscompiled import ROOT

NOT_COPIED = (
    *(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "*.so"),
    *("build", "dist", "kctl-data"),
)
# What a process was started with, and is not meant for those that it starts.
NOT_INHERITED = ("PYTEST_", "KCTL_PURE", "KCTL_COMPILED", "COV_")
# Seeds that one process plays.
SEEDS_PER_BLOCK = 5
_DIGEST = re.compile(r"^seed (\d+): (\w{32})$", re.MULTILINE)
_COMPARED = re.compile(r"^(\d+) (\w{32}) (\w{32})$", re.MULTILINE)
# A seed, and its digests: compiled, pure.
Compared = tuple[int, str, str]


class BuildError(Exception):
    """A build, or what it runs, failed; the message is its output."""


def run(
    tree: Path, *words: str, statuses: tuple[int, ...] = (0,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in `tree`, with `variables` in its environment; BuildError with the output if it
    ends with another status than `statuses`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(NOT_INHERITED)}
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=kept | {"PYTHONPATH": str(tree)} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in statuses:
        raise BuildError((ran.stdout + ran.stderr)[-8_000:])
    return ran


def compile_copy(tree: Path, optimization: str) -> None:
    """Copy the sources to the directory `tree`, and compile them there."""
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    shutil.copytree(ROOT, tree, ignore=ignored, dirs_exist_ok=True)
    build = {"KCTL_COMPILED": "1", "KCTL_COMPILED_OPTIMIZATION": optimization}
    run(tree, "setup.py", "build_ext", "--inplace", **build)


def check_builds(tree: Path) -> None:
    """Raise BuildError unless `tree` runs compiled, and in pure Python on demand."""
    for pure, build in (("0", "compiled"), ("1", "pure Python")):
        shown = run(tree, "-m", "kctl", "version", KCTL_PURE=pure).stdout
        if f"({build})" not in shown:
            raise BuildError(f"{tree}: not {build}, but {shown}")


def digests(tree: Path, first: int, last: int, pure: str) -> dict[int, str]:
    """Return the digests of the seeds from `first` to `last`; `pure` is the value of KCTL_PURE."""
    words = ("-m", "kctl.simulation", "--seeds", f"{first}-{last}", "--digest")
    # Violations, status 1, are part of the events.
    shown = run(tree, *words, statuses=(0, 1), KCTL_PURE=pure).stdout
    found = {int(seed): digest for seed, digest in _DIGEST.findall(shown)}
    if sorted(found) != list(range(first, last + 1)):
        raise BuildError(shown[-8_000:])
    return found


def compare(tree: Path, seeds: range) -> Iterator[list[Compared]]:
    """Yield the seeds in blocks with their digests in both builds, and note them in `tree`."""
    notes = tree / "digests.txt"
    noted = parse_notes(notes.read_text() if notes.exists() else "")
    known = [it for it in noted if it[0] in seeds]
    if known:
        yield known
    done = {seed for seed, _, _ in known}
    missing = [seed for seed in seeds if seed not in done]
    while missing:
        first = last = missing.pop(0)
        while missing and missing[0] == last + 1 and last - first + 1 < SEEDS_PER_BLOCK:
            last = missing.pop(0)
        compiled, pure = (digests(tree, first, last, value) for value in ("0", "1"))
        block = [(seed, compiled[seed], pure[seed]) for seed in range(first, last + 1)]
        with notes.open("a") as file:
            # The line before may lack its end: it is the first thing written.
            file.writelines(f"\n{seed} {one} {other}" for seed, one, other in block)
        yield block


def parse_notes(text: str) -> list[Compared]:
    """Return what was compared before; the line that an interrupted run left is ignored."""
    return [(int(seed), one, other) for seed, one, other in _COMPARED.findall(text)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 if any seed differs, 2 if a build fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compiled", type=Path, required=True, help="the directory of the builds")
    parser.add_argument("--seeds", default="0-999", help="a seed, or FIRST-LAST")
    parser.add_argument("--optimization", default="3", help="of the C compiler, if it compiles")
    options = parser.parse_args(arguments)
    tree = options.compiled.resolve()
    first, _, last = options.seeds.partition("-")
    count = different = 0
    try:
        if not (tree / "kctl").exists():
            compile_copy(tree, options.optimization)
        check_builds(tree)
        for block in compare(tree, range(int(first), int(last or first) + 1)):
            for seed, compiled, pure in block:
                if compiled != pure:
                    different += 1
                    _say(f"seed {seed} DIFFERS: compiled {compiled}, pure {pure}")
            count += len(block)
            _say(f"{count} seeds compared, up to {block[-1][0]}; {different} differ")
    except BuildError as failed:
        _say(f"error: {failed}")
        return 2
    return 1 if different else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
