"""The addresses of schema registries: they name the registry's interface and how values name their
schemas.

    http://host:8081                                        Confluent's HTTP API
    apicurio+http://host:8080/apis/registry/v2?ids=content  Apicurio's own API, version 2 or 3
    glue://eu-west-1/registry                               AWS Glue

Both facts belong together, because a registry's serializers write what its interface finds.
"""

from enum import StrEnum
from urllib.parse import parse_qs, urlsplit, urlunsplit

from kctl.errors import UsageError
from kctl.export.wire_formats import IdKind
from kctl.lazy_dataclass import dataclass

_APICURIO = "apicurio+"
_API = "/apis/registry/v"


class RegistryKind(StrEnum):
    """The interface of a registry."""

    CONFLUENT = "confluent"
    APICURIO = "apicurio"
    GLUE = "glue"


@dataclass(frozen=True, slots=True)
class Registry:
    """Where a registry is, and what it is."""

    kind: RegistryKind
    # Confluent's and Apicurio's: an HTTP URL, which may contain user and password.
    url: str = ""
    # Apicurio: the version of its API, and what the bytes before values identify.
    api: int = 3
    ids: IdKind = IdKind.CONTENT
    # Glue: the region and the registry's name.
    region: str = ""
    name: str = ""


def parse_registry(text: str) -> Registry:
    """Return the registry of an address; UsageError if it is not one."""
    if text.startswith(_APICURIO):
        return _apicurio(text)
    if text.startswith("glue:"):
        parts = urlsplit(text)
        name = parts.path.strip("/")
        if not parts.netloc or "/" in name or parts.query:
            raise UsageError(
                f"Not the address of a registry in AWS Glue: {text}",
                hint="e.g. glue://eu-west-1/my-registry",
            )
        # Glue's own name of the registry that serializers use without a setting.
        return Registry(RegistryKind.GLUE, region=parts.netloc, name=name or "default-registry")
    return Registry(RegistryKind.CONFLUENT, text)


def _apicurio(text: str) -> Registry:
    parts = urlsplit(text.removeprefix(_APICURIO))
    base, _, api = parts.path.rstrip("/").partition(_API)
    query = parse_qs(parts.query, keep_blank_values=True)
    # By default, the serializers of version 2 write global ids, and later ones content ids.
    ids = query.pop("ids", [IdKind.GLOBAL if api == "2" else IdKind.CONTENT])[-1]
    is_known = parts.scheme in ("http", "https") and api in ("", "2", "3") and not query
    if not is_known or not parts.hostname or ids not in list(IdKind) or (base and not api):
        raise UsageError(
            "Not the address of a registry of Apicurio",
            hint="e.g. apicurio+http://host:8080/apis/registry/v2?ids=content; the path may be "
            "left out for v3, and ids may be global or content",
        )
    version = int(api or 3)
    url = urlunsplit((parts.scheme, parts.netloc, f"{base}{_API}{version}", "", ""))
    return Registry(RegistryKind.APICURIO, url, version, IdKind(ids))
