"""Findings: collects what verification finds, in bounded memory.

For each rule and file the first findings are kept in full and the others only counted, so memory
stays bounded whatever the damage, and a segment in which every batch is wrong is reported briefly.
"""

from dataclasses import replace

from kctl.storage.layout import LOG_SUFFIX, parse_file_name
from kctl.verify.rules import Finding, Rule

_LAST = 2**63
# Findings kept of one rule in one file.
KEPT_MAX = 50


class Findings:
    """The findings of one verification; see the module."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: list[Finding] = []
        # Position in `_kept` of the last finding of a rule in a file, and the number of findings.
        self._counts: dict[tuple[str, Rule], tuple[int, int]] = {}

    def add(self, finding: Finding) -> None:
        """Add `finding`."""
        key = finding.path, finding.rule
        place, count = self._counts.get(key, (0, 0))
        if count < self._kept_max:
            place = len(self._kept)
            self._kept.append(finding)
        self._counts[key] = place, count + 1

    def __len__(self) -> int:
        """Return the number of findings, including those only counted."""
        return sum(count for _, count in self._counts.values())

    def has(self, path: str, rule: Rule) -> bool:
        """Return whether `rule` was broken in `path`."""
        return (path, rule) in self._counts

    def all(self) -> list[Finding]:
        """Return the kept findings by file and position; the last of many states how many more
        there are."""
        kept = list(self._kept)
        for place, count in self._counts.values():
            left_out = count - self._kept_max
            if left_out > 0:
                more = f"{kept[place].message}; and {left_out} more like it in this file"
                kept[place] = replace(kept[place], message=more)
        return sorted(kept, key=_place)


def _place(finding: Finding) -> tuple[str, int, int, str, float]:
    """Return a sort key: segments in order, the .log of each first, then its derived files; other
    files last."""
    directory, _, name = finding.path.rpartition("/")
    base, suffix = parse_file_name(name) or (_LAST, name)
    is_derived = int(suffix != LOG_SUFFIX)
    position = float("inf") if finding.position is None else finding.position
    return directory, base, is_derived, suffix, position
