"""A registry of Apicurio for tests: the paths of versions 2 and 3 of its API that readers need."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

# Versions that one page of the list has, whatever the client asks for.
PAGE = 2


class Apicurio:
    """`artifacts` has the versions of (group, artifact): their ids, texts and references."""

    def __init__(self) -> None:
        self.artifacts: dict[tuple[str, str], list[dict[str, object]]] = {}
        self.url = ""
        self.requests: list[str] = []

    def add(
        self, artifact: str, global_id: int, content_id: int, text: str, kind: str = "AVRO",
        *, group: str = "default", references: tuple[dict[str, str], ...] = (),
    ) -> None:  # fmt: skip
        """Register a further version."""
        versions = self.artifacts.setdefault((group, artifact), [])
        versions.append({
            "globalId": global_id, "contentId": content_id, "version": str(len(versions) + 1),
            "text": text, "kind": kind, "references": list(references),
        })  # fmt: skip

    def answer(self, url: str) -> tuple[int, object]:
        """Return the status and the body of the response."""
        self.requests.append(url)
        parts = urlsplit(url)
        api, *path = [unquote(it) for it in parts.path.removeprefix("/apis/registry/v").split("/")]
        found = self._find(int(api), path, parse_qs(parts.query))
        if found is None:
            return 404, {"error_code": 404, "message": f"No {parts.path}"}
        return 200, found

    def _find(self, api: int, path: list[str], query: dict[str, list[str]]) -> object:
        if path[:2] == ["ids", "globalIds"]:
            every = [it for versions in self.artifacts.values() for it in versions]
            chosen = [it for it in every if it["globalId"] == int(path[2])]
            rest = path[3:] or ["content"]
        else:
            _, group, _, artifact, _, *rest = path
            versions = self.artifacts.get((group, artifact))
            if versions is None:
                return None
            if not rest:
                return self._page(api, versions, int(query["offset"][0]))
            chosen = [it for it in versions if it["version"] == rest[0]]
            rest = rest[1:] or (["content"] if api == 2 else ["meta"])
        if not chosen:
            return None
        return chosen[0]["text" if rest == ["content"] else rest[0]]

    def _page(self, api: int, versions: list[dict[str, object]], offset: int) -> object:
        name = "artifactType" if api > 2 else "type"
        page = [
            {name: it["kind"]} | {key: it[key] for key in ("globalId", "contentId", "version")}
            for it in versions[offset : offset + PAGE]
        ]
        return {"count": len(versions), "versions": page}


@contextmanager
def running_apicurio() -> Iterator[Apicurio]:
    """Yield a registry whose `url` is that of a server."""
    registry = Apicurio()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, found = registry.answer(self.path)
            self.send_response(status)
            self.end_headers()
            text = found if isinstance(found, str) else json.dumps(found)
            self.wfile.write(text.encode())

        def log_message(self, *_args: object) -> None:
            """Tests are silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
