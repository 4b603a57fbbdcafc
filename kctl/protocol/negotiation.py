"""Negotiation: the versions of each API that both sides support.

A broker sends its table in ApiVersions (KIP-35, since 0.10). APIs that are unknown here are
ignored, so that brokers of any later version work, too. The newest common version is used.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.protocol.api_keys import Api
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponseKey


class VersionRange(NamedTuple):
    """First and last version, both inclusive."""

    first: int
    last: int

    def common(self, other: "VersionRange") -> "VersionRange | None":
        """Return the versions in both ranges, or None."""
        first, last = max(self.first, other.first), min(self.last, other.last)
        return VersionRange(first, last) if first <= last else None

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.first != self.last else f"{self.first}"


class NegotiatedVersions:
    """The versions that this client may use with one broker."""

    def __init__(self, theirs: Iterable[ApiVersionsResponseKey], who: str = "the broker") -> None:
        self._theirs = {
            key.api_key: VersionRange(key.min_version, key.max_version) for key in theirs
        }
        self._who = who

    def has(self, api: Api, version: int = 0) -> bool:
        """Return whether both sides support `version` of `api` or a newer one."""
        return self._common(api, VersionRange(version, api.max_version)) is not None

    def speaks(self, api: Api, version: int) -> bool:
        """Return whether both sides support exactly `version` of `api`."""
        return self._common(api, VersionRange(version, version)) is not None

    def pick(self, api: Api, *, first: int = 0, last: int | None = None) -> int:
        """Return the newest common version between `first` and `last`.

        ApiError UNSUPPORTED_VERSION, with a message for users, if there is none.
        """
        wanted = VersionRange(
            max(first, api.min_version), api.max_version if last is None else last
        )
        common = self._common(api, wanted)
        if common is not None:
            return common.last
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, self._lack(api, wanted))

    def _lack(self, api: Api, wanted: VersionRange) -> str:
        """Return the message for an API without a common version."""
        # A local import: the table of later APIs is needed for this message only.
        from kctl.protocol.later_apis import LaterApi

        theirs = self._theirs.get(int(api))
        if theirs is None:
            origin = f", which came with {api.origin}" if isinstance(api, LaterApi) else ""
            return f"{self._who} does not know {api.title}{origin}"
        if isinstance(api, LaterApi):
            later = f"version {api.min_version} came with {api.origin}"
            return f"{self._who} speaks {api.title} {theirs}; {later}"
        return f"{self._who} speaks {api.title} {theirs}, but {wanted} is needed"

    def _common(self, api: Api, wanted: VersionRange) -> VersionRange | None:
        theirs = self._theirs.get(int(api))
        if theirs is None:
            return None
        ours = VersionRange(api.min_version, api.max_version).common(wanted)
        return None if ours is None else ours.common(theirs)
