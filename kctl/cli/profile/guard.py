"""ClusterGuard: what a command may do to the cluster that it is connected to.

`Session.run` passes every connection through it, so that no command can forget it. Three rules:

- `--expect-cluster ID`, or `expect-cluster` of a profile: a command stops before its first request
  if the cluster has another id.
- `read-only`: a command that writes is refused before it connects. Its client refuses requests of
  every API that does not only read (`kctl.client.read_only`), however the command is declared.
- `confirm = "by-name"`: a dangerous command asks for the name of the profile instead of a yes.
  `--yes` counts only together with `--expect-cluster` on the command line, which names the cluster
  as well.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

_KEYS = ("read-only", "confirm", "expect-cluster")
_BY_NAME = "by-name"


@dataclass(frozen=True, slots=True)
class ClusterGuard:
    """The rules of one command line and profile; without any, everything is allowed."""

    # The profile's name; None without a profile.
    profile: str | None = None
    # The id that the cluster must have, and whether the command line names it.
    cluster_id: str | None = None
    is_named_on_command_line: bool = False
    is_read_only: bool = False
    asks_by_name: bool = False

    def check_may_write(self) -> None:
        """Raise UsageError if the profile is read-only."""
        if self.is_read_only:
            raise UsageError(
                f"The profile {self.profile} is read-only: nothing was sent",
                hint="use another profile, or --dry-run to see the plan",
            )

    def check_may_use_zookeeper(self) -> None:
        """Raise UsageError if the profile is read-only: ZooKeeper's client has no such limit."""
        if self.is_read_only:
            raise UsageError(
                f"The profile {self.profile} is read-only, and ZooKeeper can be written",
                hint="leave out --zookeeper",
            )

    def check_cluster(self, cluster_id: str | None) -> None:
        """Raise KctlError unless the cluster is the expected one."""
        if self.cluster_id is not None and cluster_id != self.cluster_id:
            raise KctlError(
                f"This is the cluster {cluster_id}, not {self.cluster_id}: nothing was done",
                hint="check -b and the profile; kctl cluster describe shows the id",
            )

    async def check_connected(self, admin: "AdminClient") -> None:
        """Raise KctlError unless `admin` is connected to the expected cluster."""
        if self.cluster_id is not None:
            self.check_cluster((await admin.cluster.describe()).cluster_id)

    def name_to_type(self, assumes_yes: bool) -> str | None:
        """Return the name that the user must type to confirm; None if a yes is enough."""
        if not self.asks_by_name or (assumes_yes and self.is_named_on_command_line):
            return None
        return self.profile


def take_guard(
    settings: dict[str, str],
    profile: str | None,
    expected: str | None,
    expected_by_environment: str | None = None,
) -> ClusterGuard:
    """Remove the rules from a profile's `settings` and return them; `expected` is the value of
    --expect-cluster, which precedes those of the environment and of the profile. Raise UsageError
    for an invalid value."""
    values = _rules(settings)
    for key in [it for it in settings if it.replace("_", "-") in _KEYS]:
        del settings[key]
    read_only = values.get("read-only", "false")
    if read_only not in ("true", "false"):
        raise UsageError(f"read-only must be true or false, not {read_only}")
    confirm = values.get("confirm", "")
    if confirm not in ("", "yes", _BY_NAME):
        raise UsageError(f"confirm must be yes or {_BY_NAME}, not {confirm}")
    return ClusterGuard(
        profile,
        expected or expected_by_environment or values.get("expect-cluster"),
        expected is not None,
        read_only == "true",
        confirm == _BY_NAME,
    )


def _rules(settings: Mapping[str, str]) -> dict[str, str]:
    named = {key.replace("_", "-"): value for key, value in settings.items()}
    return {key: named[key] for key in _KEYS if key in named}
