"""Clients that are slow, vanish or ask several models (``examples/cascade.py``), and a server stopped while it answers."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import nursery
import pytest
import tinyrun
from openai import OpenAI
from running import PATIENCE, Running, held, question, wait_for
from test_serving_answers import alone

from cirf.serving.model import ServedModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "cascade.py"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n"


def test_a_stream_that_nobody_reads_any_more_ends_and_its_neighbour_does_not(server: Running, prose: ServedModel) -> None:
    asking = {"model": "prose", "messages": [{"role": "user", "content": "yes"}]}
    endless = question("never", model="prose", max_tokens=200, stream=True)
    assert alone(prose, "never", cap=200)[3] == "length"
    with ThreadPoolExecutor(3) as pool, server.client() as client, held(prose) as gate:
        first = pool.submit(server.chat, asking | {"max_tokens": 2})
        server.until(running=1)
        neighbour = pool.submit(server.chat, asking | {"max_tokens": 6})
        opened = pool.submit(client.chat.completions.create, **endless)
        server.until(waiting=2)
        gate.allow(2)
        first.result()
        server.until(running=2, waiting=0)
        gate.allow(1)
        stream = opened.result()
        next(stream)
        stream.close()
        while server.health["running"]:  # a step at a time: the server sees in its own time that its client has gone
            gate.allow(1)
            time.sleep(0.02)
        assert gate.steps < 150
    assert neighbour.result()[2]["choices"][0]["message"]["content"] == alone(prose, "yes", cap=6)[1]


def test_one_that_waits_and_goes_is_never_begun(server: Running, traces: ServedModel) -> None:
    with ThreadPoolExecutor(1) as pool, held(traces) as gate:
        first = pool.submit(server.chat, question("Hi?", max_tokens=2))
        server.until(running=1)
        body = json.dumps(question("never", max_tokens=200)).encode()
        with server.connect() as gone:
            gone.sendall(HEAD.replace(b"500", str(len(body)).encode()) + b"\r\n" + body)
            server.until(waiting=1)
        server.until(waiting=0)
        gate.allow(10**6)
        assert first.result()[0] == 200
        server.until(running=0)
        assert gate.steps == 2


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat", HEAD])
def test_who_does_not_send_a_request_is_cut_off(models: list[ServedModel], sent: bytes) -> None:
    with Running(models, slow=0.3) as running, running.connect() as slow:
        slow.sendall(sent)
        assert slow.recv(100) == b""


def test_who_sends_half_a_request_is_answered_and_cut_off(models: list[ServedModel]) -> None:
    with Running(models, slow=0.3) as running, running.connect() as slow:
        slow.sendall(HEAD + b"\r\n{")
        summary = b""
        while more := slow.recv(4096):
            summary += more
        assert summary.startswith(b"HTTP/1.1 408") and b'"code": "request_timeout"' in summary
        assert running.send("GET", "/health")[0] == 200


def test_who_takes_nothing_is_cut_off(models: list[ServedModel]) -> None:
    with Running(models, slow=0.5) as running:
        running.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        body = json.dumps({"model": "prose", "messages": [{"role": "user", "content": "yes"}], "stream": True, "n": 32}
                          | {"max_tokens": 150, "temperature": 1.0}).encode()  # fmt: skip
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.connect(running.socket.getsockname())
            deaf.sendall(HEAD.replace(b"500", str(len(body)).encode()) + b"\r\n" + body)
            wait_for(lambda: running.health["running"] == 32)
            running.until(running=0, waiting=0)
            taken = 0
            with pytest.raises(ConnectionResetError):
                while more := deaf.recv(1 << 16):
                    taken += len(more)
                raise ConnectionResetError
            assert taken < 1_000_000


def test_what_is_being_answered_is_finished_when_the_server_is_stopped(models: list[ServedModel], traces: ServedModel) -> None:
    running = Running(models)
    with ThreadPoolExecutor(2) as pool, held(traces) as gate:
        first = pool.submit(running.chat, question("Hi?"))
        running.until(running=1)
        waits = pool.submit(running.chat, question("yes"))
        running.until(waiting=1)
        running.server.should_exit = True
        wait_for(lambda: not _answers(running))
        gate.allow(10**6)
        for one, text in ((first, "Hi?"), (waits, "yes")):
            assert one.result()[2]["choices"][0]["message"]["content"] == alone(traces, text)[1]
    running.stop()


def test_what_takes_too_long_is_let_go_when_the_server_is_stopped(models: list[ServedModel], traces: ServedModel) -> None:
    running = Running(models, drain=1)
    with ThreadPoolExecutor(1) as pool, held(traces) as gate:
        first = pool.submit(running.send, "POST", "/v1/chat/completions", question("Hi?"))
        running.until(running=1)
        running.server.should_exit = True
        assert isinstance(first.exception(PATIENCE), OSError) or first.result()[0] >= 500
        gate.allow(1)
        running.stop()
        assert gate.steps <= 2


def _answers(running: Running) -> bool:
    try:
        running.connect().close()
    except OSError:
        return False
    return True


def test_the_command_serves_answers_and_stops_cleanly(folders: tuple[Path, Path], traces: ServedModel, tmp_path: Path) -> None:
    main, beside = folders
    arguments = ["-m", "cirf", "serve", main, "--compare", beside, "--port", "0", "--json", "--api-key-env", "CIRF_TEST_KEY"]
    environment = tinyrun.ENVIRONMENT | {"CIRF_TEST_KEY": "a-key-that-is-long-enough"}
    out, err = tmp_path / "out", tmp_path / "err"
    with nursery.python(*arguments, env=environment, out=out, err=err) as process:
        while not out.exists() or not out.read_text().endswith("\n"):
            assert process.poll() is None, err.read_text()
            time.sleep(0.02)
        summary = json.loads(out.read_text())
        assert summary["models"] == ["traces", "prose"] and summary["key"]
        with OpenAI(base_url=f"{summary['url']}/v1", api_key="a-key-that-is-long-enough", max_retries=0) as client:
            answer = client.chat.completions.create(**question("What is 12 plus 7?"))
        assert answer.choices[0].message.content == alone(traces, "What is 12 plus 7?")[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    said = err.read_text()
    assert "stopped" in said and "Traceback" not in said and "long-enough" not in said


def test_what_cannot_be_served_is_reported_in_a_sentence(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    main = folders[0]
    assert "name a variable that holds a key with --api-key-env" in tinyrun.cirf("serve", main, "--host", "0.0.0.0").error()
    monkeypatch.setenv("CIRF_TEST_KEY", "short")
    for key in ("CIRF_TEST_KEY", "CIRF_NO_SUCH_KEY"):
        assert "set it to 16 characters or more" in tinyrun.cirf("serve", main, "--api-key-env", key).error()
    for missing in ("./nowhere", "runs/nowhere"):  # the latter may be no hub id: it is where runs are
        assert f"{missing.removeprefix('./')}: no such folder" in tinyrun.cirf("serve", missing, "--port", "0").error()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "give another --host or --port" in tinyrun.cirf("serve", main, "--port", str(port)).error()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'cirf[serve]'" in tinyrun.cirf("serve", main).error()


FEW_FILES = """
import resource
from fastapi import FastAPI
from cirf.serving.limits import Limits
from cirf.serving.server import bind, make_server

resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
bound = bind("127.0.0.1", 0)
make_server(FastAPI(), Limits(), lambda: print(bound.getsockname()[1], flush=True)).run(sockets=[bound])
"""


def test_more_connections_than_files_may_be_open_are_refused_and_not_logged(tmp_path: Path) -> None:
    with (
        open(tmp_path / "log", "w") as log,
        subprocess.Popen([sys.executable, "-c", FEW_FILES], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            where = ("127.0.0.1", int(process.stdout.readline()))
            with contextlib.ExitStack() as stack:
                idle = [stack.enter_context(socket.create_connection(where, timeout=PATIENCE)) for _ in range(300)]
                wait_for(lambda: sum(map(is_closed, idle)) > 150)
                assert sum(not is_closed(one) for one in idle) > 32
            wait_for(lambda: answers(where))
        finally:
            process.terminate()
    assert not (tmp_path / "log").read_text()


def answers(where: tuple[str, int]) -> bool:
    """Whether a server answers."""
    with contextlib.suppress(ConnectionError), socket.create_connection(where, timeout=PATIENCE) as one:
        one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return one.recv(100).startswith(b"HTTP/1.1 200")
    return False


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    try:
        connection.setblocking(False)
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture(scope="module")
def cascade() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cascade", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(
    cascade: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, object]:
    monkeypatch.setattr("sys.stdin", io.StringIO("\nyes\n"))
    cascade.main([*arguments, "--max-tokens", "6"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_models_that_agree_are_enough(
    cascade: ModuleType, server: Running, prose: ServedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{server.url}/v1#prose", f"{server.url}/v1#traces"
    answer = alone(prose, "yes", cap=6)[1].strip()
    assert answer
    found = asked(cascade, monkeypatch, capsys, "--trace", one, "--trace", one, "--trace", other, "--prose", other)
    assert found["answer"] == answer and found["asked"] == ["prose", "prose"]


def test_the_third_decides_and_prose_where_all_differ(
    cascade: ModuleType,
    server: Running,
    prose: ServedModel,
    traces: ServedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = f"{server.url}/v1#prose", f"{server.url}/v1#traces"
    answers = [alone(model, "yes", cap=6)[1].strip() for model in (prose, traces)]
    assert answers[0] != answers[1]
    found = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one, "--trace", one)
    assert found["answer"] == answers[0] and found["asked"] == ["traces", "prose", "prose"]
    alone_tokens = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one)
    assert alone_tokens["answer"] == (answers[1] or answers[0]) and alone_tokens["asked"] == ["traces", "prose"]
    last = asked(cascade, monkeypatch, capsys, "--trace", other, "--trace", one, "--prose", one)
    assert last["answer"] == answers[0] and last["asked"] == ["traces", "prose", "prose"]
    assert last["tokens"] == found["tokens"] and found["tokens"] > alone_tokens["tokens"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("contents", "answer"),
    [
        (("<cirf_001>6*2=12</cirf>12", "Two sixes are 12.\n#### 12"), "12"),  # reasoning in the text: only answers are compared
        (("", "12"), "12"),
        ((None, ""), ""),
    ],
)
def test_answers_count_without_their_reasoning(cascade: ModuleType, contents: tuple[str | None, str | None], answer: str) -> None:
    faulty, places = tinyrun.faulty(), list[str]()
    with contextlib.ExitStack() as stack:
        for content in contents:
            server = faulty.Server(lambda body: "")
            choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
            counted = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
            made = {"id": "1", "object": "chat.completion", "created": 1, "model": "mine", "choices": [choice], "usage": counted}
            server.raw = json.dumps(made).encode()
            stack.enter_context(faulty.serve(server))
            places.append(f"{server.url}#mine")
        assert cascade.cascade("6 * 2?", places) == {"answer": answer, "asked": ["mine", "mine"], "tokens": 8}


def test_a_server_that_fails_is_named(cascade: ModuleType) -> None:
    place = "http://127.0.0.1:1/v1#mine"
    with pytest.raises(SystemExit, match=place):
        cascade.ask(place, "yes", 6)


def test_one_model_cannot_agree(cascade: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cascade.main(["--trace", "http://127.0.0.1:1/v1#mine"])
    assert "twice or more" in capsys.readouterr().err
