"""Servers on this machine that give files and, as the hub does, data sets."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cirf.assets.benchmarks import Address


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server:
    """Files at paths. One in ``cuts`` breaks off after so many bytes, once; without ``ranges`` files are given whole alone."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.cuts, self.ranges = files, dict[str, int](), True
        self.asked: list[tuple[str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def address(self, path: str, sha256: str | None = None) -> Address:
        return Address(f"{self.url}/{path}", sha256)


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            path, wanted = self.path.lstrip("/"), self.headers.get("Range")
            server.asked.append((path, wanted))
            if path not in server.files:
                self.send_error(404)
                return
            begun = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
            data = server.files[path]
            if begun >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if begun else 200)
            if begun:
                self.send_header("Content-Range", f"bytes {begun}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - begun))
            self.end_headers()
            self.wfile.write(data[begun : server.cuts.pop(path, len(data))])

        def log_message(self, *_: Any) -> None:
            """Nothing on standard error."""

    return Handler


class Hub(Server):
    """As much of the hub's protocol as `datasets` needs to read a repository of JSONL files."""

    def __init__(self, repository: str, rows: dict[str, bytes]) -> None:
        self.repository, self.rows, self.commit = repository, rows, "a" * 40
        super().__init__({})
        self._server.RequestHandlerClass = _hub_handler(self)

    def environment(self, folder: Path) -> dict[str, str]:
        """Of a process that asks this hub and keeps what it fetches in a folder."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        return own | {"HF_ENDPOINT": self.url, "HF_HOME": str(folder / "hf"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def _hub_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    def entries() -> list[dict[str, Any]]:
        return [{"type": "file", "path": name, "size": len(data), "oid": sha256(data)[:40]} for name, data in hub.rows.items()]

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            headers = {"X-Repo-Commit": hub.commit}
            data, status = b"", 200
            if path.startswith(f"/datasets/{hub.repository}/resolve/") and name in hub.rows:
                data = hub.rows[name]
                headers["ETag"] = f'"{sha256(data)[:40]}"'
            elif path.startswith(f"/api/datasets/{hub.repository}/tree/"):
                data = json.dumps(entries() if name == hub.commit else []).encode()
            elif path.startswith(f"/api/datasets/{hub.repository}"):
                siblings = [{"rfilename": name} for name in hub.rows]
                data = json.dumps({"id": hub.repository, "sha": hub.commit, "private": False, "siblings": siblings}).encode()
            else:
                status, headers = 404, {"X-Error-Code": "EntryNotFound"}
            self.send_response(status)
            for header, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(header, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_GET = do_HEAD

        def log_message(self, *_: Any) -> None:
            """Nothing on standard error."""

    return Handler
