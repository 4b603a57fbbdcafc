"""House rules that a machine can check: sizes, docstrings, prints, stray code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

PRODUCT = sorted((ROOT / "kctl").rglob("*.py"))
SOURCES = PRODUCT + sorted(
    path for folder in ("tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")
)

# Values and decisions only: whoever waits for something is a shell, and lives elsewhere.
PURE = (
    "kctl/protocol/", "kctl/records/", "kctl/storage/", "kctl/dump/", "kctl/errors.py",
    "kctl/model.py", "kctl/replica_assignment.py", "kctl/broker/log/",
    "kctl/broker/coordinator/group/", "kctl/broker/fetch_session.py", "kctl/broker/purgatory.py",
    "kctl/broker/metadata_cache.py", "kctl/store/tree.py", "kctl/store/sessions.py",
    "kctl/store/znodes.py", "kctl/client/cluster_view.py", "kctl/client/retry.py",
)  # fmt: skip

# Shells among them: they wait for background jobs.
PURE_BUT = ("kctl/broker/log/log_manager.py", "kctl/broker/log/log_cleaner.py")

# Modules that are reached by name, or from outside: message modules from ApiKey, commands from
# cli.app's table, and what is for tests.
REACHED_BY_NAME = ("kctl.protocol.messages.", "kctl.cli.", "kctl.__main__", "kctl.testing.")

# Modules that nothing of the product imports, and why they are here all the same.
UNREACHED = {
    "kctl.export.spark.source": "Spark's data source, registered by those who use it",
    "kctl.protocol.headers": "the definition against which the headers read by hand are tested",
    "kctl.store.security_znodes": "for access control; its bytes are checked already",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(parsed(path)) if isinstance(node, kinds)]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path) -> set[str]:
    """Modules, and names that may be modules, which a file imports anywhere in it."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_modules_are_short():
    long = {name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in long.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_are_short():
    long = [
        f"{name(path)}:{node.lineno} {node.name}: {lines} lines"
        for path in SOURCES
        for node in functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_lines_are_narrow():
    wide = [
        f"{name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert wide == []


def test_every_module_opens_with_its_purpose():
    assert [name(path) for path in PRODUCT if not ast.get_docstring(parsed(path))] == []


def test_every_public_class_says_what_it_is():
    silent = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in PRODUCT
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and "protocol/messages" not in name(path)  # the names are Kafka's, and say it
    ]
    assert silent == []


def test_only_the_commands_output_prints():
    printing = [
        f"{name(path)}:{node.lineno}"
        for path in PRODUCT
        if name(path) != "kctl/cli/output.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def test_pure_packages_await_nothing():
    waiting = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in PRODUCT
        if name(path).startswith(PURE) and name(path) not in PURE_BUT
        for node in functions(path)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert waiting == []


@pytest.mark.parametrize("prefix", PURE)
def test_what_is_listed_as_pure_exists(prefix):
    assert (ROOT / prefix).exists()


def test_every_todo_names_an_issue():
    mark = "TO" + "DO"
    nameless = [
        f"{name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark in line and not re.search(mark + r": .+ \(#\d+\)", line)
    ]
    assert nameless == []


def test_every_module_is_imported_by_another():
    reached: set[str] = set()
    for path in PRODUCT:
        reached |= imported_names(path) - {module_name(path)}
    unreached = [
        module_name(path)
        for path in PRODUCT
        if path.name != "__init__.py"
        and module_name(path) not in reached
        and not module_name(path).startswith(REACHED_BY_NAME)
    ]
    assert unreached == sorted(UNREACHED), "dead, not yet wired in, or no longer an exception"


def test_every_module_of_commands_is_in_the_table_or_imported():
    table = (ROOT / "kctl/cli/app.py").read_text()
    reached = set().union(*(imported_names(path) for path in PRODUCT))
    unreached = [
        module_name(path)
        for path in sorted((ROOT / "kctl/cli").glob("*.py"))
        if path.name != "__init__.py"
        and module_name(path) not in reached
        and f'"{path.stem}"' not in table
        and module_name(path) not in table
        and 'if __name__ == "__main__":' not in path.read_text()
    ]
    assert unreached == []
