"""The pages of docs/api: their examples, and whether they cover a module's public names."""

import inspect
import re
from importlib import import_module
from pathlib import Path

API = Path(__file__).parents[2] / "docs/api"


def examples(page: str) -> list[str]:
    """Return the Python examples of a page of docs/api, in order."""
    return re.findall(r"^```python\n(.*?)^```", (API / page).read_text(), re.MULTILINE | re.DOTALL)


def undocumented(page: str, modules: list[str]) -> list[str]:
    """Return the public names of `modules` that the page does not mention or that lack a docstring.

    The public methods and properties of public classes count, too.
    """
    text = (API / page).read_text()
    found = []
    for module in map(import_module, modules):
        for name in module.__all__:
            value = getattr(module, name)
            is_mentioned = re.search(rf"`[^`]*\b{name}\b[^`]*`", text) is not None
            if not is_mentioned or (_needs_docstring(value) and not value.__doc__):
                found.append(f"{module.__name__}.{name}")
            if inspect.isclass(value):
                found += [f"{module.__name__}.{name}.{it}" for it in _bare_members(value)]
    return found


def _needs_docstring(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _bare_members(cls: type) -> list[str]:
    members = {name: it for name, it in vars(cls).items() if not name.startswith("_")}
    return [
        name
        for name, it in members.items()
        if (inspect.isfunction(it) or isinstance(it, property | classmethod | staticmethod))
        and not it.__doc__
    ]
