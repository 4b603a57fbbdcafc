"""The options of kctl consume --zookeeper, which reads as a member of a group on ZooKeeper."""

from typing import Annotated

from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError

ZooKeeperOption = Annotated[
    str | None,
    Option(
        "--zookeeper",
        metavar="HOST:PORT[/PATH]",
        help="With --group: a group on ZooKeeper, as of Kafka 0.7 to 1.1.",
    ),
]

_OTHERS = ("--exit", "--tail", "--isolation or --read-committed")


def check_options(zookeeper: str | None, group: str | None, *others: object) -> None:
    """Raise UsageError for options that a group on ZooKeeper does not have; `others` are the values
    of _OTHERS."""
    if zookeeper is None:
        return
    if group is None:
        raise UsageError("--zookeeper is for members of a group: add --group")
    given = [name for name, value in zip(_OTHERS, others, strict=True) if value]
    if given:
        raise UsageError(f"{given[0]} cannot be combined with --zookeeper")
