"""Asking endpoints: whatever they do, every question is answered once and kept."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from faulty import FAULTS, Server, serve
from tables import each_row

from cirf.endpoints.calls import LONGEST, Connection, retry_after
from cirf.endpoints.fleet import ask, known_answers
from cirf.endpoints.requests import Request, allow, check, finish_of
from cirf.errors import CirfError
from cirf.progress import Advance
from cirf.recipe import schema
from cirf.store.files import RowLog
from cirf.store.jsonl import read_rows

MODEL = "teacher"


def echo(body: dict[str, Any]) -> str:
    return f"answer to {body['messages'][0]['content']} by {body['model']} with {body['seed']}"


def requests(count: int, model: str = MODEL, start: int = 0) -> list[Request]:
    return [Request(model, (("user", f"question {i}"),), 1000 + i, 0.7, 0.95, 64) for i in range(start, start + count)]


def section(*servers: Server, **keys: Any) -> schema.RequestSettings:
    models = keys.pop("models", [MODEL] * len(servers))
    concurrency = keys.pop("concurrency", 8)
    pairs = zip(servers, models, strict=True)
    endpoints = tuple(schema.Endpoint(url=server.url, model=model, concurrency=concurrency) for server, model in pairs)
    return schema.RequestSettings(**({"endpoints": endpoints, "timeout": 0.5, "max_retries": 12} | keys))


class Notes:
    """Progress that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    @contextlib.contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Advance]:
        yield lambda count, note="": self.said.append((count, note))


def test_a_long_wait_is_named_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.endpoints.fleet._BEAT", 0.02)
    monkeypatch.setattr("cirf.endpoints.fleet._LONG", 0.1)

    def stalls(body: dict[str, Any]) -> str:
        time.sleep(0.4 * body["messages"][0]["content"].endswith(("0", "1")))
        return echo(body)

    notes = Notes()
    with serve(Server(stalls)) as server:
        ask(requests(6), section(server, timeout=30.0), RowLog(tmp_path / "log"), notes)
    waits = [note for count, note in notes.said if count == 0 and "2 under way, one for 0 of 30 s" in note]
    assert len(waits) > 3 and sum(count for count, _ in notes.said) == 6
    assert "under way" not in notes.said[0][1] and "under way" not in notes.said[-1][1]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cirf.endpoints.fleet._FIRST_PAUSE", 0.005)
    monkeypatch.setattr("cirf.endpoints.fleet._LONGEST_PAUSE", 0.05)


