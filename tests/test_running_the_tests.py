"""The tests themselves run wherever they are started."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_commands_are_interrupted_where_the_tests_were_started_with_sigint_ignored():
    """`nohup`, and `&` in a script, ignore SIGINT: commands would inherit that and never end."""
    shell = f"trap '' INT; exec {sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly"
    ran = subprocess.run(
        ["sh", "-c", f"{shell} tests/cli/test_interrupt.py -k without_a_group_stops"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout
