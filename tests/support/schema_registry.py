"""A schema registry for tests: the two paths of Confluent's HTTP API that readers need."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class SchemaRegistry:
    """`versions` holds a subject's documents, the first as version 1."""

    def __init__(self, password: str | None = None) -> None:
        self.versions: dict[str, list[dict[str, object]]] = {}
        self.password = password
        # The status of all responses, if the registry has failed.
        self.failure: int | None = None
        self.url = ""

    def add(self, subject: str, number: int, schema: str, kind: str = "AVRO", **more: object):
        """Register a further version; `number` is the schema id that precedes values."""
        found = {"subject": subject, "id": number, "schema": schema} | more
        # As registries do, which leave out Avro.
        found |= {} if kind == "AVRO" else {"schemaType": kind}
        self.versions.setdefault(subject, []).append(found)

    def answer(self, path: str, authorization: str | None) -> tuple[int, object]:
        if self.failure is not None:
            return self.failure, {"error_code": self.failure, "message": "not now"}
        if self.password is not None:
            pair = base64.b64encode(f"user:{self.password}".encode()).decode()
            if authorization != f"Basic {pair}":
                return 401, {"error_code": 40101, "message": "Unauthorized"}
        _, _, subject, _, *version = path.split("/")
        versions = self.versions.get(unquote(subject))
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if not version:
            return 200, list(range(1, len(versions) + 1))
        number = int(version[0])
        return 200, versions[number - 1] | {"version": number}


@contextmanager
def running_registry(password: str | None = None) -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry(password)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = registry.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_args: object) -> None:
            """Tests are silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        account = f"user:{password}@" if password else ""
        registry.url = f"http://{account}127.0.0.1:{server.server_port}"
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