def test_two_hundred_questions_to_a_server_that_fails_three_times_in_ten(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log.jsonl")
    asked = requests(200)
    with serve(Server(echo, share=0.3)) as server:
        answers, refused = ask(asked, section(server, concurrency=32, max_retries=40), log)  # a slow machine is no fault of ours
    assert refused == {}
    assert set(server.failed) == set(FAULTS)
    assert {request.key: f"answer to {request.messages[0][1]} by teacher with {request.seed}" for request in asked} == {
        key: answer.text for key, answer in answers.items()
    }
    rows = read_rows(tmp_path / "log.jsonl")
    assert sorted(row["key"] for row in rows) == sorted(request.key for request in asked)
    assert all(row["tokens"] == 7 and row["finish"] == "stop" for row in rows)


def test_a_rerun_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with serve(Server(echo)) as server:
        ask(requests(20), section(server), RowLog(path))
        path.write_bytes(path.read_bytes()[:-10])  # a kill in the middle of the last row
        answers, _ = ask(requests(30), section(server), RowLog(path))
    assert len(answers) == 30
    assert sum(server.answered.values()) == 31 and len(server.answered) == 30
    assert len(known_answers(RowLog(path))) == 30


GOOD = {"key": "ab", "model": "m", "text": "t", "finish": "stop", "tokens": 3}


@pytest.mark.parametrize(
    "line",
    [
        *(json.dumps(GOOD).replace(f'"{key}"', '"kez"') for key in ("key", "text", "finish", "tokens")),
        "[1]",
        "7",
        "null",
        '{"key',
    ],
)
def test_a_changed_letter_in_the_log_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rationales.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n{json.dumps(GOOD)}\n")
    with pytest.raises(CirfError, match=r"rationales\.jsonl, line 2: damaged; remove the line"):
        known_answers(RowLog(path))


def test_what_is_asked_is_what_the_request_says(tmp_path: Path) -> None:
    with serve(Server(echo)) as server:
        ask(requests(1), section(server), RowLog(tmp_path / "log"))
    (body,) = server.asked
    assert {key: body[key] for key in ("model", "temperature", "top_p", "max_tokens", "seed", "messages")} == {
        "model": MODEL,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 64,
        "seed": 1000,
        "messages": [{"role": "user", "content": "question 0"}],
    }


def test_a_fleet_shares_the_questions_of_a_model_and_never_takes_another_models(tmp_path: Path) -> None:
    slow = Server(lambda body: (__import__("time").sleep(0.01), echo(body))[1])
    with serve(slow), serve(Server(echo)) as other, serve(Server(echo)) as third:
        asked = requests(60) + requests(20, "second")
        fleet = section(slow, other, third, models=[MODEL, MODEL, "second"], concurrency=2)
        answers, _ = ask(asked, fleet, RowLog(tmp_path / "log"))
    assert len(answers) == 80
    assert slow.answered and other.answered
    assert sum(slow.answered.values()) + sum(other.answered.values()) == 60
    assert {body["model"] for body in third.asked} == {"second"} and len(third.asked) == 20


def test_no_more_requests_are_under_way_than_allowed(tmp_path: Path) -> None:
    server = Server(lambda body: (__import__("time").sleep(0.005), echo(body))[1])
    with serve(server):
        ask(requests(60), section(server, concurrency=3), RowLog(tmp_path / "log"))
    assert 2 <= server.most_under_way <= 3


def test_a_dead_server_leaves_its_questions_to_the_others(tmp_path: Path) -> None:
    with serve(Server(echo)) as alive, serve(Server(echo)) as gone:
        fleet = section(gone, alive)
    with serve(Server(echo)) as alive:
        fleet = schema.RequestSettings(
            endpoints=(fleet.endpoints[0], schema.Endpoint(url=alive.url, model=MODEL)), max_retries=12, timeout=0.5
        )
        answers, _ = ask(requests(40), fleet, RowLog(tmp_path / "log"))
    assert len(answers) == 40


def test_what_stays_unanswered_is_said_and_what_came_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with serve(Server(echo, share=0.5, faults=("500",))) as server:
        with pytest.raises(CirfError, match=r"of 40 requests were not answered after 0 retries .*500 \(out of luck\).*again"):
            ask(requests(40), section(server, max_retries=0), RowLog(path))
        kept = len(known_answers(RowLog(path)))
        assert 5 < kept < 35
        server.share = 0.0
        assert len(ask(requests(40), section(server), RowLog(path))[0]) == 40
    assert sum(server.answered.values()) == 40


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_everybody_ends_it_at_once(tmp_path: Path, status: int) -> None:
    server = Server(echo)
    server.refuse = {"question": status}
    with serve(server), pytest.raises(CirfError, match=rf"HTTP {status} \(refused with {status}: Bearer none\); check"):
        ask(requests(90), section(server), RowLog(tmp_path / "log"))
    assert len(server.asked) <= 16


def test_a_question_that_is_refused_is_distinguished_and_not_asked_on_and_on(tmp_path: Path) -> None:
    server = Server(echo)
    server.refuse = {"question 7": 413}
    asked = requests(10)
    with serve(server):
        answers, refused = ask(asked, section(server, unanswered="drop"), RowLog(tmp_path / "log"))
        assert len(answers) == 9 and refused == {asked[7].key: "HTTP 413 (refused with 413: Bearer none)"}
        assert sum(body["messages"][0]["content"] == "question 7" for body in server.asked) == 1
        with pytest.raises(CirfError, match=r"1 of 10 requests were refused \(all: HTTP 413 .*kept.*unanswered: drop"):
            ask(asked, section(server), RowLog(tmp_path / "log"))
        server.refuse = {}
        assert len(ask(asked, section(server), RowLog(tmp_path / "log"))[0]) == 10
    assert sum(server.answered.values()) == 10


def test_what_one_server_refuses_another_is_asked(tmp_path: Path) -> None:
    narrow, wide = Server(echo), Server(echo)
    narrow.refuse = {"question": 400}
    with serve(narrow), serve(wide):
        answers, refused = ask(requests(20), section(narrow, wide), RowLog(tmp_path / "log"))
    assert len(answers) == 20 and not refused and sum(wide.answered.values()) == 20


def test_a_server_that_turns_everybody_away_is_set_aside_while_another_answers(tmp_path: Path) -> None:
    wrong, right = Server(echo), Server(echo)
    wrong.refuse = {"question": 404}
    with serve(wrong), serve(right):
        answers, _ = ask(requests(60), section(wrong, right), RowLog(tmp_path / "log"))
        assert len(answers) == 60 and len(wrong.asked) <= 16
        right.refuse = {"question": 401}
        with pytest.raises(CirfError, match=r"HTTP 40[14] "):
            ask(requests(5, start=100), section(wrong, right), RowLog(tmp_path / "log"))


def test_a_dead_server_does_not_use_up_the_tries_of_questions_that_a_slow_one_will_answer(tmp_path: Path) -> None:
    slow = Server(lambda body: (__import__("time").sleep(0.05), echo(body))[1])
    with serve(Server(echo)) as gone:
        dead = schema.Endpoint(url=gone.url, model=MODEL, concurrency=8)
    with serve(slow):
        fleet = schema.RequestSettings(
            endpoints=(dead, schema.Endpoint(url=slow.url, model=MODEL, concurrency=1)), max_retries=2, timeout=5.0
        )
        answers, _ = ask(requests(16), fleet, RowLog(tmp_path / "log"))
    assert len(answers) == 16


def test_the_schema_is_left_out_where_a_server_breaks_over_it(tmp_path: Path) -> None:
    for status in (501, 404, 500):
        server = Server(echo)
        server.structured, server.unstructured_status = False, status
        asked = [Request(MODEL, (("user", f"question {i}"),), i, 0.2, 0.9, 64, '{"type": "object"}') for i in range(12)]
        with serve(server):
            answers, _ = ask(asked, section(server, concurrency=2), RowLog(tmp_path / str(status)))
        assert len(answers) == 12
        assert sum("response_format" in body for body in server.asked) <= 5


def test_a_server_without_structured_output_is_asked_without(tmp_path: Path) -> None:
    server = Server(echo)
    server.structured = False
    asked = [Request(MODEL, (("user", f"question {i}"),), i, 0.2, 0.9, 64, '{"type": "object"}') for i in range(12)]
    with serve(server):
        answers, _ = ask(asked, section(server, concurrency=2), RowLog(tmp_path / "log"))
    assert len(answers) == 12
    assert sum("response_format" in body for body in server.asked) <= 2


_BOTH = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
_OLD_CAP = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
_ONE_HEAT = "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
_EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([("max_tokens", 400, {"message": _OLD_CAP})], {"temperature", "top_p", "seed", "max_completion_tokens"}),
        ([("seed", 422, {"message": _EXTRA})], {"temperature", "top_p", "max_tokens"}),
        ([("seed", 400, "body.seed: no extra inputs")], {"temperature", "top_p", "max_tokens"}),
        ([("seed", 501, "seed is not implemented")], {"temperature", "top_p", "max_tokens"}),
        ([("top_p", 400, "top-p cannot be set for this model")], {"temperature", "max_tokens", "seed"}),
        ([("seed", 500, "create() got an unexpected keyword argument 'seed'")], {"temperature", "top_p", "max_tokens"}),
        ([("top_p", 400, {"message": _BOTH})], {"temperature", "max_tokens", "seed"}),
        (
            [("max_tokens", 400, _OLD_CAP), ("temperature", 400, {"message": _ONE_HEAT}), ("top_p", 400, "top_p: unknown")],
            {"max_completion_tokens", "seed"},
        ),
        ([("max_tokens", 400, _OLD_CAP), ("max_completion_tokens", 400, _OLD_CAP)], {"temperature", "top_p", "seed"}),
    ],
)
def test_a_parameter_that_a_server_does_not_take_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rules: list[tuple[str, int, Any]], left: set[str]
) -> None:
    server = Server(lambda body: "72")
    server.complain = lambda body: next(((status, said) for name, status, said in rules if name in body), None)
    with serve(server):
        answers, refused = ask(requests(6), section(server, concurrency=1), RowLog(tmp_path / "log"))
    assert len(answers) == 6 and refused == {}
    assert server.asked[-1].keys() - {"model", "messages", "stream"} == left
    assert len(server.asked) == 6 + len(rules)  # learnt with the first question, for all the others
    assert f"{server.url}: it rejects {rules[0][0]}" in capsys.readouterr().err.replace("max_completion_tokens, max", "max")


