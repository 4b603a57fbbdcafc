"""Every kind of damage on every format is found and named right, and nothing else is said."""

import shutil

import pytest

from kctl.dump.verify import plan, verify_log_directory, verify_unit
from kctl.dump.verify_rules import Severity
from kctl.runtime.real.disk import RealDisk
from tests.support.damage import FORMATS, kinds_for

DISK = RealDisk()
CELLS = [(name, kind) for name in FORMATS for kind in kinds_for(name)]


def findings(path, *, with_records=True):
    """What verification says of a log directory."""
    wanted = plan(DISK, [str(path)], with_records=with_records)
    verified = [verify_unit(DISK, unit) for unit in wanted.units]
    found = [finding for partition in verified for finding in partition.findings]
    for directory in wanted.log_directories:
        found += verify_log_directory(DISK, directory, verified)
    return [finding for finding in found if finding.severity is Severity.DAMAGE]


@pytest.fixture
def partition(golden_logs, tmp_path):
    def copy(name):
        root = tmp_path / "logs"
        root.mkdir()
        for file in golden_logs.joinpath("logs-clean").iterdir():
            if file.is_file():
                shutil.copy(file, root)
        shutil.copytree(golden_logs / "logs-clean" / name, root / name)
        return root / name

    return copy


@pytest.mark.parametrize(
    ("format_name", "kind"), CELLS, ids=[f"{name}-{kind.name}" for name, kind in CELLS]
)
def test_damage_is_found_and_named(partition, format_name, kind):
    directory = partition(FORMATS[format_name])
    if not kind.needs(directory):
        pytest.skip("this log has nothing that could be damaged so")
    kind.apply(directory)
    found = findings(directory.parent)
    assert found, "the damage was not found"
    assert found[0].rule in kind.rules, found
