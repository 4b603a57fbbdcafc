"""A mapping whose oldest entry is taken again and again is kept in an OrderedDict.

A plain dict of CPython keeps the places of deleted entries until it grows: to find the first one,
it passes all that were deleted before, which is quadratic where the oldest goes each time.
"""

import re
from pathlib import Path

import kctl

FIRST = re.compile(r"next\(iter\(self\.(\w+)(?:\.(?:keys|values|items)\(\))?[),]")
# Each of these is read from the front only when few entries were deleted since it was made.
READ_RARELY = {
    # A leader that leaves; a request for each of them.
    ("group.py", "members"),
    # Small: CONDITIONS_MAX and CLIENT_CONTEXTS_MAX bound the table itself.
    ("recurring_warnings.py", "_conditions"),
    ("tls_context.py", "_contexts"),
}
LIBRARIES = ("broker", "runtime")


def test_the_oldest_entry_is_found_without_passing_deleted_ones():
    root = Path(kctl.__file__).parent
    found = 0
    for path in [path for name in LIBRARIES for path in sorted((root / name).rglob("*.py"))]:
        text = path.read_text()
        for name in sorted(set(FIRST.findall(text))):
            if (path.name, name) in READ_RARELY:
                continue
            found += 1
            declared = rf"self\.{name}: OrderedDict\["
            assert re.search(declared, text), f"{path}: {name} must be an OrderedDict"
    assert found >= 8
