"""RealWeb: fetches documents, and has tokens signed, on threads of their own, one for each under
way."""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.errors import UnreachableError
from kctl.runtime.future import Future
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.web import DOCUMENT_BYTES_MAX, METRICS_BYTES_MAX, SignedToken

if TYPE_CHECKING:
    from kctl.protocol.sasl.login import AwsIdentity

T = TypeVar("T")
FETCH_TIMEOUT_S = 10


class RealWeb:
    """The Web of this machine."""

    def __init__(self, scheduler: RealScheduler) -> None:
        self._scheduler = scheduler

    def fetch(
        self, url: str, form: Mapping[str, str] | None = None, authorization: str = ""
    ) -> Future[bytes]:
        """Return a Future of the document at `url`."""
        # A local import, as the others here: few processes fetch anything.
        from kctl.configs.urls import check_url

        check_url(url)
        return self._on_thread(
            lambda: _fetched(url, form, authorization),
            lambda error: UnreachableError(f"cannot fetch {url}: {_reason(error)}"),
        )

    def metrics(self, url: str, authorization: str = "", ca_file: str = "") -> Future[bytes]:
        """Return a Future of what a broker serves at `url`."""
        from kctl.configs.urls import check_metrics_url

        check_metrics_url(url, has_secret=bool(authorization))
        return self._on_thread(
            lambda: _fetched(
                url, None, authorization, "text/plain", METRICS_BYTES_MAX, ca_file=ca_file
            ),
            lambda error: UnreachableError(f"cannot read {url}: {_reason(error)}"),
        )

    def aws_token(self, identity: "AwsIdentity", region: str) -> Future[SignedToken]:
        """Return a Future of a token for Amazon MSK."""
        from kctl.runtime.real.aws_signer import load_signer, signed_token

        signer = load_signer()
        return self._on_thread(
            lambda: signed_token(signer, identity, region),
            lambda error: UnreachableError(
                f"{type(error).__name__}: {error}",
                hint="the AWS SDK must find credentials and a region: AWS_PROFILE,"
                " AWS_ACCESS_KEY_ID, AWS_DEFAULT_REGION, ~/.aws",
            ),
        )

    def _on_thread(
        self, job: Callable[[], T], failure: Callable[[Exception], UnreachableError]
    ) -> Future[T]:
        future: Future[T] = self._scheduler.future()

        def run() -> None:
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - the waiter decides
                self._scheduler.call_soon_threadsafe(future.set_error, failure(error))
            else:
                self._scheduler.call_soon_threadsafe(future.set_result, result)

        threading.Thread(target=run, name="web", daemon=True).start()
        return future


def _fetched(
    url: str,
    form: Mapping[str, str] | None,
    authorization: str,
    accept: str = "application/json",
    bytes_max: int = DOCUMENT_BYTES_MAX,
    *,
    ca_file: str = "",
) -> bytes:
    import urllib.parse  # slow to import: only clients of identity providers need it
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Makes a redirect an error."""

        def redirect_request(self, *_args: object) -> None:
            """Return None: no request follows."""

    data = None if form is None else urllib.parse.urlencode(form).encode()
    headers = {"Accept": accept, "User-Agent": "kctl"}
    if authorization:
        headers["Authorization"] = authorization
    request = urllib.request.Request(url, data, headers)
    handlers: list[Any] = [NoRedirects]
    if ca_file:
        import ssl

        context = ssl.create_default_context(cafile=ca_file)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    with opener.open(request, timeout=FETCH_TIMEOUT_S) as response:
        document: bytes = response.read(bytes_max + 1)
    if len(document) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return document


def _reason(error: Exception) -> str:
    """Return what went wrong, without the body of an error response, which may repeat secrets."""
    # HTTPError has both.
    code, reason = getattr(error, "code", None), getattr(error, "reason", None)
    if code is not None:
        return f"HTTP status {code}"
    return str(reason or error) or type(error).__name__
