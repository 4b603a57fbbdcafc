"""Fetches and compiles schemas: a registry over HTTP, and protoc, which compiles .proto files."""

import base64
import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from kctl.errors import KctlError, UnreachableError, UsageError, missing_extra

_SECONDS_MAX = 30


def get_json(url: str, path: str) -> Any:
    """Return the JSON document at `path` below `url`, which may contain user and password; `path`
    may have a query.

    UsageError if it is missing; UnreachableError without a response, and for one that says that a
    later request may succeed; KctlError for other errors.
    """
    target, data = _get(url, path, "application/json")
    try:
        return json.loads(data)
    except ValueError:
        raise KctlError(f"{target}: the response is not JSON") from None


def get_text(url: str, path: str) -> str:
    """Return the text at `path` below `url`; errors as `get_json` has them."""
    target, data = _get(url, path, "*/*")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise KctlError(f"{target}: the response is not text") from None


def _get(url: str, path: str, accepted: str) -> tuple[str, bytes]:
    """Return the address without a password, and the response's body."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise UsageError(
            "Not the address of a schema registry",
            hint="http://host:8081, apicurio+http://host:8080 or glue://REGION/NAME",
        )
    host = parts.netloc.rpartition("@")[2]
    below, _, query = path.partition("?")
    target = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + below, query, ""))
    request = urllib.request.Request(target, headers={"Accept": accepted})
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        word = base64.b64encode(pair.encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_MAX) as answer:
            return target, answer.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise UsageError(f"{target}: {_said(error)}") from None
        if passes(error.code):
            raise UnreachableError(f"{target}: {_said(error)}") from None
        raise KctlError(f"{target}: {_said(error)}") from None
    except (OSError, HTTPException) as error:
        raise UnreachableError(f"{target}: {getattr(error, 'reason', error)}") from None


def passes(status: int) -> bool:
    """Return whether a later request may succeed: the server, or one on the way, has failed or is
    busy."""
    return status >= 500 or status in (408, 429)


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"HTTP {error.code}"


def compile_proto(
    text: str, directory: str | None = None, imports: Sequence[tuple[str, str]] = ()
) -> bytes:
    """Return a FileDescriptorSet of a .proto file's text with its imports, from `imports` (names
    and texts), `directory` or protobuf's own; UsageError with protoc's message."""
    try:
        protoc: Any = import_module("grpc_tools.protoc")
        tools: Any = import_module("grpc_tools")
    except ImportError:
        raise missing_extra("A .proto file is compiled by grpcio-tools", "protobuf") from None
    with tempfile.TemporaryDirectory(prefix="kctl-proto-") as name:
        is_taken = any(path == "schema.proto" for path, _text in imports)
        source = Path(name) / ("kctl-schema.proto" if is_taken else "schema.proto")
        target = Path(name) / "schema.desc"
        for path, other in imports:
            _write_import(Path(name), path, other)
        source.write_text(text, encoding="utf-8")
        arguments = ["protoc", f"-I{name}", f"-I{Path(tools.__file__).parent / '_proto'}"]
        arguments += [f"-I{directory}"] if directory else []
        arguments += ["--include_imports", f"--descriptor_set_out={target}", str(source)]
        if protoc.main(arguments) != 0:
            raise UsageError("protoc rejects the schema: see its message above")
        return target.read_bytes()


def _write_import(directory: Path, name: str, text: str) -> None:
    """Write an imported file; UsageError for a name that leads out of the directory."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"Not the name of an imported .proto file: {name}")
    target = directory / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
