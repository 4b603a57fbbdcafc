"""kctl topic offsets-07: offsets of a broker of Kafka 0.7.

Kafka 0.7: kafka.tools.GetOffsetShell
"""

from typing import Annotated, Any

from kctl.cli.declaration.command import INT32_MAX, Range
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.cli.topic.scope import partitions_named
from kctl.cli.units import parse_instant_ms
from kctl.errors import UsageError

_COLUMNS = ("topic", "partition", "offsets")


def offsets_07(
    session: Session,
    partitions: Annotated[
        list[str], Argument(metavar="TOPIC:P[,P]", help="Partitions of the broker.")
    ],
    time: Annotated[
        str,
        Option(
            "--time",
            metavar="TIME",
            help="latest (-1), earliest (-2), or a time: 2026-01-31, in UTC without a zone; -1h.",
        ),
    ] = "latest",
    offsets_max: Annotated[
        int,
        Option("--max", metavar="N", help="Show at most N offsets of a partition."),
        Range(0, INT32_MAX),
    ] = 1,
) -> int:
    """Show offsets of a broker of Kafka 0.7, which -b names: positions in bytes, newest first.

    For a time, these are the starts of segments that were last written before it. A partition that
    nothing was written to has the offset 0.

    \b
    Examples:
      kctl topic offsets-07 clicks:0,1 -b old-kafka:9092
      kctl topic offsets-07 clicks:0 -b old-kafka:9092 --time earliest
      kctl topic offsets-07 clicks:0 -b old-kafka:9092 --time=-7d --max 100
    """
    from kctl.admin.offsets07 import offsets_before

    wanted = [
        (topic, number)
        for topic, numbers in partitions_named(partitions).items()
        for number in _named(topic, numbers)
    ]
    time_ms = _time_ms(time, session.now_ms())
    broker, *others = session.settings.bootstrap_servers
    if others:
        raise UsageError("A partition of Kafka 0.7 is on one broker: name it with -b")
    # Kafka 0.7 has no ids of clusters.
    session.settings.guard.check_cluster(None)
    found = session.run(
        lambda admin: offsets_before(
            admin.router.runtime, *broker, wanted, time_ms, offsets_max, admin.router.timeout_ms
        ),
        by_brokers=False,
    )
    documents: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": partition,
            "offsets": found.offsets.get((topic, partition)),
            "error": str(error) if (error := found.errors.get((topic, partition))) else None,
        }
        for topic, partition in wanted
    ]
    rows = [{**it, "offsets": list(map(str, it["offsets"] or []))} for it in documents]
    session.output.show(documents, name="topic", tables=[Table(_COLUMNS, rows)])
    for (topic, partition), error in found.errors.items():
        session.output.say(f"error: {topic}-{partition}: {error}")
    return FAILED if found.errors else DONE


def _named(topic: str, numbers: list[int] | None) -> list[int]:
    if numbers is None:
        raise UsageError(f"{topic} names no partition", hint=f"e.g. {topic}:0")
    return numbers


def _time_ms(text: str, now_ms: int) -> int:
    from kctl.protocol.kafka07 import EARLIEST_TIME, LATEST_TIME

    names = {"latest": LATEST_TIME, "earliest": EARLIEST_TIME}
    named = names | {str(time_ms): time_ms for time_ms in names.values()}
    return named[text] if text in named else parse_instant_ms(text, now_ms)
