"""docs/api/admin.md: its examples run, and its table lists the public modules."""

import ast
import re
from pathlib import Path

from kctl.testing.kafka_broker import KafkaBroker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api/admin.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
INTERNAL = {"json_file", "replica_balance", "replica_placement", "reassignment_znodes"}
MODULES = {path.stem: path for path in (ROOT / "kctl/admin").glob("[a-z]*.py")}


def test_the_examples_run_one_after_another():
    namespace = {}
    with KafkaBroker() as broker:
        for example in EXAMPLES:
            text = example.replace('("localhost", 9092)', repr((broker.host, broker.port)))
            exec(compile(text, "docs/api/admin.md", "exec"), namespace)
        namespace["runtime"].scheduler.close()


def test_the_table_lists_every_public_module():
    table = PAGE[PAGE.index("## Modules") : PAGE.index("are internal.")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(MODULES) - INTERNAL


def test_every_public_function_and_class_has_a_docstring():
    missing = []
    for name in sorted(set(MODULES) - INTERNAL):
        tree = ast.parse(MODULES[name].read_text())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for scope in (tree, *classes):
            missing += [
                f"{name}.{node.name}"
                for node in scope.body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and not node.name.startswith("_")
                and ast.get_docstring(node) is None
            ]

    assert missing == []
