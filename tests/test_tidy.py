"""House rules that a machine can check: sizes, docstrings, prints, stray code."""

import ast
import re
import tokenize
import tomllib
from collections.abc import Iterator
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


def _pure_modules() -> tuple[str, ...]:
    """The modules and packages of the contract on pure code, the one list of what is pure."""
    contracts = tomllib.loads((ROOT / "import-contracts.toml").read_text())
    [found] = [
        it["source_modules"]
        for it in contracts["tool"]["importlinter"]["contracts"]
        if it["name"].startswith("Pure cores")
    ]
    return tuple(found)


PURE = _pure_modules()

# These read and write files through the Disk that they are given, and never wait for anything.
SYNCHRONOUS = ("kctl.storage", "kctl.dump", "kctl.verify", "kctl.repair", "kctl.broker.log")

# Modules among them that wait: for background jobs, or for their next turn (`kctl.work.Pace`).
WAITING = (
    "kctl.broker.log.log_manager",
    "kctl.broker.log.log_cleaner",
    "kctl.broker.controller",
    "kctl.work",
)

# Modules that are reached by name, or from outside: message modules from ApiKey, commands from
# cli.app's table, and what is for tests.
REACHED_BY_NAME = (
    "kctl.protocol.messages.",
    "kctl.cli.",
    "kctl.__main__",
    "kctl.testing.",
    "kctl.simulation.",
)

# Modules that nothing of the product imports, and why they are here all the same.
UNREACHED = {
    "kctl.export.spark.source": "Spark's data source, registered by those who use it",
    "kctl.protocol.headers": "the definition against which the headers read by hand are tested",
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


def is_among(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def test_pure_and_synchronous_code_awaits_nothing():
    waiting = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in PRODUCT
        if is_among(module_name(path), PURE + SYNCHRONOUS)
        and not is_among(module_name(path), WAITING)
        for node in functions(path)
        if isinstance(node, ast.AsyncFunctionDef)
    ]
    assert waiting == []


@pytest.mark.parametrize("module", PURE + SYNCHRONOUS + WAITING)
def test_what_is_listed_as_pure_exists(module):
    path = ROOT / module.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").exists()


def test_every_module_that_calls_itself_pure_is_held_to_it():
    claiming = [
        module_name(path)
        for path in PRODUCT
        if re.search(r"(^|[.\n] ?)Pure\b", ast.get_docstring(parsed(path)) or "")
    ]
    assert len(claiming) > 40
    assert [module for module in claiming if not is_among(module, PURE)] == []


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
        for path in sorted((ROOT / "kctl/cli").rglob("*.py"))
        if path.name != "__init__.py"
        and module_name(path) not in reached
        and f'"{path.stem}"' not in table
        and module_name(path) not in table
        and 'if __name__ == "__main__":' not in path.read_text()
    ]
    assert unreached == []


# Words that readers stumble over, with what to write instead: the column "not" of CONTRIBUTING.md's
# glossary has each. Prose of users and developers (docs, docstrings, comments, help, messages,
# names of tests) has none of them; the changelog, the glossary and this file are exempt.
AVOIDED_WORDS = {
    "whoever": "any client",
    "somebody": "the caller",
    "nobody": "no broker",
    "told": "reported",
    "tells": "reports",
    "no more": "no longer",
    "any more": "no longer",
    "anew": "again",
    "mend": "repair",
    "mends": "repairs",
    "mended": "repaired",
    "short road": "fast path",
    "minds": "applies",
    "heed": "apply",
    "heeds": "applies",
}
# "no more" and "any more" are right before a quantity: "no more than 64 bytes", "no more bytes".
_AVOIDED = re.compile(
    r"\b("
    + "|".join(rf"{word}\b" for word in AVOIDED_WORDS if not word.endswith(" more"))
    + r"|(?:no|any) more(?=[.,;:)!]))",
    re.IGNORECASE,
)


def prose_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document, or of a module's comments and strings, with their numbers."""
    if path.suffix != ".py":
        yield from enumerate(path.read_text().splitlines(), 1)
        return
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in kinds:
                yield from enumerate(token.string.splitlines(), token.start[0])


def test_prose_avoids_words_that_the_glossary_replaces():
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{name(path)}:{number} {match.group()!r}"
        for path in PRODUCT + documents
        for number, line in prose_lines(path)
        for match in _AVOIDED.finditer(line)
    ]
    assert found == []


def spoken_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a test says of itself: its comments, its docstrings and the names it defines.

    Other strings are exempt: many are test data, or messages of Apache Kafka.
    """
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            line = getattr(node, "lineno", 1)
            yield line, ast.get_docstring(node) or ""
            yield line, getattr(node, "name", "").replace("_", " ")
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id.replace("_", " ")


def test_tests_avoid_words_that_the_glossary_replaces():
    found = [
        f"{name(path)}:{number} {match.group()!r}"
        for path in SOURCES
        if path not in PRODUCT and path != Path(__file__)
        for number, line in spoken_lines(path)
        for match in _AVOIDED.finditer(line)
    ]
    assert found == []


def test_the_glossary_has_every_avoided_word():
    rows = [line.split("|") for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()]
    replaced = " ".join(row[3] for row in rows if len(row) == 5)
    assert [word for word in AVOIDED_WORDS if not re.search(rf"\b{word}\b", replaced)] == []


# First words of a docstring that names a result or a parameter instead of saying what happens.
NOUN_PHRASE_STARTS = (
    "A After All An And Another As At Each Every From How If In Its No Nobody Nothing Of On One "
    "Once Or Some Something That The There These This Those To True Until What Whatever When "
    "Where Whether Which Who Whoever Whom Whose Why With"
)


def test_docstrings_of_functions_begin_with_a_verb():
    nouns = [
        f"{name(path)}:{node.lineno} {node.name}: {words[0]}"
        for path in PRODUCT
        for node in functions(path)
        if (words := (ast.get_docstring(node) or "").split())
        and (words[0] in NOUN_PHRASE_STARTS.split() or words[0].startswith("`"))
    ]
    assert nouns == []
