"""A hub on this machine, which speaks as much of the Hugging Face hub's protocol as making and filling a repository needs."""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_" + "t" * 34


class Hub:
    """The running server. ``files`` holds the files of a repository by ``models/OWNER/NAME`` or ``datasets/OWNER/NAME``,
    ``private`` whether it is; ``commits`` counts them; ``seen`` are the requests as ``METHOD /path``."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}
        self.commits = 0
        self.seen: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON for a request; the protocol's own names."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            key = f"{asked.get('type', 'model')}s/{asked['organization']}/{asked['name']}"
            self.files[key], self.private[key] = {}, asked["visibility"] == "private"
            return 200, {}, {"url": f"{self.url}/{key.removeprefix('models/')}"}
        if path == "/api/validate-yaml":
            return 200, {}, {"errors": [], "warnings": []}
        if found := re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch", path):
            objects = [
                {"oid": one["oid"], "size": one["size"], "actions": {"upload": {"href": f"{self.url}/large/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return 200, {}, {"transfer": "basic", "objects": objects}
        if path.startswith("/large/"):
            self.large[path.removeprefix("/large/")] = body
            return 200, {}, {}
        found = re.fullmatch(r"/api/((?:models|datasets)/[\w.-]+/[\w.-]+)(?:/(preupload|commit)/main)?", path)
        if found is None or found[1] not in self.files:
            return 404, {"X-Error-Code": "RepoNotFound"}, {"error": "Repository not found"}
        if found[2] is None:
            return 200, {}, {"id": found[1].partition("/")[2], "private": self.private[found[1]], "siblings": []}
        if found[2] == "preupload":
            names = [one["path"] for one in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": _mode(name), "shouldIgnore": False} for name in names]
            return 200, {}, {"files": modes}
        return self._commit(found[1], body)

    def _commit(self, key: str, body: bytes) -> tuple[int, dict[str, str], Any]:
        for line in body.splitlines():
            row = json.loads(line)
            if row["key"] == "file":
                self.files[key][row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            elif row["key"] == "lfsFile":
                self.files[key][row["value"]["path"]] = self.large[row["value"]["oid"]]
        self.commits += 1
        url = f"{self.url}/{key.removeprefix('models/')}/commit/{self.commits:040x}"
        return 200, {}, {"success": True, "commitUrl": url, "commitOid": f"{self.commits:040x}"}


def _mode(name: str) -> str:
    return "lfs" if name.endswith(".safetensors") else "regular"


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._chunks() if "Transfer-Encoding" in self.headers else self._read(self.headers.get("Content-Length"))
            path = self.path.partition("?")[0]
            hub.seen.append(f"{self.command} {path}")
            if path.startswith("/large/") or self.headers.get("Authorization") == f"Bearer {TOKEN}":
                status, headers, summary = hub.answer(path, body)
            else:
                status, headers, summary = 401, {}, {"error": f"Invalid token {self.headers.get('Authorization')}"}
            sent = json.dumps(summary).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(sent)), **headers}.items():
                self.send_header(name, value)
            if "error" in summary:
                self.send_header("X-Error-Message", summary["error"])
            self.end_headers()
            self.wfile.write(sent)

        def _read(self, length: str | None) -> bytes:
            return self.rfile.read(int(length or 0))

        def _chunks(self) -> bytes:
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_: Any) -> None:
            """Nothing on standard error."""

    return Handler
