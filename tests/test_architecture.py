"""The code has the layers of docs/architecture.md: import contracts, and the tables of APIs."""

import ast
import re
import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from kctl.broker.api_versions import api_versions_response
from kctl.broker.handlers import HANDLERS
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.later_apis import LaterApi
from tests.test_tidy import statements

ROOT = Path(__file__).parent.parent
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

# One wrong import for each contract of import-contracts.toml: (a word of its name, module, import).
PLANTED = [
    ("Layers", "kctl/records/varint.py", "import kctl.storage.layout"),
    ("Inside the broker", "kctl/broker/log/retention.py", "import kctl.broker.services"),
    ("0.7 stands alone", "kctl/broker07/__init__.py", "import kctl.broker.log.retention"),
    (
        "Inside the coordinators",
        "kctl/broker/coordinator/shard_host.py",
        "import kctl.broker.coordinator.group.group",
    ),
    ("ignore each other", "kctl/broker/handlers/fetch.py", "import kctl.broker.handlers.produce"),
    ("ReplicaManager", "kctl/broker/handlers/log_dirs.py", "import kctl.broker.log.log_manager"),
    ("outside world", "kctl/dump/log_dump.py", "def f():\n    import os"),
    ("given one", "kctl/admin/topics.py", "import kctl.runtime.real"),
    ("Pure cores", "kctl/broker/purgatory.py", "import kctl.broker.producer_ids"),
    ("click", "kctl/dump/documents.py", "import click"),
    ("cryptography", "kctl/tls/pem.py", "import cryptography"),
    ("kazoo", "kctl/store/embedded.py", "from kazoo.client import KazooClient"),
    ("h11", "kctl/metrics/parse.py", "import h11"),
    ("pyspark", "kctl/export/task.py", "import pyspark"),
]

needs_lint_imports = pytest.mark.skipif(not LINT_IMPORTS.exists(), reason="needs the extra `dev`")


def lint_imports(directory: Path) -> dict[str, str]:
    """Name of each contract -> "KEPT" or "BROKEN"."""
    done = subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--config", "import-contracts.toml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    # Long names are wrapped: put the paragraphs of the list back together.
    listing = re.split(r"-{20,}\n", done.stdout + done.stderr, maxsplit=1)[-1]
    words = " ".join(listing.split("Contracts: ")[0].split())
    verdicts = re.findall(r"(.+?) (KEPT|BROKEN)(?: \(\d+ ignored imports?\))?(?: |$)", words)
    assert verdicts, done.stdout + done.stderr
    return dict(verdicts)


@needs_lint_imports
def test_every_import_contract_is_kept():
    verdicts = lint_imports(ROOT)
    broken = [name for name, verdict in verdicts.items() if verdict != "KEPT"]
    assert not broken, f"{broken}: see lint-imports"
    assert len(verdicts) == len(PLANTED), "each contract has its wrong import in PLANTED"


@needs_lint_imports
@pytest.mark.slow
@pytest.mark.parametrize(("name", "module", "wrong_import"), PLANTED)
def test_a_wrong_import_breaks_its_contract(tmp_path, name, module, wrong_import):
    shutil.copy(ROOT / "import-contracts.toml", tmp_path)
    shutil.copytree(ROOT / "kctl", tmp_path / "kctl", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / module
    path.write_text(f"{path.read_text()}\n{wrong_import}\n")
    broken = [name for name, verdict in lint_imports(tmp_path).items() if verdict == "BROKEN"]
    assert any(name in contract for contract in broken), broken


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name.lower())
def test_every_api_has_a_module_of_its_name_with_request_and_response(key):
    module = import_module(f"kctl.protocol.messages.{key.name.lower()}")
    assert key.request_class.__module__ == module.__name__
    assert key.response_class.__module__ == module.__name__


@pytest.mark.parametrize(("package", "table"), [("messages", ApiKey), ("later", LaterApi)])
def test_every_message_module_belongs_to_an_api(package, table):
    modules = {path.stem for path in (ROOT / "kctl/protocol" / package).glob("*.py")}
    assert modules - {"__init__"} == {key.name.lower() for key in table}


def test_every_handler_is_named_for_its_api_and_lives_with_the_handlers():
    for key, handler in HANDLERS.items():
        assert handler.__name__ == f"handle_{key.name.lower()}"
        assert handler.__module__.startswith("kctl.broker.handlers.")


def test_every_handler_function_is_reached_through_HANDLERS():
    defined = set()
    for path in (ROOT / "kctl/broker/handlers").glob("*.py"):
        defined |= set(re.findall(r"^def (handle_\w+)", path.read_text(), re.MULTILINE))
    assert defined == {handler.__name__ for handler in HANDLERS.values()}


def test_api_versions_lists_exactly_what_has_a_handler():
    served = {key: (key.min_version, key.max_version) for key in HANDLERS}
    listed = api_versions_response(served).api_keys
    assert [(row.api_key, row.min_version, row.max_version) for row in listed] == [
        (int(key), key.min_version, key.max_version) for key in HANDLERS
    ]


def test_handler_modules_say_behaviour_and_versions():
    for path in sorted((ROOT / "kctl/broker/handlers").glob("*.py")):
        if path.stem == "__init__":
            continue
        docstring = import_module(f"kctl.broker.handlers.{path.stem}").__doc__ or ""
        assert "Behaviour:" in docstring, path.name
        assert "Versions:" in docstring, path.name
        assert "Kafka 2.7: " in docstring, path.name


def imports_of(path: Path) -> set[str]:
    """Modules of kctl that a module imports, under TYPE_CHECKING and in functions too."""
    found = set()
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found & MODULES.keys()


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "kctl").rglob("*.py"))
}


def test_no_modules_import_each_other_not_even_for_their_types():
    graph = TopologicalSorter({name: imports_of(path) for name, path in MODULES.items()})
    try:
        graph.prepare()
    except CycleError as error:
        pytest.fail(f"an import cycle: {' -> '.join(error.args[1])}")


def map_of_the_code() -> str:
    return (ROOT / "docs/architecture.md").read_text()


def test_the_map_names_only_what_exists():
    named = set(re.findall(r"`((?:kctl|tests|docs)/[\w./]*)`", map_of_the_code()))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_map_names_only_modules_of_the_package_it_describes():
    sections = re.split(r"^### ", map_of_the_code(), flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, text = section.partition("\n")
        packages = re.findall(r"`(kctl/[\w/]+/)`", title)
        if not packages:
            continue
        below = {path.name for path in (ROOT / packages[0]).rglob("*.py")}
        assert set(re.findall(r"`(\w+\.py)`", text)) <= below, title


def test_every_package_is_on_the_map():
    packages = [path.parent for path in sorted((ROOT / "kctl").glob("*/__init__.py"))]
    missing = [p.name for p in packages if f"### `kctl/{p.name}/`" not in map_of_the_code()]
    assert missing == []