def test_a_complaint_about_a_value_or_the_length_of_a_question_leaves_no_parameter_out(tmp_path: Path) -> None:
    server = Server(echo)
    said = [
        "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is 60 tokens.",
        "temperature: must be strictly positive",
        "the prompt speaks of the temperature",
    ]
    server.complain = lambda body: (400, {"message": said[int(body["messages"][0]["content"][-1])]})
    with serve(server):
        answers, refused = ask(requests(3), section(server, concurrency=1, unanswered="drop"), RowLog(tmp_path / "log"))
    assert answers == {} and len(refused) == 3
    assert sum("temperature" in body for body in server.asked) == 3 and all("max_tokens" in body for body in server.asked)


def test_a_parameter_that_did_not_matter_is_sent_again(tmp_path: Path) -> None:
    server = Server(echo)
    server.complain = lambda body: (400, "no talk of seed") if "question 0" in body["messages"][0]["content"] else None
    with serve(server):
        answers, _ = ask(requests(3), section(server, concurrency=1, unanswered="drop"), RowLog(tmp_path / "log"))
    assert len(answers) == 2 and "seed" in server.asked[-1]


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "model_length", "FinishReason.MAX_TOKENS"])
def test_a_truncated_answer_is_known_as_such(tmp_path: Path, reason: str) -> None:
    server = Server(echo)
    server.finish = reason
    with serve(server):
        answers, _ = ask(requests(1), section(server), RowLog(tmp_path / "log"))
    assert [answer.finish for answer in answers.values()] == ["length"]


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        (("maxTokens", "max tokens", "token_limit", "ERROR_LIMIT", "time_limit", "not_finished", "max-output-tokens"), "length"),
        (("sensitive", "content_filtered", "guardrail_intervened", "insufficient_system_resource", "USER_CANCEL"), "filtered"),
    ],
)
def test_every_word_for_an_answer_that_is_not_whole_is_read_as_such(reasons: tuple[str, ...], finish: str) -> None:
    assert {finish_of(reason, 3, 9) for reason in reasons} == {finish}
    for whole in ("stop", "end_turn", "stop_sequence", "eos_token", "COMPLETE", "tool_calls", None):
        assert finish_of(whole, 3, 9) not in ("length", "filtered", "cap")


