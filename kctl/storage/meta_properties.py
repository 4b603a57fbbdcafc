"""meta.properties: the cluster and the broker that a log directory belongs to.

A Java properties file. Version 0 has `broker.id` and, since 0.10.1, `cluster.id`; version 1 (KRaft,
Kafka 2.8 and later) has `node.id`, `cluster.id` and, since 3.7, `directory.id`. kctl writes
version 0 and reads version 1 for forensics only: a broker rejects a directory of KRaft.

Kafka 2.7: kafka.server.BrokerMetadataCheckpoint, BrokerMetadata; KIP-631, KIP-858
"""

from dataclasses import field
from datetime import UTC, datetime

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.lines import split_lines

_VERSION = 0
_KRAFT_VERSION = 1
_ID_NAMES = {_VERSION: "broker.id", _KRAFT_VERSION: "node.id"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a directory; `cluster_id` is None in files of Kafka before 0.10.1."""

    # The node id in a file of version 1.
    broker_id: int
    cluster_id: str | None
    # Read for forensics; a broker's directory is known by the ids above.
    version: int = field(default=_VERSION, compare=False)
    directory_id: str | None = field(default=None, compare=False)

    def encode(self, now_ms: int) -> bytes:
        """Return the file, with a date in the format of Java's Properties."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        lines = ["#", f"#{now:%a %b %d %H:%M:%S UTC %Y}", f"broker.id={self.broker_id}"]
        lines.append(f"version={_VERSION}")
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read a file of version 0; raise CorruptDataError that names `path` and what is wrong."""
    return _read(data, path, versions=(_VERSION,))


def read_any_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read a file of any Kafka up to 4.1; raise CorruptDataError as above."""
    return _read(data, path, versions=(_VERSION, _KRAFT_VERSION))


def _read(data: bytes, path: str, *, versions: tuple[int, ...]) -> MetaProperties:
    try:
        lines = split_lines(data.decode("latin-1"))
        values = dict(_pair(line) for line in lines if line.strip() and line.strip()[0] not in "#!")
    except ValueError:
        raise CorruptDataError(f"{path}: not a properties file") from None
    version = values.get("version", "")
    if version not in map(str, versions):
        raise CorruptDataError(f"{path}: unrecognized version {version!r} of meta.properties")
    name = _ID_NAMES[int(version)]
    number = values.get(name, "")
    if not number.removeprefix("-").isdecimal():
        raise CorruptDataError(f"{path}: {name} is {number!r}, not a number")
    return MetaProperties(
        int(number), values.get("cluster.id"), int(version), values.get("directory.id")
    )


def _pair(line: str) -> tuple[str, str]:
    name, value = line.split("=", 1)
    return name.strip(), value.strip()
