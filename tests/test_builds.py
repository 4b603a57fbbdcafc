"""Which build runs, and how a compiled one runs from its sources."""

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

import pytest

from kctl.builds import _Sources


@pytest.fixture
def package(tmp_path):
    """A directory with a module that is there twice, and one that is only compiled."""
    (tmp_path / "both.py").write_text("")
    for name in ("both", "compiled"):
        (tmp_path / f"{name}{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    return str(tmp_path)


def test_python_prefers_the_compiled_module(package):
    assert PathFinder.find_spec("kctl.both", [package]).origin.endswith(EXTENSION_SUFFIXES[0])


def test_the_sources_are_found_beside_compiled_modules(package):
    assert _Sources().find_spec("kctl.both", [package]).origin == f"{package}/both.py"


@pytest.mark.parametrize("name", ["other.both", "kctl.compiled", "kctl.missing"])
def test_other_modules_are_left_to_python(package, name):
    assert _Sources().find_spec(name, [package]) is None


def test_a_package_outside_any_other_is_left_to_python():
    assert _Sources().find_spec("kctl") is None


def test_pure_python_is_what_runs_on_demand():
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", "version"],
        env=os.environ | {"KCTL_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.endswith(" (pure Python)\n")
