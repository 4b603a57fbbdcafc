"""ThrottleRecords: the throttles that kctl has applied to clusters, in files that survive the
process.

One file per cluster. It is written and fsynced before a throttle is applied, and removed once every
setting is restored, so a throttle can always be removed by another process.
"""

from kctl.admin.replication_throttle import ThrottleRecord
from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk


class ThrottleRecords:
    """The records in one directory, by convention `~/.local/state/kctl/throttles`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def path(self, cluster_id: str) -> str:
        """Return the path of a cluster's record, whether it exists or not."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster_id)
        return f"{self._directory}/{name}.json"

    def load(self, cluster_id: str) -> ThrottleRecord | None:
        """Return the record of the throttle in force, or None; raise CorruptDataError."""
        path = self.path(cluster_id)
        if not self._disk.exists(path):
            return None
        try:
            return ThrottleRecord.from_json(self._disk.read_file(path).decode())
        except UnicodeDecodeError as error:
            raise CorruptDataError(f"{path}: not a throttle record: {error}") from None

    def save(self, record: ThrottleRecord) -> str:
        """Write the record durably and return its path."""
        path = self.path(record.cluster_id)
        self._disk.make_directory(self._directory)
        self._disk.write_file(path, record.to_json().encode())
        return path

    def remove(self, cluster_id: str) -> None:
        """Remove a cluster's record if there is one."""
        path = self.path(cluster_id)
        if self._disk.exists(path):
            self._disk.remove(path)