def test_one_refused_question_leaves_structured_output_on(tmp_path: Path) -> None:
    server = Server(echo)
    server.refuse = {"question 0": 400}
    asked = [Request(MODEL, (("user", f"question {i}"),), i, 0.2, 0.9, 64, '{"type": "object"}') for i in range(6)]
    with serve(server):
        answers, refused = ask(asked, section(server, concurrency=1, unanswered="drop"), RowLog(tmp_path / "log"))
    assert len(answers) == 5 and list(refused) == [asked[0].key]
    assert sum("response_format" in body for body in server.asked) == 6


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_server_is_left_alone_as_long_as_it_says(tmp_path: Path, concurrency: int) -> None:
    server = Server(echo, share=1.0, faults=("429",))
    server.retry_after = "0.3"
    with serve(server), pytest.raises(CirfError):
        ask(requests(1), section(server, concurrency=concurrency, max_retries=3), RowLog(tmp_path / "log"))
    gaps = [later - earlier for earlier, later in zip(server.at, server.at[1:], strict=False)]
    assert len(gaps) == 3 and min(gaps) >= 0.29


def test_retry_after_may_be_a_date() -> None:
    ahead = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 28 < (retry_after({"retry-after": ahead}) or 0) <= 30
    assert retry_after({"retry-after": "2"}) == 2.0
    assert [retry_after({"retry-after": said}) for said in ("", "soon", "nan", "inf")] == [None] * 4


