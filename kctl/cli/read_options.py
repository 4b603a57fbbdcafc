"""Options shared by the commands that read records: consume, dump-log, export."""

from collections.abc import Sequence
from typing import Annotated

from kctl.cli.declaration.declarations import Option
from kctl.counts import is_whole_number
from kctl.errors import UsageError

# Partitions are 32-bit.
PARTITION_MAX = (1 << 31) - 1

OffsetOption = Annotated[
    str | None,
    Option(
        "--offset",
        "-O",
        metavar="START[..END]",
        help="N, -N (the last N), @TIME (UTC without a zone), @-1h, earliest or latest; the end is "
        "exclusive.",
    ),
]
PartitionOption = Annotated[
    list[str] | None,
    Option("--partition", "-p", metavar="N,N", help="Only these partitions."),
]


def partition_numbers(texts: Sequence[str] | None) -> list[int] | None:
    """Return the partitions that `-p N,N` names, in order, or None without any."""
    if not texts:
        return None
    numbers = [number.strip() for text in texts for number in text.split(",")]
    for number in numbers:
        if not is_whole_number(number):
            raise UsageError(f"Not partitions: {', '.join(texts)}", hint="e.g. -p 0,3")
        if int(number) > PARTITION_MAX:
            raise UsageError(
                f"--partition must be at most {PARTITION_MAX}, not {number}", hint="e.g. -p 0,3"
            )
    return sorted({int(number) for number in numbers})
