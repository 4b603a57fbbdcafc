"""API_VERSIONS: the values of inter.broker.protocol.version and message.format.version, and how
they are parsed.

Only the first two components count, or three if the version begins with "0.": "2.7", "2.7.2" and
"2.7.x" are the last version of release 2.7, "2.7-IV1.5" is 2.7-IV1.

Kafka 2.7: kafka.api.ApiVersion.
"""

from kctl.errors import UsageError

API_VERSIONS = (
    "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1",
    "0.10.1-IV2", "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0",
    "2.0-IV0", "2.0-IV1", "2.1-IV0", "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0",
    "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0", "2.7-IV0", "2.7-IV1", "2.7-IV2",
)  # fmt: skip
# Full and short names; a short name is the last version of its release.
_BY_NAME = {
    **{version.partition("-")[0]: version for version in API_VERSIONS},
    **{version: version for version in API_VERSIONS},
}


def api_version(text: str) -> str:
    """Return the full name of a version; raise UsageError if it is unknown."""
    parts = text.rstrip(".").split(".")
    name = ".".join(parts[: 3 if text.startswith("0.") else 2])
    version = _BY_NAME.get(name)
    if version is None:
        raise UsageError(f"Version `{text}` is not a valid version")
    return version


def api_version_complaint(text: str) -> str | None:
    """Return the validation error of a version, or None."""
    try:
        api_version(text)
    except UsageError as error:
        return str(error)
    return None


def api_version_index(text: str) -> int:
    """Return the index of a version in API_VERSIONS."""
    return API_VERSIONS.index(api_version(text))