def test_servers_that_only_fail_are_given_up_soon(tmp_path: Path) -> None:
    with serve(Server(echo)) as gone:
        fleet = section(gone, max_retries=5, concurrency=4)
    with pytest.raises(CirfError, match=r"failures in a row, the last: .*no other server answers for teacher"):
        ask(requests(500), fleet, RowLog(tmp_path / "log"))


def test_a_question_that_always_fails_may_be_left_out(tmp_path: Path) -> None:
    server = Server(echo)
    server.refuse = {"question 7": 500}
    asked = requests(10)
    with serve(server):
        answers, refused = ask(asked, section(server, max_retries=2, unanswered="drop"), RowLog(tmp_path / "log"))
    assert len(answers) == 9 and list(refused) == [asked[7].key] and "HTTP 500" in refused[asked[7].key]


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("cut inside an emoji \ud83d", "cut inside an emoji ?")],
    ids=["none", "half a surrogate pair"],
)
def test_an_odd_answer_is_an_answer(tmp_path: Path, content: str | None, text: str) -> None:
    server = Server(echo)
    message = {"role": "assistant", "content": content, "reasoning_content": "so ..."}
    server.raw = json.dumps({"choices": [{"index": 0, "finish_reason": "length", "message": message}]}).encode()
    path = tmp_path / "log"
    with serve(server):
        (answer,) = ask(requests(1), section(server), RowLog(path))[0].values()
    assert (answer.text, answer.finish, answer.tokens) == (text, "length", None)
    assert list(known_answers(RowLog(path)).values()) == [answer]


@each_row("padding", range(120, 170, 7))
def test_a_key_that_is_cut_off_in_a_complaint_is_not_shown_in_part(padding: int) -> None:
    key = "sk-secret-0123456789abcdef"
    server = Connection("http://here", None, key)
    for body in ({"error": {"message": "x" * padding + " " + key}}, {"error": "bad key " + key[:-4] + "..."}):
        said = server.said(body)
        assert said and not any(key[start : start + 8] in said for start in range(len(key) - 8))


def test_an_answer_without_text_is_not_kept_so_that_a_mended_server_is_asked_again(tmp_path: Path) -> None:
    server = Server(echo)
    message = {"role": "assistant", "content": None, "reasoning_content": "so it is 7"}
    server.raw = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
    with serve(server):
        answers, refused = ask(requests(3), section(server), RowLog(tmp_path / "log"))
        assert [answer.text for answer in answers.values()] == [""] * 3 and not refused
        server.raw = None
        assert all(answer.text for answer in ask(requests(3), section(server), RowLog(tmp_path / "log"))[0].values())
    assert len(known_answers(RowLog(tmp_path / "log"))) == 3


def test_an_answer_in_parts_is_put_together_and_an_error_in_place_of_one_is_quoted(tmp_path: Path) -> None:
    server = Server(echo)
    parts = [{"type": "text", "text": "it is "}, {"type": "text", "text": "7"}]
    server.raw = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": parts}}]}).encode()
    with serve(server):
        (answer,) = ask(requests(1), section(server), RowLog(tmp_path / "log"))[0].values()
        assert answer.text == "it is 7"
        server.raw = json.dumps({"error": {"message": "the model is overloaded"}}).encode()
        with pytest.raises(CirfError, match=r"no answer \(the model is overloaded\)"):
            ask(requests(1, start=5), section(server, max_retries=1), RowLog(tmp_path / "log"))


def test_a_stream_a_page_and_a_refusal_are_recognised(tmp_path: Path) -> None:
    server = Server(echo)
    with serve(server):
        for body, begins in ((b'data: {"choices": []}\n\ndata: [DONE]', "'data: {"), (b"<html><p>Log in", "'<html><p>Log in'")):
            server.raw = body
            with pytest.raises(CirfError, match=f"an invalid body, which begins with {begins}"):
                ask(requests(1), section(server, max_retries=1), RowLog(tmp_path / "log"))
        message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
        server.raw = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
        assert [answer.finish for answer in ask(requests(1), section(server), RowLog(tmp_path / "log"))[0].values()] == [
            "filtered"
        ]


