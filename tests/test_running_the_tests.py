"""The tests themselves run wherever they are started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STATE = (
    "import signal, sys;"
    "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, sys.dont_write_bytecode)"
)


def test_processes_that_tests_start_are_interrupted_and_cache_their_bytecode():
    ran = subprocess.run(
        [sys.executable, "-c", STATE], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout == "False False\n"


def test_where_the_tests_are_started_changes_nothing_for_these_processes():
    """`nohup`, and `&` in a script, ignore SIGINT: commands would inherit that and never end.
    Images of containers set PYTHONDONTWRITEBYTECODE: every process would compile kctl again."""
    shell = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly"
    ran = subprocess.run(
        ["sh", "-c", f"{shell} tests/test_running_the_tests.py -k processes_that_tests_start"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_doctests_are_sought_only_in_files_that_have_some(request):
    def collectors(path):
        collect = request.config.hook.pytest_collect_file
        return [type(it) for it in collect(file_path=ROOT / path, parent=request.session)]

    (doctests,) = collectors("kctl/java_hash.py")
    assert doctests is not pytest.Module
    assert collectors("kctl/errors.py") == []
    assert collectors("tests/test_java_hash.py") == [pytest.Module]
