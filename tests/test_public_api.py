"""Every public function, class and method of the packages that users import has a docstring."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("admin", "records", "dump", "export", "testing", "kafka")
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_protocol(node):
    """Return whether a class only lists what another class provides."""
    return any(ast.unparse(base).startswith("Protocol") for base in node.bases)


def is_setter(node):
    return any(isinstance(it, ast.Attribute) and it.attr == "setter" for it in node.decorator_list)


def is_overload(node):
    return any(isinstance(it, ast.Name) and it.id == "overload" for it in node.decorator_list)


def without_docstring(scope, prefix):
    """Yield the public names in a module or class, and in its public classes, that lack one."""
    for node in scope.body:
        if not isinstance(node, Documented) or node.name.startswith("_"):
            continue
        if is_setter(node) or is_overload(node):
            continue
        if ast.get_docstring(node) is None:
            yield f"{prefix}.{node.name}"
        if isinstance(node, ast.ClassDef) and not is_protocol(node):
            yield from without_docstring(node, f"{prefix}.{node.name}")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_docstring(package):
    missing = []
    for path in sorted((ROOT / "kctl" / package).rglob("*.py")):
        missing += without_docstring(ast.parse(path.read_text()), path.relative_to(ROOT).as_posix())
    assert missing == []
