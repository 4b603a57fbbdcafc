"""Web: documents at https and file URLs, such as the keys and tokens of an identity provider.

Redirects are not followed.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from kctl.errors import UnreachableError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import Future

if TYPE_CHECKING:
    from kctl.protocol.sasl.login import AwsIdentity

# Maximum size of a document.
DOCUMENT_BYTES_MAX = 1024 * 1024
# ... and of what a broker or exporter serves at /metrics.
METRICS_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A token, and when it expires, in milliseconds since the epoch."""

    token: str = field(repr=False)
    expires_ms: int


class Web(Protocol):
    """Fetches documents off the loop."""

    def fetch(
        self, url: str, form: Mapping[str, str] | None = None, authorization: str = ""
    ) -> Future[bytes]:
        """Return a Future of the document at `url`, after POST of `form` if one is given.

        It fails with UnreachableError, which does not contain the document. Raise
        UsageError for a URL that `kctl.configs.urls` rejects.
        """
        ...

    def metrics(self, url: str, authorization: str = "", ca_file: str = "") -> Future[bytes]:
        """Return a Future of what a broker serves at `url`, http or https; `ca_file` has the
        certificates (PEM) to trust in place of the system's.

        It fails with UnreachableError. Raise UsageError for another kind of URL, and for an
        `authorization` that would travel in clear to another machine.
        """
        ...

    def aws_token(self, identity: "AwsIdentity", region: str) -> Future[SignedToken]:
        """Return a Future of a token for Amazon MSK in `region`, or in the SDK's default region.

        It fails with UnreachableError, which contains no secret. Raise UsageError if the signer is
        not installed.
        """
        ...


class NoWeb:
    """A Web without documents, for runtimes that are not on a real machine."""

    def fetch(self, url: str, *_request: object) -> Future[bytes]:
        """Raise UnreachableError."""
        raise UnreachableError(f"{url} cannot be fetched here")

    def metrics(self, url: str, *_request: object) -> Future[bytes]:
        """Raise UnreachableError."""
        raise UnreachableError(f"{url} cannot be read here")

    def aws_token(self, identity: "AwsIdentity", region: str) -> Future[SignedToken]:
        """Raise UnreachableError."""
        del identity, region
        raise UnreachableError("tokens of AWS cannot be signed here")
