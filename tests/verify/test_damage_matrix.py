"""Every kind of damage on every format is found and named right; repair fixes it, loses no record
that could be read, and leaves a directory that verification finds nothing wrong with."""

import pytest

from tests.support.damage import FORMATS, kinds_for
from tests.support.forensics import GONE, findings, readable_records, repair

# These always, the others with -m slow: what they have in common is most of it.
ALWAYS = ("v2", "v1 gzip")
CELLS = [
    pytest.param(
        name, kind, id=f"{name}-{kind.name}", marks=() if name in ALWAYS else pytest.mark.slow
    )
    for name in FORMATS
    for kind in kinds_for(name)
]


@pytest.mark.parametrize(("format_name", "kind"), CELLS)
def test_damage_is_found_and_repaired(partition, tmp_path, format_name, kind):
    directory = partition(FORMATS[format_name])
    if not kind.needs(directory):
        pytest.skip("this log has nothing that could be damaged so")
    before = readable_records(directory)
    kind.apply(directory)
    found = findings(directory.parent)
    assert found, "the damage was not found"
    assert found[0].rule in kind.rules, found

    readable = readable_records(directory)
    repair(directory, tmp_path / "backup")
    after = readable_records(directory)
    assert not set(readable) - set(after), "readable records were lost"
    # A transaction marker that is restored has a timestamp of its own.
    records = readable_records(directory, with_markers=False)
    assert not set(records) - set(before), "the log has records that it never had"
    assert after.total() <= before.total()
    if not kind.lost_batches:
        assert after == before, "records that the damage does not touch were lost"
    left = findings(directory.parent)
    assert {finding.rule for finding in left} <= GONE, left
