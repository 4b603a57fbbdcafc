"""Runs exports on Spark, and provides the data source `kctl`. The only package that imports
pyspark."""

from importlib import import_module
from typing import Any

# Imported when they are used: parts of the package work without pyspark.
_HOMES = {"explain": "kctl.export.spark.filtered_read", "read": "kctl.export.spark.filtered_read"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
