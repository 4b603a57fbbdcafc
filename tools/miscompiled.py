"""Finds what mypyc compiles into something else than Python does: `python -m tools.miscompiled`.

Seen with mypyc 2.4.1, or with the release before it:

- a bound of a slice that has an effect, `view[os.write(fd, view):]`, is evaluated twice for
  anything but bytes and lists;
- `except A as e` twice in one function gives `e` one type, and the second may raise TypeError;
- bytes that are indexed by a `slice` object raise TypeError;
- `content[8:3]` of bytes raises SystemError, where Python returns nothing;
- `evict = _reject` in a class, after `def _reject`, looks the method up among the names of the
  module, so the first instance fails with KeyError.
- `super().__init__(*arguments)` passes the tuple as one argument.

Bounds of bytes that are reversed only at run time raise SystemError, too, and are not seen here.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Calls without effects, which may be made twice.
HARMLESS_CALLS = frozenset({"abs", "int", "len", "max", "min"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Finding = tuple[int, str]


def compiled_modules() -> list[Path]:
    """Return the paths of the modules that may be compiled, which pyproject.toml lists."""
    return [ROOT / path for path in _settings()["modules"]]


def required() -> list[str]:
    """Return what the compiled build requires."""
    return _settings()["requires"]


def _settings() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: dict[str, list[str]] = project["tool"]["kctl-compiled"]
    return found


def find_miscompiled(source: str) -> list[Finding]:
    """Return the line and a description of each such idiom in a module's `source`."""
    tree = ast.parse(source)
    found = [*_in_function(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Slice):
            found += _in_slice(node)
        elif isinstance(node, ast.Name) and node.id == "slice":
            found.append((node.lineno, "a slice object, by which bytes cannot be indexed"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _in_function(node)
        elif isinstance(node, ast.ClassDef):
            found += _in_class(node)
        elif isinstance(node, ast.Call):
            found += _in_call(node)
    return sorted(found)


def _in_slice(node: ast.Slice) -> Iterator[Finding]:
    for bound in (node.lower, node.upper):
        if bound is not None and any(map(_has_effect, ast.walk(bound))):
            yield bound.lineno, f"the bound {ast.unparse(bound)} may be evaluated twice"
    lower, upper = _constant(node.lower), _constant(node.upper)
    # With different signs the order depends on the length.
    if lower is not None and upper is not None and (lower < 0) == (upper < 0) and lower > upper:
        yield node.lower.lineno if node.lower else 0, f"reversed bounds {lower}:{upper}"


def _has_effect(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in HARMLESS_CALLS)
    return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)


def _constant(node: ast.expr | None) -> int | None:
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _in_function(function: ast.AST) -> Iterator[Finding]:
    names = Counter[str]()
    for node in _own_nodes(function):
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            names[node.name] += 1
            if names[node.name] == 2:
                yield node.lineno, f"a second `except ... as {node.name}` in one function"


def _in_class(node: ast.ClassDef) -> Iterator[Finding]:
    methods = {it.name for it in node.body if isinstance(it, ast.FunctionDef)}
    for it in node.body:
        if isinstance(it, ast.Assign) and isinstance(it.value, ast.Name) and it.value.id in methods:
            yield it.lineno, f"a second name for the method {it.value.id}"


def _in_call(node: ast.Call) -> Iterator[Finding]:
    is_starred = any(isinstance(it, ast.Starred) for it in node.args) or any(
        it.arg is None for it in node.keywords
    )
    if is_starred and ast.unparse(node.func).startswith("super()."):
        yield node.lineno, "arguments with stars in a call of super()"


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module without those of the functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, FUNCTIONS):
            yield node
            yield from _own_nodes(node)


def main() -> int:
    """Write what was found to standard output; return 1 if there is anything."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}\n"
        for path in compiled_modules()
        for line, text in find_miscompiled(path.read_text())
    ]
    sys.stdout.write("".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
