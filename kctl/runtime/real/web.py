"""RealWeb: fetches documents on threads of their own, one for each document under way."""

import threading
from collections.abc import Mapping

from kctl.configs.urls import check_url
from kctl.errors import UnreachableError
from kctl.runtime.future import Future
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.web import DOCUMENT_BYTES_MAX

FETCH_TIMEOUT_S = 10


class RealWeb:
    """The Web of this machine."""

    def __init__(self, scheduler: RealScheduler) -> None:
        self._scheduler = scheduler

    def fetch(
        self, url: str, form: Mapping[str, str] | None = None, authorization: str = ""
    ) -> Future[bytes]:
        """Return a Future of the document at `url`."""
        check_url(url)
        future: Future[bytes] = self._scheduler.future()

        def run() -> None:
            try:
                document = _fetched(url, form, authorization)
            except Exception as error:  # noqa: BLE001 - the waiter decides
                failure = UnreachableError(f"cannot fetch {url}: {_reason(error)}")
                self._scheduler.call_soon_threadsafe(future.set_error, failure)
            else:
                self._scheduler.call_soon_threadsafe(future.set_result, document)

        threading.Thread(target=run, name="web", daemon=True).start()
        return future


def _fetched(url: str, form: Mapping[str, str] | None, authorization: str) -> bytes:
    import urllib.parse  # slow to import: only clients of identity providers need it
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Makes a redirect an error."""

        def redirect_request(self, *_args: object) -> None:
            """Return None: no request follows."""

    data = None if form is None else urllib.parse.urlencode(form).encode()
    headers = {"Accept": "application/json", "User-Agent": "kctl"}
    if authorization:
        headers["Authorization"] = authorization
    request = urllib.request.Request(url, data, headers)
    opener = urllib.request.build_opener(NoRedirects)
    with opener.open(request, timeout=FETCH_TIMEOUT_S) as response:
        document: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return document


def _reason(error: Exception) -> str:
    """Return what went wrong, without the body of an error response, which may repeat secrets."""
    # HTTPError has both.
    code, reason = getattr(error, "code", None), getattr(error, "reason", None)
    if code is not None:
        return f"HTTP status {code}"
    return str(reason or error) or type(error).__name__
