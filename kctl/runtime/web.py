"""Web: documents at https and file URLs, such as the keys and tokens of an identity provider.

Redirects are not followed.
"""

from collections.abc import Mapping
from typing import Protocol

from kctl.errors import UnreachableError
from kctl.runtime.future import Future

# Maximum size of a document.
DOCUMENT_BYTES_MAX = 1024 * 1024


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


class NoWeb:
    """A Web without documents, for runtimes that are not on a real machine."""

    def fetch(self, url: str, *_request: object) -> Future[bytes]:
        """Raise UnreachableError."""
        raise UnreachableError(f"{url} cannot be fetched here")
