"""House rules that a machine can check: sizes, docstrings, prints, stray code."""

import ast
import builtins
import re
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from tools.miscompiled import compiled_modules, find_miscompiled

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

# Modules that are reached by name, or from outside: message modules from ApiKey, handlers from
# HANDLERS, commands from cli.app's table, and what is for tests.
REACHED_BY_NAME = (
    "kctl.protocol.messages.",
    "kctl.broker.handlers.",
    "kctl.cli.",
    "kctl.__main__",
    "kctl.testing.",
    "kctl.simulation.",
    "kctl.kafka.",
)

# Modules that nothing of the product imports, and why they are here all the same.
UNREACHED = {
    "kctl.protocol.headers": "the definition against which the headers read by hand are tested",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@dataclass(frozen=True)
class Function:
    """A function or method, wherever it is."""

    name: str
    first_line: int
    last_line: int
    is_async: bool
    docstring: str


@dataclass(frozen=True)
class Outline:
    """What the rules ask about a file; its tree would be a thousand times larger, and is let go."""

    docstring: str | None
    functions: tuple[Function, ...]
    # Modules, and names that may be modules, which it imports anywhere in it.
    imports: frozenset[str]
    # Line and name of public classes without a docstring.
    silent_classes: tuple[tuple[int, str], ...]


@cache
def outline(path: Path) -> Outline:
    tree = ast.parse(text_of(path), str(path))
    functions, imports = [], set()
    for node in statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_async = isinstance(node, ast.AsyncFunctionDef)
            last, docstring = node.end_lineno or node.lineno, ast.get_docstring(node) or ""
            functions.append(Function(node.name, node.lineno, last, is_async, docstring))
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    silent = [
        (node.lineno, node.name)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    return Outline(ast.get_docstring(tree), tuple(functions), frozenset(imports), tuple(silent))


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those inside them: functions and imports are not in expressions."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, part, []))
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(branch.body)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_modules_are_short():
    long = {name(path): len(text_of(path).splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in long.items() if lines > MODULE_LINES_MAX} == {}


def test_functions_are_short():
    long = [
        f"{name(path)}:{it.first_line} {it.name}: {lines} lines"
        for path in SOURCES
        for it in outline(path).functions
        if (lines := it.last_line - it.first_line + 1) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_lines_are_narrow():
    wide = [
        f"{name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert wide == []


def test_every_module_opens_with_its_purpose():
    assert [name(path) for path in PRODUCT if not outline(path).docstring] == []


def test_every_public_class_says_what_it_is():
    silent = [
        f"{name(path)}:{line} {class_name}"
        for path in PRODUCT
        for line, class_name in outline(path).silent_classes
        if "protocol/messages" not in name(path)  # the names are Kafka's, and say it
    ]
    assert silent == []


def test_only_the_commands_output_prints():
    printing = [
        f"{name(path)}:{node.lineno}"
        for path in PRODUCT
        if name(path) != "kctl/cli/output.py"
        if "print(" in text_of(path)
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def is_among(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def test_pure_and_synchronous_code_awaits_nothing():
    waiting = [
        f"{name(path)}:{it.first_line} {it.name}"
        for path in PRODUCT
        if is_among(module_name(path), PURE + SYNCHRONOUS)
        and not is_among(module_name(path), WAITING)
        for it in outline(path).functions
        if it.is_async
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
        if re.search(r"(^|[.\n] ?)Pure\b", outline(path).docstring or "")
    ]
    assert len(claiming) > 40
    assert [module for module in claiming if not is_among(module, PURE)] == []


def test_every_todo_names_an_issue():
    mark = "TO" + "DO"
    nameless = [
        f"{name(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if mark in line and not re.search(mark + r": .+ \(#\d+\)", line)
    ]
    assert nameless == []


def test_every_module_is_imported_by_another():
    reached: set[str] = set()
    for path in PRODUCT:
        reached |= outline(path).imports - {module_name(path)}
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
    reached = set().union(*(outline(path).imports for path in PRODUCT))
    unreached = [
        module_name(path)
        for path in sorted((ROOT / "kctl/cli").rglob("*.py"))
        if path.name != "__init__.py"
        and module_name(path) not in reached
        and f'"{path.stem}"' not in table
        and module_name(path) not in table
        and 'if __name__ == "__main__":' not in text_of(path)
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


def may_have_avoided_words(path: Path) -> bool:
    """Whether it is worth taking the file apart: tokens are slow to come by."""
    return _AVOIDED.search(text_of(path).replace("_", " ")) is not None


def prose_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document, or of a module's comments and strings, with their numbers."""
    if path.suffix != ".py":
        yield from enumerate(text_of(path).splitlines(), 1)
        return
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))
    for token in tokenize.generate_tokens(StringIO(text_of(path)).readline):
        if token.type in kinds:
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_prose_avoids_words_that_the_glossary_replaces():
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{name(path)}:{number} {match.group()!r}"
        for path in PRODUCT + documents
        if may_have_avoided_words(path)
        for number, line in prose_lines(path)
        for match in _AVOIDED.finditer(line)
    ]
    assert found == []


def spoken_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a test says of itself: its comments, its docstrings and the names it defines.

    Other strings are exempt: many are test data, or messages of Apache Kafka.
    """
    for token in tokenize.generate_tokens(StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text_of(path))):
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
        if may_have_avoided_words(path)
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
        f"{name(path)}:{it.first_line} {it.name}: {words[0]}"
        for path in PRODUCT
        for it in outline(path).functions
        if (words := it.docstring.split())
        and (words[0] in NOUN_PHRASE_STARTS.split() or words[0].startswith("`"))
    ]
    assert nouns == []


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        ("left = view[write(fd, view):]", "the bound write(fd, view) may be evaluated twice"),
        ("left = view[: (end := 3)]", "the bound (end := 3) may be evaluated twice"),
        (
            "try:\n    f()\nexcept A as e:\n    g(e)\nexcept B as e:\n    h(e)",
            "a second `except ... as e` in one function",
        ),
        ("part = content[slice(2, 4)]", "a slice object, by which bytes cannot be indexed"),
        ("part = content[8:3]", "reversed bounds 8:3"),
        ("part = content[-3:-8]", "reversed bounds -3:-8"),
    ],
)
def test_idioms_that_mypyc_gets_wrong_are_found(lines, finding):
    assert [text for _, text in find_miscompiled(lines)] == [finding]
    inside = "def f():\n" + "\n".join(f"    {line}" for line in lines.splitlines())
    assert [text for _, text in find_miscompiled(inside)] == [finding]


@pytest.mark.parametrize("arguments", ["*arguments", "1, **options"])
def test_stars_in_calls_of_super_are_found(arguments):
    call = f"super().__init__({arguments})"
    assert find_miscompiled(call) == [(1, "arguments with stars in a call of super()")]
    assert find_miscompiled(f"other.f({arguments}), super().__init__(arguments)") == []


def test_second_names_of_methods_are_found():
    lines = "class A:\n    limit = LIMIT\n    def end(self):\n        pass\n    close = end\n"
    assert find_miscompiled(lines) == [(5, "a second name for the method end")]


def test_idioms_that_mypyc_compiles_well_are_not_found():
    assert (
        find_miscompiled("part = content[len(head) : start + 4], content[3:8], content[2:-8]") == []
    )
    one = "def {}():\n    try:\n        g()\n    except A as e:\n        h(e)\n"
    assert find_miscompiled(one.format("first") + one.format("second")) == []


def test_modules_that_may_be_compiled_have_none_of_those_idioms():
    found = [
        f"{name(path)}:{line}: {text}"
        for path in compiled_modules()
        for line, text in find_miscompiled(text_of(path))
    ]
    assert found == []


def test_constants_of_modules_that_may_be_compiled_are_final():
    # mypyc looks a name of a module up in a dictionary at each use, but inlines Final constants.
    found = [
        f"{name(path)}:{node.lineno} {node.targets[0].id}"
        for path in compiled_modules()
        for node in ast.parse(text_of(path)).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and re.fullmatch(r"_?[A-Z][A-Z0-9_]+", node.targets[0].id)
    ]
    assert found == []


def test_modules_that_make_things_durable_are_never_compiled():
    durable = ("kctl/runtime/real/disk.py", "kctl/broker/log/checkpoints.py")
    listed = [name(path) for path in compiled_modules()]
    assert listed == sorted(set(listed))
    assert not set(durable) & set(listed)


def test_the_bases_of_classes_that_may_be_compiled_may_be_compiled():
    # mypyc ends with an internal error, or looks attributes up as Python does. Exceptions are fine.
    listed = {module_name(path) for path in compiled_modules()}
    found = []
    for path in compiled_modules():
        tree = ast.parse(text_of(path))
        interpreted = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module not in listed
            for alias in node.names
            if (node.module or "").startswith("kctl.") and not alias.name.endswith("Error")
        }
        found += [
            f"{name(path)}:{node.lineno} {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id in interpreted for base in node.bases)
        ]
    assert found == []


def test_classes_that_may_be_compiled_inherit_from_no_other_builtin_than_exception():
    # mypyc ends with "Inheriting from most builtin types is unimplemented".
    builtin = {name for name, it in vars(builtins).items() if isinstance(it, type)}
    refused = builtin - {"object", "Exception", "BaseException", "dict"}
    found = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in compiled_modules()
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in refused for base in node.bases)
    ]
    assert found == []


def test_no_interpreted_class_inherits_from_one_that_may_be_compiled():
    listed = {module_name(path) for path in compiled_modules()}
    imported = re.compile(rf"from ({'|'.join(map(re.escape, sorted(listed)))}) import")
    found = []
    for path in PRODUCT:
        # To parse a file takes a hundred times as long.
        if module_name(path) in listed or not imported.search(text_of(path)):
            continue
        tree = ast.parse(text_of(path))
        bases = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module in listed
            for alias in node.names
        }
        found += [
            f"{name(path)}:{node.lineno} {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id in bases for base in node.bases)
        ]
    assert found == []
