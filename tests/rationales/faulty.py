"""A server on loopback that speaks OpenAI's chat API, and fails now and then in every way that servers fail."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any]], str]
FAULTS = ("429", "500", "timeout", "half a body", "invalid JSON", "no choices")


class Server:
    """What was asked, what was answered, and what went wrong."""

    def __init__(self, reply: Reply, share: float = 0.0, faults: tuple[str, ...] = FAULTS, seed: int = 1) -> None:
        self.reply, self.share, self.faults = reply, share, faults
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.connections: set[tuple[str, int]] = set()  # by the client's end
        self.answered: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.under_way = self.most_under_way = 0
        self.refuse: dict[str, int] = {}  # a word of the question -> the status it is refused with
        self.structured = True
        self.unstructured_status = 400  # what a schema is answered with where ``structured`` is not
        self.complain: Callable[[dict[str, Any]], tuple[int, Any] | None] = lambda body: None  # status and error of a request
        self.finish, self.tokens = "stop", 7
        self.retry_after = "0.02"
        self.at: list[float] = []  # when each call came, on the monotonic clock
        self.raw: bytes | None = None  # said instead of an answer, with this status and these headers
        self.status, self.headers = 200, dict[str, str]()
        self.drip = False  # an answer that comes a byte at a time and never ends
        self.url = ""

    def fault(self) -> str | None:
        """How this call fails, if it does."""
        return self.chance.choice(self.faults) if self.chance.random() < self.share else None


@contextlib.contextmanager
def serve(server: Server) -> Iterator[Server]:
    """Have it listen on a free port of loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.asked.append(body)
                server.at.append(time.monotonic())
                server.keys.add(self.headers.get("Authorization"))
                server.connections.add(self.client_address)
                server.under_way += 1
                server.most_under_way = max(server.most_under_way, server.under_way)
                fault = server.fault()
                if fault:
                    server.failed[fault] += 1
            try:
                self.respond(body, fault)
            finally:
                with server.lock:
                    server.under_way -= 1

        def respond(self, body: dict[str, Any], fault: str | None) -> None:
            text = body["messages"][0]["content"]
            status = next((status for word, status in server.refuse.items() if word in text), None)
            if status is not None:
                return self.send(status, {"error": {"message": f"refused with {status}: {self.headers.get('Authorization')}"}})
            if (complaint := server.complain(body)) is not None:
                return self.send(complaint[0], {"error": complaint[1]})
            if "response_format" in body and not server.structured:
                return self.send(server.unstructured_status, {"error": "response_format is not supported"})
            if fault == "429":
                return self.send(429, {"error": "slow down"}, {"Retry-After": server.retry_after})
            if fault == "500":
                return self.send(500, {"error": "out of luck"})
            if fault == "timeout":
                time.sleep(1.0)
                self.close_connection = True
                return None
            if fault == "invalid JSON":
                return self.send(200, b'{"choices": [')
            if fault == "no choices":
                return self.send(200, {"choices": []})
            if server.drip:
                self.send_response(200)
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                self.close_connection = True
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    for _ in range(100):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                        time.sleep(0.05)
                return None
            if server.raw is not None:
                return self.send(server.status, server.raw, server.headers)
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "system_fingerprint": "",
                "choices": [
                    {"index": 0, "finish_reason": server.finish, "message": {"role": "assistant", "content": server.reply(body)}}
                ],
                "usage": {"prompt_tokens": 5, "completion_tokens": server.tokens, "total_tokens": 12},
            }
            data = json.dumps(answer).encode()
            if fault == "half a body":
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                return None
            with server.lock:
                server.answered[text] += 1
            return self.send(200, data)

        def send(self, status: int, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)

    class Listener(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that went away is no error here."""

    listener = Listener(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_address[1]}/v1"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
