"""Options of the commands that read records: consume, dump-log, export."""

from typing import Annotated

import typer

OffsetOption = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-O",
        metavar="START[..END]",
        help="N, -N (the last N), @TIME, @-1h, earliest or latest; the end is exclusive.",
    ),
]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="N,N", help="Only these partitions."),
]
