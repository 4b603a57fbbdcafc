"""check_url, check_metrics_url: which URLs settings and options may name. Pure.

https and files; http on this machine only, since tokens and secrets would travel in clear.
"""

from urllib.parse import urlsplit

from kctl.errors import UsageError

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def check_url(url: str, setting: str = "the URL") -> None:
    """Raise UsageError unless `url` is a file or https URL, or an http URL of this machine."""
    parts = urlsplit(url)
    is_local = parts.scheme == "http" and parts.hostname in _LOCAL_HOSTS
    is_file = parts.scheme == "file" and parts.path
    if not (is_local or is_file or (parts.scheme == "https" and parts.hostname)):
        raise UsageError(f"{setting} is {url}", hint="it must be https://HOST/... or file:///PATH")


def check_metrics_url(url: str, *, has_secret: bool) -> None:
    """Raise UsageError unless `url` is an http or https URL; with a secret, http only of this
    machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"Metrics are read by http or https, not from {url}",
            hint="e.g. http://broker1:9404/metrics",
        )
    if has_secret and parts.scheme == "http" and parts.hostname not in _LOCAL_HOSTS:
        raise UsageError(f"A token would travel in clear to {url}", hint="use https")
