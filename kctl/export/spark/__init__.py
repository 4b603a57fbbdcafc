"""Runs exports on Spark, and provides the data source `kctl`. The only package that imports
pyspark."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Imported when they are used: parts of the package work without pyspark.
    if name == "commit_offsets":
        from kctl.export.spark.query_offsets import commit_offsets

        return commit_offsets
    if name not in ("explain", "read"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kctl.export.spark.filtered_read import explain, read

    return explain if name == "explain" else read
