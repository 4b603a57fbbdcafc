"""Findings: collects what verification finds, without drowning in it.

Of each rule and file the first are kept whole, the others only counted: a segment whose every
batch is wrong says so once. So memory stays bounded whatever the damage.
"""

from dataclasses import replace

from kctl.dump.verify_rules import Finding, Rule
from kctl.storage.layout import LOG_SUFFIX, parse_file_name

_LAST = 2**63
# Of one rule in one file.
KEPT_MAX = 50


class Findings:
    """See the module."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: list[Finding] = []
        # Position in `_kept` of the last finding of a rule in a file, and how many there were.
        self._counts: dict[tuple[str, Rule], tuple[int, int]] = {}

    def add(self, finding: Finding) -> None:
        """Remember `finding`."""
        key = finding.path, finding.rule
        place, count = self._counts.get(key, (0, 0))
        if count < self._kept_max:
            place = len(self._kept)
            self._kept.append(finding)
        self._counts[key] = place, count + 1

    def __len__(self) -> int:
        """How many there were, those merely counted too."""
        return sum(count for _, count in self._counts.values())

    def has(self, path: str, rule: Rule) -> bool:
        """Whether `rule` was broken in `path`."""
        return (path, rule) in self._counts

    def all(self) -> list[Finding]:
        """In the order of files and positions; the last of many says how many more there are."""
        kept = list(self._kept)
        for place, count in self._counts.values():
            left_out = count - self._kept_max
            if left_out > 0:
                more = f"{kept[place].message}; and {left_out} more like it in this file"
                kept[place] = replace(kept[place], message=more)
        return sorted(kept, key=_place)


def _place(finding: Finding) -> tuple[str, int, int, str, float]:
    """Segments in order, of each the .log first, then what is made from it; other files last."""
    directory, _, name = finding.path.rpartition("/")
    base, suffix = parse_file_name(name) or (_LAST, name)
    is_derived = int(suffix != LOG_SUFFIX)
    position = float("inf") if finding.position is None else finding.position
    return directory, base, is_derived, suffix, position
