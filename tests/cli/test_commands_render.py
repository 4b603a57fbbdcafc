"""A command parses, calls one library function, renders: it awaits nothing itself."""

import ast
from pathlib import Path

CLI = Path(__file__).parents[2] / "kctl/cli"

# Modules that await, and why a single call is not enough.
AWAITING = {
    "profile/guard.py": "asks the cluster for its id before the command's own work",
    "records/consume.py": "prints records while they arrive",
    "top/live.py": "serves keys while brokers are slow to answer",
    "session.py": "runs what commands pass to it",
}


def awaits(path):
    """Return whether a module has a coroutine of its own."""
    nodes = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(node, nodes) for node in ast.walk(ast.parse(path.read_text())))


def test_commands_await_nothing():
    awaiting = {path.relative_to(CLI).as_posix() for path in CLI.rglob("*.py") if awaits(path)}
    assert awaiting - AWAITING.keys() == set(), "move the orchestration to kctl.admin"
    assert AWAITING.keys() - awaiting == set(), "no longer an exception"
