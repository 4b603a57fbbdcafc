"""The compiled build is the broker that was tested: its tests pass, and each seed of the simulation
has the digest that it has in pure Python. KCTL_COMPILED_SEEDS=1000, or
`python -m tools.compare_builds`, compares more seeds."""

import os
import shutil
import sysconfig
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.compare_builds import check_builds, compare, compile_copy, run
from tools.miscompiled import compiled_modules, required

SEEDS = range(int(os.environ.get("KCTL_COMPILED_SEEDS", "5")))
# The tests of the modules that are compiled.
TESTED = (
    "tests/broker/handlers/test_plain_commits.py",
    "tests/broker/log/test_log_validator.py",
    "tests/broker/network",
    "tests/broker/replication",
    "tests/protocol/test_server_phase.py",
    "tests/records/test_memory_records.py",
    "tests/records/test_plain_records.py",
    "tests/runtime",
)
pytestmark = [pytest.mark.slow, pytest.mark.sim, pytest.mark.long]


def why_it_cannot_be_built():
    """Return what is missing here; None if nothing is."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if find_spec("mypyc") is None:
        return "mypyc is not installed"
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "there is no Python.h"
    return None


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with compiled modules beside them."""
    missing = why_it_cannot_be_built()
    if missing is not None:
        pytest.skip(f"the compiled build is NOT tested: {missing}")
    tree = tmp_path_factory.mktemp("compiled")
    compile_copy(tree, "0")
    return tree


def test_the_version_that_is_required_compiled_it(tree):
    assert required() == [f"mypy=={version('mypy')}"]


def test_exactly_the_modules_of_the_list_are_compiled(tree):
    found = sorted((tree / "kctl").rglob("*.so"))
    assert [path.name.partition(".")[0] for path in found] == [
        path.stem for path in sorted(compiled_modules())
    ]


def test_the_command_says_which_build_runs(tree):
    check_builds(tree)


def test_the_tests_of_compiled_modules_pass(tree):
    run(tree, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *TESTED)


def test_the_digests_of_the_simulation_are_those_of_pure_python(tree):
    compared = [it for block in compare(tree, SEEDS) for it in block]
    assert [seed for seed, _, _ in compared] == list(SEEDS)
    assert [seed for seed, compiled, pure in compared if compiled != pure] == []
