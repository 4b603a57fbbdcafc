"""MetricsPort: where metrics are served, and who is let in."""

from dataclasses import field, replace
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass
from kctl.model import Endpoint

if TYPE_CHECKING:
    from kctl.tls.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class MetricsPort:
    """An address, the key and certificates of its TLS, and the bearer token that /metrics needs;
    None and "": neither."""

    endpoint: Endpoint
    tls: "TlsSettings | None" = None
    token: str = field(default="", repr=False)

    @property
    def scheme(self) -> str:
        """Return http or https."""
        return "http" if self.tls is None else "https"

    def at(self, port: int) -> "MetricsPort":
        """Return the same at another port."""
        return replace(self, endpoint=replace(self.endpoint, port=port))