def test_a_url_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    endpoint = schema.Endpoint(url="http://127.0.0.1:99999/v1", model=MODEL)
    with pytest.raises(CirfError, match=r"127\.0\.0\.1:99999/v1: not a usable URL"):
        ask(requests(1), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))


def test_a_body_nested_without_end_is_no_answer(tmp_path: Path) -> None:
    server = Server(echo)
    server.raw = b"[" * 200_000
    with serve(server), pytest.raises(CirfError, match="an invalid body"):
        ask(requests(1), section(server, max_retries=1), RowLog(tmp_path / "log"))


def test_a_body_longer_than_any_answer_is_not_read_to_its_end(tmp_path: Path) -> None:
    server = Server(echo)
    server.raw = b"0" * (LONGEST + 2**20)
    with serve(server):
        with pytest.raises(CirfError, match="a body of more than 16,777,216 bytes"):
            ask(requests(1), section(server, max_retries=1, timeout=5.0), RowLog(tmp_path / "log"))
        server.status, server.raw, server.headers = 500, b"0" * (LONGEST + 2**20), {}
        with pytest.raises(CirfError, match="a body of more than 16,777,216 bytes"):
            ask(requests(1), section(server, max_retries=1, timeout=5.0), RowLog(tmp_path / "log"))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, gzip", "br"])
def test_a_compressed_answer_is_not_decoded(tmp_path: Path, encoding: str) -> None:
    server = Server(echo)
    server.raw, server.headers = gzip.compress(b"7" * 2**20), {"Content-Encoding": encoding}
    with serve(server), pytest.raises(CirfError, match=rf"compressed responses \({encoding}\); turn that off"):
        ask(requests(1), section(server, max_retries=1), RowLog(tmp_path / "log"))


def test_an_answer_that_drips_without_end_is_given_up(tmp_path: Path) -> None:
    server = Server(echo)
    server.drip = True
    with serve(server), pytest.raises(CirfError, match="no answer in time"):
        ask(requests(1), section(server, max_retries=1), RowLog(tmp_path / "log"))


def test_no_redirect_is_followed_and_it_is_said_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret-of-mine")
    with serve(Server(echo)) as other, serve(Server(echo)) as server:
        endpoint = schema.Endpoint(url=server.url, model=MODEL, api_key_env="MY_API_KEY")
        server.status, server.raw = 307, b""
        server.headers = {"Location": f"{other.url}/chat/completions?key=sk-secret-of-mine"}
        with pytest.raises(
            CirfError, match=rf"it redirects to {other.url}/chat/completions\?key=\*\*\*; if that is the right server"
        ):
            ask(requests(1), schema.RequestSettings(endpoints=(endpoint,), max_retries=1), RowLog(tmp_path / "log"))
        assert len(server.asked) == 1 and not other.asked


