"""Negotiation: which version of each API two sides have in common.

A broker tells its table in ApiVersions (KIP-35, since 0.10); numbers that we do not know are
ignored, so that 4.x brokers are as welcome. Of the versions in common the newest is spoken.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsResponseKey


class VersionRange(NamedTuple):
    """First and last version, both included."""

    first: int
    last: int

    def common(self, other: "VersionRange") -> "VersionRange | None":
        """What both have."""
        first, last = max(self.first, other.first), min(self.last, other.last)
        return VersionRange(first, last) if first <= last else None

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.first != self.last else f"{self.first}"


class NegotiatedVersions:
    """The versions that we may speak with one broker."""

    def __init__(self, theirs: Iterable[ApiVersionsResponseKey], who: str = "the broker") -> None:
        self._theirs = {
            key.api_key: VersionRange(key.min_version, key.max_version) for key in theirs
        }
        self._who = who

    def has(self, api: ApiKey, version: int = 0) -> bool:
        """Whether `version` or a newer one of `api` is spoken by both."""
        return self._common(api, VersionRange(version, api.max_version)) is not None

    def pick(self, api: ApiKey, *, first: int = 0, last: int | None = None) -> int:
        """The newest common version between `first` and `last`; ApiError UNSUPPORTED_VERSION
        in words for the user if there is none."""
        wanted = VersionRange(first, api.max_version if last is None else last)
        common = self._common(api, wanted)
        if common is not None:
            return common.last
        theirs = self._theirs.get(int(api))
        if theirs is None:
            words = f"{self._who} does not know {api.title}"
        else:
            words = f"{self._who} speaks {api.title} {theirs}, but {wanted} is needed"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, words)

    def _common(self, api: ApiKey, wanted: VersionRange) -> VersionRange | None:
        theirs = self._theirs.get(int(api))
        if theirs is None:
            return None
        ours = VersionRange(api.min_version, api.max_version).common(wanted)
        return None if ours is None else ours.common(theirs)
