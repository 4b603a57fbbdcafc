"""kctl mirror translate: the offsets of the other side."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.topic_options import DEFAULT_NAME, NameOption
from kctl.cli.positions import OFFSET_MAX
from kctl.cli.read_options import PARTITION_MAX
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.mirror.translation import Translation

COLUMNS = ("topic", "partition", "offset", "to_topic", "to_offset", "result")


def translate(
    ends: EndOptions,
    group: Annotated[
        str | None, Argument(metavar="GROUP", help="A group whose offsets are translated.")
    ] = None,
    offset: Annotated[
        list[str] | None,
        Option("--offset", metavar="TOPIC:P:N", help="An offset; may be repeated."),
    ] = None,
    to_source: Annotated[
        bool, Option("--to-source", help="From the target to the source.")
    ] = False,
    name: NameOption = DEFAULT_NAME,
) -> int:
    """Translate offsets of the source to the target, exactly, by the map of a mirror. Nothing is
    changed. Exit with 1 if one cannot be translated yet.

    An offset is that of a consumer: the next record to read. Offsets given by --offset need no
    connection to the source.

    \b
    Examples:
      kctl mirror translate billing --source dc1:9092 --target dc2:9092
      kctl mirror translate --offset orders:0:1234 --target dc2:9092
      kctl mirror translate --to-source --offset orders:0:1200 --target dc2:9092 -o json
    """
    from kctl.mirror.formats import check_name
    from kctl.mirror.translation import translate_group_of, translate_offsets

    if (group is None) == (not offset):
        raise UsageError("Name a group, or offsets with --offset")
    check_name(name)
    session = ends.session()
    wanted = [_offset(text) for text in offset or ()]

    if group is None:
        found = session.run(
            lambda target: translate_offsets(target, name, wanted, to_source=to_source)
        )
    elif to_source:
        found = session.run(
            lambda target: translate_group_of(target, target, name, group, to_source=True)
        )
    else:
        found = ends.run(
            session, lambda source, target: translate_group_of(source, target, name, group)
        )
    session.output.show([_document(each) for each in found], COLUMNS, name="to_offset")
    return FAILED if any(each.to_offset is None for each in found) else DONE


def _offset(text: str) -> tuple[TopicPartition, int]:
    topic, _, rest = text.partition(":")
    partition, _, number = rest.partition(":")
    is_right = is_whole_number(partition, PARTITION_MAX) and is_whole_number(number, OFFSET_MAX)
    if not topic or not is_right:
        raise UsageError(f"Not TOPIC:PARTITION:OFFSET: {text}", hint="e.g. --offset orders:0:1234")
    return TopicPartition(topic, int(partition)), int(number)


def _document(each: "Translation") -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "offset": each.offset,
        "to_topic": None if each.to_partition is None else each.to_partition.topic,
        "to_offset": each.to_offset,
        "result": each.reason or "exact",
    }