def test_a_key_is_not_repeated_by_any_complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret\n")
    server = Server(echo)
    server.refuse = {"question 1": 401, "question 2": 500, "question 3": 400}
    with serve(server):
        endpoint = schema.Endpoint(url=server.url, model=MODEL, api_key_env="MY_API_KEY")
        for number in (1, 2):
            with pytest.raises(CirfError, match=r"Bearer \*\*\*") as summary:
                ask(
                    requests(1, start=number),
                    schema.RequestSettings(endpoints=(endpoint,), max_retries=1),
                    RowLog(tmp_path / "log"),
                )
            assert "secret" not in str(summary.value)
        dropping = schema.RequestSettings(endpoints=(endpoint,), unanswered="drop")
        _, refused = ask(requests(1, start=3), dropping, RowLog(tmp_path / "log"))
        assert refused and "secret" not in str(refused)
        monkeypatch.setenv("MY_API_KEY", "sk\u2013secret")
        with pytest.raises(CirfError, match="MY_API_KEY has characters that no API key has"):
            ask(requests(1, start=8), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
    assert server.keys == {"Bearer sk-secret"}


def test_offline_mode_is_named_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with serve(Server(echo)) as server, pytest.raises(CirfError, match="HF_HUB_OFFLINE is set"):
        ask(requests(1), section(server), RowLog(tmp_path / "log"))
    assert not server.asked


def test_keys_come_from_the_environment_and_go_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    server = Server(echo)
    with serve(server):
        ask(requests(2), section(server), RowLog(tmp_path / "log"))
        assert server.keys == {"Bearer none"}
        endpoint = schema.Endpoint(url=server.url, model=MODEL, api_key_env="MY_API_KEY")
        ask(requests(4), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
        assert "Bearer sk-secret" in server.keys and not any("hf_mine" in str(key) for key in server.keys)
        server.refuse = {"question 9": 401}
        with pytest.raises(CirfError) as summary:
            ask(requests(1, start=9), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
        monkeypatch.delenv("MY_API_KEY")
        with pytest.raises(CirfError, match="MY_API_KEY is not set"):
            ask(requests(1, start=8), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
    assert "sk-secret" not in str(summary.value) and "sk-secret" not in (tmp_path / "log").read_text()


def test_a_model_without_an_endpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no endpoint serves teacher"):
        ask(requests(1), schema.RequestSettings(), RowLog(tmp_path / "log"))


def test_every_part_of_a_request_is_part_of_its_key() -> None:
    base = Request(MODEL, (("user", "a"),), 1, 0.7, 0.95, 64)
    others = [
        Request("other", (("user", "a"),), 1, 0.7, 0.95, 64),
        Request(MODEL, (("user", "b"),), 1, 0.7, 0.95, 64),
        Request(MODEL, (("user", "a"), ("assistant", "b")), 1, 0.7, 0.95, 64),
        Request(MODEL, (("user", "a"),), 2, 0.7, 0.95, 64),
        Request(MODEL, (("user", "a"),), 1, 0.2, 0.95, 64),
        Request(MODEL, (("user", "a"),), 1, 0.7, 0.9, 64),
        Request(MODEL, (("user", "a"),), 1, 0.7, 0.95, 65),
        Request(MODEL, (("user", "a"),), 1, 0.7, 0.95, 64, "{}"),
    ]
    assert len({request.key for request in (base, *others)}) == 1 + len(others)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "HOME", "PATH", "CAPI_KEYS", "aws_secret_access_key"])
def test_a_recipe_cannot_send_any_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "secret-of-mine")
    with serve(Server(echo)) as server:
        endpoint = schema.Endpoint(url=server.url, model=MODEL, api_key_env=name)
        with pytest.raises(CirfError, match=f"variable {name}, which is not named like an API key.*--allow-env {name}"):
            ask(requests(1), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
        assert not server.asked and not server.keys
        allow([name])
        ask(requests(1), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
        allow([])
        assert server.keys == {"Bearer secret-of-mine"}


@pytest.mark.parametrize(
    "url", ["http://192.0.2.7/v1", "http://example.com/v1", "http://127.0.0.1.example.com/v1", "HTTP://[2001:db8::1]/v1"]
)
def test_no_key_goes_to_another_machine_unencrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    endpoint = schema.Endpoint(url=url.replace("HTTP", "http"), model=MODEL, api_key_env="MY_API_KEY")
    with pytest.raises(CirfError, match="would be sent unencrypted; use https, or add allow_http: true"):
        ask(requests(1), schema.RequestSettings(endpoints=(endpoint,), timeout=0.1, max_retries=0), RowLog(tmp_path / "log"))
    for fine in (endpoint.model_copy(update={"allow_http": True}), endpoint.model_copy(update={"url": "https://example.com/v1"})):
        check(fine)


def test_the_server_and_the_variable_are_named_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-secret")
    said = list[str]()

    def answer(body: dict[str, Any]) -> str:
        said.append(capsys.readouterr().err)
        return "yes"

    with serve(Server(answer)) as server:
        endpoint = schema.Endpoint(url=server.url, model=MODEL, api_key_env="MY_API_KEY")
        ask(requests(1), schema.RequestSettings(endpoints=(endpoint,)), RowLog(tmp_path / "log"))
        assert f"{server.url}: requests for {MODEL}, with the API key in MY_API_KEY" in said[0] and "secret" not in said[0]
