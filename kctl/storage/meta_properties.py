"""meta.properties: to which cluster and which broker a log directory belongs.

A Java properties file of version 0 with `broker.id` and, since 0.10, `cluster.id`. A line of
Kafka's later formats (KRaft's version 1) is refused rather than overwritten.

Kafka 2.7: kafka.server.BrokerMetadataCheckpoint, BrokerMetadata
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from kctl.errors import CorruptDataError

_VERSION = "0"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory this is; `cluster_id` is None in files of Kafka before 0.10."""

    broker_id: int
    cluster_id: str | None

    def encode(self, now_ms: int) -> bytes:
        """The file, dated as Java's Properties date theirs."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        lines = ["#", f"#{now:%a %b %d %H:%M:%S UTC %Y}", f"broker.id={self.broker_id}"]
        lines.append(f"version={_VERSION}")
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Read the file; CorruptDataError naming `path` and what is missing."""
    try:
        lines = data.decode("latin-1").splitlines()
        values = dict(_pair(line) for line in lines if line.strip() and line.strip()[0] not in "#!")
    except ValueError:
        raise CorruptDataError(f"{path}: not a properties file") from None
    version = values.get("version")
    if version != _VERSION:
        raise CorruptDataError(f"{path}: unrecognized version {version!r} of meta.properties")
    broker_id = values.get("broker.id", "")
    if not broker_id.removeprefix("-").isdecimal():
        raise CorruptDataError(f"{path}: broker.id is {broker_id!r}, not a number")
    return MetaProperties(int(broker_id), values.get("cluster.id"))


def _pair(line: str) -> tuple[str, str]:
    name, value = line.split("=", 1)
    return name.strip(), value.strip()
