"""commit_offsets: commits to a group what a streaming query has done, from its last progress.

With `kctl.commit.offsets` the source itself does so, when Spark asks it for the batch after. Before
Spark 4.2 nothing asks a source after the last batch of the trigger availableNow; there the program
calls this function when the query has ended.
"""

from ast import literal_eval
from collections.abc import Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.export.spark.admission import Offsets
from kctl.export.spark.options import COMMIT_OFFSETS, SourceOptions
from kctl.export.spark.places import commit_offsets as commit

__all__ = ["commit_offsets"]


def commit_offsets(query: Any, options: Mapping[str, str]) -> Offsets:
    """Commit the offsets that the last batch of a StreamingQuery has reached to the group
    `kafka.group.id`, and return them; return {} and commit nothing if it has done no batch.

    `options` are those of the query's source, which must be its only one. UsageError for options
    without a group; ApiError if the group has members.
    """
    source = SourceOptions({**options, COMMIT_OFFSETS: "true"})
    progress = query.lastProgress
    sources = [] if progress is None else progress["sources"]
    if len(sources) > 1:
        raise UsageError("The query has several sources, whose offsets cannot be distinguished")
    end = sources[0]["endOffset"] if sources else None
    # The text of a dictionary: Python's on Spark 4.0 and 4.1, JSON's on 4.3.
    found: Offsets = literal_eval(end or "None") or {}
    if found:
        commit(source, found)
    return found
