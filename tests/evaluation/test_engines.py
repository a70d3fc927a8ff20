"""Evaluations whose answers come from a server, or from vLLM."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import tinyrun
import yaml
from benchmarks import served_latency
from tables import each_row

from cirf.errors import CirfError
from cirf.evaluation.engines import check_vllm
from cirf.serving.model import load_served
from cirf.store.jsonl import read_rows

sys.path.append(str(Path(__file__).parents[1] / "serving"))
from running import Running

READ = ("id", "output", "trace", "answer", "parsed", "correct", "tokens", "truncated", "well_formed")


def rows(run: Path, method: str) -> list[dict[str, Any]]:
    return [{key: row.get(key) for key in READ} for row in read_rows(run / "evaluation" / method / "sums.jsonl")]


def test_a_server_answers_as_the_model_here_does(finished: Path, tmp_path: Path) -> None:
    with Running([load_served(finished / "models" / "cirf_full")]) as running, running.client() as client:
        served = {"url": f"{running.url}/v1", "model": client.models.list().data[0].id}
        endpoints = json.dumps({"cirf_full": served})
        said = tinyrun.cirf(
            "evaluate", finished, "--out", tmp_path / "out", "--set", f"evaluate.endpoints={endpoints}",
            "--set", "evaluate.latency_questions=1", "--json",
        )  # fmt: skip
    assert said.code == 0, said.err
    assert rows(tmp_path / "out", "cirf_full") == rows(finished, "cirf_full")
    report = json.loads(said.out)
    timed = json.loads((tmp_path / "out" / "latency" / "timings.json").read_text())["methods"]
    assert "cirf_full" not in timed and "cot" in timed
    assert f"answered by {served['model']} at {served['url']}" in json.dumps(report)


VOTING = ("--protocol", "own", "--limit", "4", "--set", "evaluate.voting.problems=3")


def test_votes_of_a_server_are_read_as_those_of_the_model_here(finished: Path, tmp_path: Path) -> None:
    likeliest = ("--set", "evaluate.voting.top_p=0.000001")  # whatever the seed

    def voted(name: str, votes: str, *more: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        out = tmp_path / name
        keys = ("--method", "cirf_full", "--votes", votes, *VOTING, *likeliest, *more)
        said = tinyrun.cirf("evaluate", finished, "--out", out, *keys)
        assert said.code == 0, said.err
        kept = read_rows(out / "votes" / "cirf_full" / "sums.jsonl")
        return kept, json.loads((out / "voting" / "cirf_full" / "voting.json").read_text())

    here, curve = voted("here", "1,3")
    with Running([load_served(finished / "models" / "cirf_full")]) as running, running.client() as client:
        model = client.models.list().data[0].id
        endpoint = ("--set", f"evaluate.endpoints={json.dumps({'cirf_full': {'url': f'{running.url}/v1', 'model': model}})}")
        served = voted("served", "1,3", *endpoint)
    assert served == (here, curve | {"engine": f"{model} at {running.url}/v1"})
    assert served[1]["engine"] in (tmp_path / "served" / "report.html").read_text()
    fewer, _ = voted("served", "2", *endpoint)  # the server is gone, and not needed
    assert [row["votes"] for row in fewer] == [row["votes"][:2] for row in here]


def test_each_vote_of_a_server_has_its_seed_and_is_requested_once(finished: Path, tmp_path: Path) -> None:
    def slow(body: dict[str, Any]) -> str:
        time.sleep(0.1)
        return f"The answer is {body['seed'] % 3}."

    faulty = tinyrun.faulty()
    server = faulty.Server(slow)

    def voted(name: str, votes: str, *more: str) -> list[list[str | None]]:
        keys = ("--method", "cot", "--votes", votes, *VOTING, *more, "--set", endpoints("cot", server.url))
        said = tinyrun.cirf("evaluate", finished, "--out", tmp_path / name, *keys)
        assert said.code == 0, said.err
        kept = read_rows(tmp_path / name / "votes" / "cot" / "sums.jsonl")
        return [[vote["parsed"] for vote in row["votes"]] for row in kept]

    def sampled() -> list[dict[str, Any]]:
        return [body for body in server.asked if body["temperature"] > 0]

    with faulty.serve(server):
        four = voted("out", "1,4")
        assert len(sampled()) == len({body["seed"] for body in sampled()}) == 12
        assert server.most_under_way > 4  # not question by question
        assert {(body["temperature"], body["top_p"]) for body in sampled()} == {(0.7, 0.95)}
        assert len({answer for votes in four for answer in votes}) == 3
        assert voted("out", "2") == [votes[:2] for votes in four] and len(sampled()) == 12
        assert [votes[:4] for votes in voted("out", "6")] == four and len(sampled()) == 12 + 6
        assert voted("again", "4") == four  # the seeds are those of the recipe
        server, first = faulty.Server(slow), server
        with faulty.serve(server):  # another one, whose model has the same name
            assert voted("out", "4") == four and len(sampled()) == 12
        server = first
        question = read_rows(tmp_path / "out" / "votes" / "cot" / "sums.jsonl")[1]["prompt"]
        server.refuse = {question: 400}
        more = ("--set", "evaluate.max_unanswered_share=0.4", "--set", "evaluate.voting.temperature=1.5")
        refused = [votes == [None, None] for votes in voted("refused", "2", *more)]
        rows = read_rows(tmp_path / "refused" / "votes" / "cot" / "sums.jsonl")
    failed = [vote["failed"] for row in rows for vote in row["votes"] if "failed" in vote]
    assert refused == [False, True, False] and [why.partition(" (")[0] for why in failed] == ["HTTP 400"] * 2
    voting = json.loads((tmp_path / "refused" / "voting" / "cot" / "voting.json").read_text())
    given = [vote["tokens"] for row in rows for vote in row["votes"] if "failed" not in vote]
    (point,) = voting["curve"]
    assert voting["failed"] == 2 and point["tokens"] == 2 * sum(given) / len(given)  # a missing vote is not a short one
    page = (tmp_path / "refused" / "report.html").read_text()
    assert "2 votes were not given" in page


def test_a_server_of_no_method_is_refused(finished: Path, tmp_path: Path) -> None:
    served = "evaluate.endpoints={other: {url: 'http://localhost:1/v1', model: m}}"
    said = tinyrun.cirf("run", finished.parent / "recipe.yaml", "--out", tmp_path / "out", "--set", served)
    assert said.code == 2 and "evaluate.endpoints: other is none of" in said.err and "Traceback" not in said.err


def test_vllm_that_is_not_installed_is_named(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    said = tinyrun.cirf("evaluate", finished, "--out", tmp_path / "out", "--set", "evaluate.engine=vllm")
    assert said.code == 2 and "evaluate.engine: vllm is not installed" in said.err and "Traceback" not in said.err


NEEDS = {
    "vLLM": (["evaluate.engine=vllm"], "evaluate.engine: vllm is not installed"),
    "key": (
        ["evaluate.endpoints={cot: {url: 'https://example.com/v1', model: m, api_key_env: BIG_API_KEY}}"],
        "BIG_API_KEY is not set",
    ),
    "vectors": (
        ["methods=[cirf_full, codi]", "evaluate.endpoints={codi: {url: 'http://localhost:1/v1', model: m}}"],
        "evaluate.endpoints.codi: a server cannot compute the vectors",
    ),
}


@pytest.mark.parametrize("needs", NEEDS)
def test_what_answers_need_is_checked_before_any_work(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: str
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delenv("BIG_API_KEY", raising=False)
    keys, message = NEEDS[needs]
    sets = [part for key in keys for part in ("--set", key)]
    command = ("run", finished.parent / "recipe.yaml", "--out", tmp_path / "out", *sets)
    for more in ((), ("--dry-run",)):
        said = tinyrun.cirf(*command, *more)
        assert said.code == 2 and message in said.err and not (tmp_path / "out" / "problems").exists(), more
    trained = tinyrun.cirf(
        "run", finished.parent / "recipe.yaml", "--out", tmp_path / "out", *sets, "--until", "models", "--dry-run"
    )
    assert trained.code == 0, "what trains alone needs none of them"


def test_vllm_is_no_one_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    check_vllm()
    monkeypatch.setattr("cirf.evaluation.engines.world_size", lambda: 2)
    with pytest.raises(CirfError, match="start `cirf run` as one process"):
        check_vllm()


def test_an_endpoint_may_have_its_own_cap_and_patience(finished: Path, tmp_path: Path) -> None:
    faulty = tinyrun.faulty()
    server = faulty.Server(lambda body: "The answer is 7.")
    asking = ("evaluate", finished, "--method", "cot", "--limit", "1")
    given = [({}, "null"), *[({"max_new_tokens": cap}, "null") for cap in (4000, 4000, 5000)], ({"max_new_tokens": 5000}, "900")]
    with faulty.serve(server):
        for own, budget in given:
            keys = ("--set", endpoints("cot", server.url, **own), "--set", f"evaluate.max_completion_tokens={budget}")
            said = tinyrun.cirf(*asking, "--out", tmp_path / "out", *keys)
            assert said.code == 0, said.err
        assert [body["max_tokens"] for body in server.asked] == [8, 4000, 5000, 900]  # an equal cap is asked for once
        server.share, server.faults = 1.0, ("timeout",)
        hasty = endpoints("cot", server.url, timeout=0.1, max_retries=1)
        said = tinyrun.cirf(*asking, "--out", tmp_path / "hasty", "--set", hasty)
    assert said.code == 2 and "no answer in time" in said.err and len(server.asked) == 4 + 2


def endpoints(method: str, url: str, **more: Any) -> str:
    return f"evaluate.endpoints={json.dumps({method: {'url': url, 'model': 'large', **more}})}"


def test_servers_of_evaluations_are_named_and_their_keys_checked_before_any_work(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = finished.parent / "recipe.yaml"
    named = endpoints("cot", "https://example.com/v1", api_key_env="BIG_API_KEY")
    monkeypatch.setenv("BIG_API_KEY", "sesame-opens")
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "out", "--dry-run", "--set", named)
    assert said.code == 0 and "https://example.com/v1: requests for large, with the API key in BIG_API_KEY" in said.out
    for command in (("run", recipe), ("evaluate", finished)):
        refused = tinyrun.cirf(*command, "--out", tmp_path / "out", "--set", named.replace("BIG_API_KEY", "MY_SECRET"))
        assert refused.code == 2 and "add --allow-env MY_SECRET" in refused.err
        assert not (tmp_path / "out").exists()
    faulty = tinyrun.faulty()
    monkeypatch.setenv("MY_SECRET", "mine")
    with faulty.serve(faulty.Server(lambda body: "7")) as server:
        allowed = endpoints("cot", server.url, api_key_env="MY_SECRET")
        said = tinyrun.cirf(
            "evaluate", finished, "--method", "cot", "--out", tmp_path / "out", "--set", allowed, "--allow-env", "MY_SECRET"
        )
    assert said.code == 0 and server.keys == {"Bearer mine"}, said.err


def test_a_server_that_refuses_is_named_with_its_reason(finished: Path, tmp_path: Path) -> None:
    faulty = tinyrun.faulty()
    server = faulty.Server(lambda body: "7")
    server.complain = lambda body: (400, "the prompt is too long")
    with faulty.serve(server):
        said = tinyrun.cirf(
            "evaluate", finished, "--method", "cot", "--out", tmp_path / "out", "--set", endpoints("cot", server.url)
        )
    assert said.code == 2 and "requests were not answered (the last: HTTP 400 (the prompt is too long))" in said.err
    assert "unanswered:" not in said.err  # no key of evaluations


@pytest.mark.parametrize("content", ["", None, "8"])
def test_a_trace_without_its_closing_delimiter_is_read_as_here(finished: Path, tmp_path: Path, content: str | None) -> None:
    faulty = tinyrun.faulty()
    message = {"role": "assistant", "content": content, "reasoning": "<cirf_001>7"}
    server = faulty.Server(lambda body: "")
    server.raw = json.dumps(
        {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    ).encode()
    with faulty.serve(server):
        said = tinyrun.cirf(
            "evaluate", finished, "--method", "cirf_full", "--limit", "1", "--out", tmp_path / "out",
            "--set", endpoints("cirf_full", server.url),
        )  # fmt: skip
    assert said.code == 0, said.err
    for row in rows(tmp_path / "out", "cirf_full"):
        assert row["well_formed"] is bool(content) and row["parsed"] == (content or "7")


def whole(content: str | None, reasoning: str | None = None, finish: str = "stop") -> bytes:
    """The body of an answer."""
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": usage}).encode()


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "in the text"])
def test_thoughts_are_kept_and_hold_no_answer_wherever_a_server_puts_them(finished: Path, tmp_path: Path, apart: bool) -> None:
    faulty = tinyrun.faulty()
    server, said, kept = faulty.Server(lambda body: ""), {}, {}
    bodies = {"answered": ("The answer is 999.", "The answer is 7.", "stop"), "cut": ("Maybe it is 7. Wait", None, "length")}
    with faulty.serve(server):
        for name, (thought, content, finish) in bodies.items():
            closed = f"</think>{content}" if content else ""
            server.raw = whole(content, thought, finish) if apart else whole(f"<think>{thought}{closed}", None, finish)
            made = tinyrun.cirf(
                "evaluate", finished, "--method", "cot", "--limit", "1", "--out", tmp_path / name, "--votes", "1", *VOTING,
                "--set", endpoints("cot", server.url),
            )  # fmt: skip
            assert made.code == 0, made.err
            assert "reasoning without content" not in made.err  # none, or truncated
            said[name], kept[name] = tinyrun.cirf("show", tmp_path / name).out, rows(tmp_path / name, "cot")[0]
            (vote,) = read_rows(tmp_path / name / "votes" / "cot" / "sums.jsonl")[0]["votes"]
            assert vote["parsed"] == kept[name]["parsed"] and vote["output"].startswith("<think>")
            assert thought in said[name] and thought in kept[name]["trace"]
    assert kept["answered"]["parsed"] == "7" and kept["cut"]["parsed"] is None and kept["cut"]["truncated"]


@pytest.mark.parametrize(("method", "warns"), [("cot", True), ("direct_sft", True), ("cirf_full", False)])
def test_a_method_whose_answers_are_reasoning_alone_is_named(finished: Path, tmp_path: Path, method: str, warns: bool) -> None:
    """The parser of the server is one for functional tokens, whose traces without an answer are read."""
    faulty = tinyrun.faulty()
    server = faulty.Server(lambda body: "")
    server.raw = whole("", "3 + 4 = 7\n#### 7")
    with faulty.serve(server):
        said = tinyrun.cirf(
            "evaluate", finished, "--method", method, "--out", tmp_path / "out", "--votes", "2", *VOTING,
            "--set", f"evaluate.voting.method={method}", "--set", endpoints(method, server.url),
        )  # fmt: skip
    assert said.code == 0, said.err
    for line in ("4 of 4 answers are reasoning without content", "6 of 6 votes are reasoning without content"):
        assert (line in said.err) is warns and said.err.count("--reasoning-parser") == 2 * warns


def test_a_server_is_not_asked_again_for_what_its_answers_do_not_depend_on(finished: Path, tmp_path: Path) -> None:
    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(lambda body: "7")) as server:
        for name in ("cot", "cirf_full"):
            keys = ("--method", name, "--out", tmp_path / name, "--set", endpoints(name, server.url))
            asked = []
            for more in ([], ["evaluate.batch_size=7"], ["backbone.dtype=bfloat16"], ["evaluate.max_new_tokens=9"]):
                own = ["evaluate.max_trace_tokens=25"] if name == "cirf_full" and "max_new" in "".join(more) else more
                said = tinyrun.cirf("evaluate", finished, *keys, *(part for key in own for part in ("--set", key)))
                assert said.code == 0, said.err
                asked.append(len(server.asked))
            first = asked[0]
            assert asked[:3] == [first] * 3 and asked[3] == first + 8  # another cap is another question


def test_a_question_that_is_always_refused_counts_as_wrong_and_is_named(finished: Path, tmp_path: Path) -> None:
    faulty = tinyrun.faulty()
    server, question = faulty.Server(lambda body: "The answer is 7."), "Box 3 gets"
    server.refuse = {question: 400}
    with faulty.serve(server):
        asking = ("evaluate", finished, "--method", "cot", "--set", endpoints("cot", server.url))
        said = tinyrun.cirf(*asking, "--out", tmp_path / "out", "--set", "evaluate.max_unanswered_share=0.2")
        assert said.code == 0, said.err
        assert "1 questions were not answered and count as wrong" in said.err
        failed = [row for row in read_rows(tmp_path / "out" / "evaluation" / "cot" / "sums.jsonl") if "failed" in row]
        assert [question in row["prompt"] for row in failed] == [True]
        assert failed[0]["failed"].startswith("HTTP 400 (refused with 400") and failed[0]["unparsed"] and not failed[0]["correct"]
        scores = json.loads((tmp_path / "out" / "evaluation" / "cot" / "scores.json").read_text())["overall"]
        assert scores["failed"] == 1 and scores["tokens"] == 7 and scores["n"] == 8
        shown = tinyrun.cirf("show", tmp_path / "out", "--id", failed[0]["id"]).out
        assert "unparsed" in shown and "no answer: HTTP 400 (refused with 400" in shown
        asked = len(server.asked)
        said = tinyrun.cirf(*asking, "--out", tmp_path / "other")
        assert "1 of 8 requests were not answered (the last: HTTP 400" in said.error()
        server.refuse = {}
        assert tinyrun.cirf(*asking, "--out", tmp_path / "other").code == 0
    assert len(server.asked) == asked + 8 + 1  # the answers that came are not asked for again


def test_one_connection_and_one_line_for_all_questions(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tinyrun.write_jsonl(tmp_path / "more.jsonl", tinyrun.sums(24, seed=4))
    monkeypatch.setenv("BIG_API_KEY", "sesame-opens")
    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(lambda body: "7")) as server:
        said = tinyrun.cirf(
            "evaluate", finished, "--method", "cot", "--out", tmp_path / "out", "--tasks", rows,
            "--set", endpoints("cot", server.url, concurrency=1, api_key_env="BIG_API_KEY"),
            "--set", "evaluate.temperature=1", "--set", "evaluate.runs=2", "--protocol", "own",
        )  # fmt: skip
    assert said.code == 0, said.err
    assert len(server.asked) == 48 and len(server.connections) == 2  # one a run
    assert said.err.count(f"{server.url}: requests for large") == 1


def test_the_check_of_a_model_asks_no_server(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(lambda body: "7")) as server:
        said = tinyrun.cirf(
            "run", finished.parent / "recipe.yaml", "--out", run, "--until", "checks/cirf_full",
            "--set", endpoints("cirf_full", server.url), "--set", "evaluate.check_questions=2",
        )  # fmt: skip
    assert said.code == 0 and not server.asked, said.err
    assert (run / "checks" / "cirf_full" / "check.json").is_file()


def test_as_many_requests_are_under_way_as_the_endpoint_says(finished: Path, tmp_path: Path) -> None:
    def slow(body: dict[str, Any]) -> str:
        time.sleep(0.1)
        return "7"

    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(slow)) as server:
        said = tinyrun.cirf(
            "evaluate", finished, "--method", "cot", "--out", tmp_path / "out", "--set", endpoints("cot", server.url),
            "--set", "evaluate.batch_size=4",
        )  # fmt: skip
    assert said.code == 0 and server.most_under_way == 8, said.err  # of 8 questions


def test_a_model_is_evaluated_itself_whatever_server_its_recipe_names(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    for folder in (run, run / "models" / "cirf_full"):
        recipe = folder / "recipe.yaml"
        keys = yaml.safe_load(recipe.read_text())
        keys["evaluate"]["endpoints"] = {name: {"url": "http://localhost:1/v1", "model": "m"} for name in ("cirf_full", "cot")}
        recipe.write_text(yaml.safe_dump(keys))
    said = tinyrun.cirf("evaluate", run, "--method", "direct_sft", "--out", tmp_path / "one")
    assert said.code == 0, said.err
    said = tinyrun.cirf("evaluate", run / "models" / "cirf_full", "--out", tmp_path / "two")
    assert said.code == 0, said.err


@each_row(
    ("deltas", "begins"),
    [
        ([("reasoning", "<cirf_001>"), ("reasoning_content", "12"), ("content", "12"), ("content", "")], 2),  # a reasoning parser
        ([("content", "<cirf_001>12"), ("content", "</cirf>"), ("content", "12")], 2),  # raw, as llama.cpp returns it
        ([("content", "6 * 2 = 12.\n"), ("content", "##"), ("content", "## "), ("content", "12"), ("content", "0")], 3),
        ([("content", "</think>\n\n1"), ("content", "2")], 0),
        ([("content", "6 * 2 is"), ("content", "12")], None),  # nothing tells where its answer begins
        ([("content", "6 * 2 is 12 ####")], None),
        ([("reasoning", "6 * 2")], None),
    ],
)
def test_the_answer_is_timed_from_where_the_reasoning_ends(deltas: list[tuple[str, str]], begins: int | None) -> None:
    sent: list[float] = []

    async def stream() -> AsyncIterator[Any]:
        for name, text in deltas:
            await asyncio.sleep(0.002)
            sent.append(time.perf_counter())
            delta = SimpleNamespace(**({"content": None} | {name: text}))
            yield SimpleNamespace(usage=None, choices=[SimpleNamespace(delta=delta, finish_reason=None)])
        yield SimpleNamespace(usage=None, choices=[SimpleNamespace(delta=SimpleNamespace(content=None), finish_reason="stop")])
        yield SimpleNamespace(usage=SimpleNamespace(completion_tokens=len(deltas)), choices=[])

    async def create(**asked: Any) -> AsyncIterator[Any]:
        return stream()

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    started = time.perf_counter()
    timed = asyncio.run(served_latency.answer(client, "mine", "6 * 2?", 24))
    assert timed.tokens == len(deltas) and timed.first <= timed.answer <= timed.end
    if begins is None:
        assert timed.answer == timed.end
    else:
        after = [each - started for each in sent[begins + 1 : begins + 2]]
        assert timed.answer < min([*after, timed.end]) and (timed.answer == timed.first) == (begins == 0)


TEXT: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "12"}, "finish_reason": None}]}
END: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE: dict[str, Any] = {"usage": {"completion_tokens": 3, "prompt_tokens": 1, "total_tokens": 4}}
GONE = 0


class Streams(BaseHTTPRequestHandler):
    """Answers in turn, and the last one again and again: the chunks of a stream, or a status with its headers."""

    left: ClassVar[list[Any]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if found == GONE:
            return self.connection.shutdown(socket.SHUT_RDWR)
        status, headers = found if isinstance(found, tuple) else (200, {"content-type": "text/event-stream"})
        self.send_response(status)
        for name, value in (headers | {"connection": "close"}).items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in found if isinstance(found, list) else ():
            whole = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": []} | chunk
            self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before requests are sent again, which take no time."""
    found, named = list[float](), served_latency._wait

    def wait(error: Exception, usual: float) -> float:
        found.append(named(error, usual))
        return 0.0

    monkeypatch.setattr(served_latency, "_wait", wait)
    monkeypatch.setattr(served_latency, "WARMUP", 0)
    return found


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        ([[TEXT, END, USAGE]], {"failed": 0, "tokens": 3.0, "retries": 0}),
        ([[TEXT, END]], {"failed": 0, "tokens": None, "retries": 0}),  # it counts no tokens
        ([[TEXT], [TEXT, END, USAGE]], {"failed": 0, "tokens": 3.0, "retries": 1}),  # cut, then whole
        ([(429, {"retry-after": "7"}), [TEXT, END]], {"failed": 0, "retries": 1, "waits": [7.0]}),
        ([(503, {}), [TEXT, END]], {"failed": 0, "retries": 1, "waits": [1.0]}),
        ([[TEXT]], {"failed": 1, "tokens": None, "end_50_s": None, "waits": [*served_latency.WAITS]}),
        ([(429, {})], {"failed": 1, "requests_per_s": 0.0, "waits": [*served_latency.WAITS]}),
        ([(400, {})], {"failed": 1, "waits": []}),  # sending it again is of no use
        ([GONE, [TEXT, END]], {"failed": 0, "retries": 1}),
    ],
)
def test_cut_and_refused_requests_are_sent_again_and_then_fail(
    answers: list[Any],
    made: dict[str, Any],
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(served_latency, "asked", lambda *given: [{"prompt": "6 * 2?"}])
    monkeypatch.setattr(Streams, "left", [*answers], raising=False)
    out = tmp_path / "rows.jsonl"
    with ThreadingHTTPServer(("127.0.0.1", 0), Streams) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"sft_cot=http://127.0.0.1:{server.server_port}/v1#mine"
        monkeypatch.setattr(sys, "argv", ["benchmark", "run", "--server", place, "--concurrency", "1", "--out", str(out)])
        served_latency.main()
        server.shutdown()
    said = capsys.readouterr()
    (row,) = map(json.loads, out.read_text().splitlines())
    assert {name: (row | {"waits": waits})[name] for name in made} == made
    assert said.out.splitlines()[2].split()[:4] == ["sft_cot", "1", str(row["tokens"] or "-"), str(row["failed"])]
    assert ("1 failed: " in said.err) == bool(row["failed"])


def test_a_request_that_takes_too_long_has_failed_and_an_error_of_ours_is_none_of_the_server(waits: list[float]) -> None:
    async def create(**asked: Any) -> Any:
        raise errors.pop()

    class Timeout(Exception):
        pass

    Timeout.__module__, Timeout.__name__ = "openai", "APITimeoutError"
    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    errors = [KeyError("ours"), Timeout("slow")]
    assert asyncio.run(served_latency.finished(client, "mine", "6 * 2?", 24)) == "APITimeoutError: slow" and not waits
    with pytest.raises(KeyError):
        asyncio.run(served_latency.finished(client, "mine", "6 * 2?", 24))


def test_rows_are_written_as_they_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def load(url: str, questions: Any, concurrency: int, most: int) -> dict[str, Any]:
        if concurrency == 8:
            raise KeyboardInterrupt
        return {"concurrency": concurrency} | served_latency.summary([served_latency.Timed(1, 2, 3, 4)], 3.0)

    monkeypatch.setattr(served_latency, "load", load)
    monkeypatch.setattr(served_latency, "asked", lambda *given: [])
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", ["served_latency", "run", "--server", "a=u", "--concurrency", "1,8", "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        served_latency.main()
    (row,) = map(json.loads, out.read_text().splitlines())
    assert (row["first_95_s"], row["answer_50_s"], row["tokens"]) == (1, 2, 4)
