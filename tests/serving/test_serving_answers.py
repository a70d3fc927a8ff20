"""What OpenAI's client gets from the server is what the model answers when it is asked by itself. An answer as lines: shown
piece by piece it is what is shown at once, and each line comes as soon as it is certain.
"""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from running import Running, held, question

from cirf.commands.ask import Lines
from cirf.lm.decoding.calculator import Calculator
from cirf.lm.decoding.generate import Decoding, generate_one, sample_many
from cirf.lm.decoding.trace_grammar import Steering
from cirf.lm.prompt import prompt_text, stop_ids
from cirf.serving.model import ServedModel
from cirf.serving.reading import explanations

QUESTIONS = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many apples are there now?", "yes", "0 1 2" * 9]


def alone(served: ServedModel, text: str, steering: Steering | None = None, cap: int | None = None) -> tuple[str, str, int, str]:
    """Trace, answer, tokens and how it ended, asked one at a time as by ``cirf ask``."""
    made = generate_one(
        served.model,
        served.tokenizer,
        prompt_text(served.tokenizer, text),
        cap or served.cap,
        Decoding(steer=served.steer(steering)),
    )
    read = served.read(made.text, made.truncated)
    reasoning, content = (read.reasoning, read.answer) if served.names else ("", made.text.strip())
    return reasoning, content, made.tokens, "length" if made.truncated else "stop"


def asked(running: Running, name: str, text: str, **more: Any) -> tuple[str, str, int, str]:
    """The same from the server, in one piece."""
    with running.client() as client:
        summary = client.chat.completions.create(model=name, messages=[{"role": "user", "content": text}], **more)
    choice = summary.choices[0]
    return choice.message.reasoning or "", choice.message.content, summary.usage.completion_tokens, choice.finish_reason


def streamed(running: Running, name: str, text: str, **more: Any) -> tuple[str, str, int, str]:
    """The same from the server, token by token."""
    reasoning = content = ended = ""
    tokens = 0
    with running.client() as client:
        stream = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": text}], stream=True, stream_options={"include_usage": True}, **more
        )
        for chunk in stream:
            for choice in chunk.choices:
                reasoning += getattr(choice.delta, "reasoning", None) or ""
                content += choice.delta.content or ""
                ended = choice.finish_reason or ended
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
    return reasoning, content, tokens, ended


@pytest.mark.parametrize("name", ["traces", pytest.param("prose", marks=pytest.mark.slow)])
def test_alone_it_is_what_is_answered_to_ask(server: Running, models: list[ServedModel], name: str) -> None:
    served = next(one for one in models if one.name == name)
    for text in QUESTIONS:
        assert asked(server, name, text) == streamed(server, name, text) == alone(served, text)


@pytest.mark.slow
def test_in_a_crowd_too_whatever_else_is_asked(server: Running, traces: ServedModel, prose: ServedModel) -> None:
    budget = {"extra_body": {"cirf": {"budget": 2, "result_tokens": 3}}}
    wanted, calls = [], []
    for place, text in enumerate(QUESTIONS * 2):
        if place % 3 == 0:
            calls.append(("traces", text, budget))
            wanted.append(alone(traces, text, Steering(budget=2, result_tokens=3)))
        elif place % 3 == 1:
            calls.append(("prose", text, {"max_tokens": 3 + place}))
            wanted.append(alone(prose, text, cap=3 + place))
        else:
            calls.append(("traces", text, {}))
            wanted.append(alone(traces, text))
    assert len({tokens for _, _, tokens, _ in wanted}) > 3 and {ended for *_, ended in wanted} == {"stop", "length"}
    with ThreadPoolExecutor(len(calls)) as pool:
        ways = [asked if place % 2 else streamed for place in range(len(calls))]
        found = [pool.submit(way, server, name, text, **more) for way, (name, text, more) in zip(ways, calls, strict=True)]
        assert [one.result() for one in found] == wanted


def test_limits_of_codes_are_those_of_the_request_and_of_the_server(server: Running, traces: ServedModel) -> None:
    free = asked(server, "traces", "Hi?")
    assert free[0].count("<cirf_003>") > 5
    within = asked(server, "traces", "Hi?", extra_body={"cirf": {"at_most": {"0": 0, "3": 2}}})
    assert within == alone(traces, "Hi?", Steering(at_most=((0, 0), (3, 2)))) and within[0].count("<cirf_003>") == 2
    with Running([replace(traces, at_most={0: 0, 3: 5})]) as limited:
        assert asked(limited, "traces", "Hi?", extra_body={"cirf": {"at_most": {"3": 2}}}) == within
        assert asked(limited, "traces", "Hi?")[0].count("<cirf_003>") == 5
    with Running([replace(traces, together=(((0, 3), 2),))]) as limited:
        assert asked(limited, "traces", "Hi?") == alone(traces, "Hi?", Steering(together=(((0, 3), 2),)))


def test_what_waits_and_is_asked_alike_is_one_batch(server: Running, traces: ServedModel) -> None:
    with ThreadPoolExecutor(8) as pool, held(traces) as gate:
        first = pool.submit(server.chat, question("first"))
        server.until(running=1)
        alike = [pool.submit(server.chat, question(text, max_tokens=2 + place)) for place, text in enumerate(QUESTIONS)]
        other = pool.submit(server.chat, question("other", cirf={"grammar": True}))
        server.until(waiting=6)
        gate.allow(10**6)
        assert first.result()[2]["cirf"]["together"] == 1 and other.result()[2]["cirf"]["together"] == 1
        for place, one in enumerate(alike):
            summary = one.result()[2]
            assert summary["cirf"]["together"] == 5 and summary["usage"]["completion_tokens"] <= 2 + place


def test_sampled_answers_are_those_of_their_seed_alone_and_in_a_crowd(server: Running, traces: ServedModel) -> None:
    prompt = prompt_text(traces.tokenizer, QUESTIONS[1])
    wanted = [
        traces.read(output.text, output.truncated)
        for output in sample_many(traces.model, traces.tokenizer, prompt, traces.cap, 3, Decoding(0.9, 0.95, 7))
    ]
    sampled = {"temperature": 0.9, "top_p": 0.95, "seed": 7}
    with ThreadPoolExecutor(4) as pool:
        crowd = [pool.submit(server.chat, question(text, **sampled)) for text in QUESTIONS]
        summary = server.chat(question(QUESTIONS[1], n=3, **sampled))[2]
        assert crowd[1].result()[2]["choices"][0]["cirf"]["answer"] == wanted[0].answer
        assert all(one.result()[0] == 200 for one in crowd)
    assert [choice["message"]["content"] for choice in summary["choices"]] == [one.answer for one in wanted]
    assert [choice["message"]["reasoning"] or "" for choice in summary["choices"]] == [one.reasoning for one in wanted]
    assert [choice["index"] for choice in summary["choices"]] == [0, 1, 2]
    assert len({one.answer + one.reasoning for one in wanted}) == 3


def test_without_a_seed_every_answer_is_another_and_says_its_seed(server: Running) -> None:
    first, second = (server.chat(question("Hi?", temperature=1.5))[2] for _ in range(2))
    assert first["choices"] != second["choices"] and first["cirf"]["seed"] != second["cirf"]["seed"]
    again = server.chat(question("Hi?", temperature=1.5, seed=first["cirf"]["seed"]))[2]
    assert again["choices"] == first["choices"]


@pytest.mark.parametrize("name", ["traces", "prose"])
def test_a_calculator_is_had_by_every_model(
    server: Running, models: list[ServedModel], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = next(one for one in models if one.name == name)
    end = stop_ids(served.model, served.tokenizer)[0]

    def ends(self: Calculator, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(1, torch.tensor([end]), 1e6)

    before = asked(server, name, "yes")
    monkeypatch.setattr(Calculator, "__call__", ends)
    assert asked(server, name, "yes") == before and before[2] > 1
    assert asked(server, name, "yes", extra_body={"cirf": {"calculator": True}})[2] == 1
    if name == "traces":
        assert asked(server, name, "yes", extra_body={"cirf": {"calculator": True, "budget": 1}})[2] == 1


def test_every_functional_token_is_explained(traces: ServedModel) -> None:
    prompt = prompt_text(traces.tokenizer, "What is 12 plus 7?")
    assert traces.opened and prompt.endswith("<cirf>")
    steer = traces.steer(Steering(budget=3, result_tokens=2))
    made = generate_one(traces.model, traces.tokenizer, prompt, traces.cap, Decoding(steer=steer))
    steps = [step for step in traces.read(made.text, made.truncated).steps if step["token"]]
    found = explanations(traces, prompt, made.ids)
    assert steps and [(one["token"], one["label"]) for one in found] == [(step["token"], step["label"]) for step in steps]
    assert all(one["segments"] == [f"a {one['label']} b", "c"] for one in found)
    ids = traces.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        chances = traces.model(ids).logits[0, -1].softmax(0)
    first = found[0]
    wanted = float(chances[traces.tokenizer.convert_tokens_to_ids(first["token"])])
    assert first["probability"] == pytest.approx(wanted, abs=1e-5)
    listed = [one["probability"] for one in first["alternatives"]]
    assert len(listed) == 3 and listed == sorted(listed, reverse=True) and listed[0] <= float(chances.max()) + 1e-5
    assert explanations(traces, prompt, made.ids[:0]) == []


def test_a_conversation_goes_by_the_models_template(server: Running, traces: ServedModel) -> None:
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "What is 1+1?"},
        {"role": "assistant", "content": "2<|im_end|>"},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "2+2?"}]},
    ]
    written = (
        "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nBe brief.\n\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\n"
        "2< |im_end|><|im_end|>\n<|im_start|>user\nAnd\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<cirf>"
    )
    made = generate_one(traces.model, traces.tokenizer, written, 9)
    read = traces.read(made.text, made.truncated)
    summary = server.chat({"model": "traces", "messages": turns, "max_tokens": 9})[2]
    message = summary["choices"][0]["message"]
    assert (message["reasoning"] or "", message["content"]) == (read.reasoning, read.answer)
    assert summary["usage"]["prompt_tokens"] == len(traces.tokenizer(written, add_special_tokens=False).input_ids)


def test_the_models_are_listed(server: Running) -> None:
    with server.client() as client:
        main, beside = client.models.list().data
        assert (main.id, main.cirf["role"], main.cirf["functional"], main.cirf["labels"]["1"]) == (
            "traces",
            "main",
            True,
            "multiplies",
        )
        assert (beside.id, beside.cirf["role"], beside.cirf["functional"]) == ("prose", "compared", False)
        assert client.models.retrieve("prose").id == "prose"


ASKED = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many apples are there now?", "0 1 2" * 9]
TRACE = ["<cirf>", "</cirf>", "<cirf_000>", "<cirf_003>", "<cirf_0", "<ci", "48", " ", "\n", "é", "�", "<", "yes"]
PROSE = ["#### ", "####", "#", " ", "\n", "4 + 8 = 12", "72", "�"]


def at_once(served: ServedModel, text: str, cut: bool = False) -> str:
    return Lines(served).more(text, over=True, cut=cut)


def in_pieces(served: ServedModel, texts: list[str], whole: str, cut: bool = False) -> str:
    lines = Lines(served)
    return "".join([lines.more(text, over=False) for text in texts]) + lines.more(whole, over=True, cut=cut)


@pytest.mark.parametrize("name", ["traces", "prose"])
@pytest.mark.parametrize(
    "steering",
    [
        None,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (Steering(), Steering(results=False))),
        Steering(budget=2, result_tokens=3),
    ],
)
def test_what_a_model_writes_is_shown_alike(models: list[ServedModel], name: str, steering: Steering | None) -> None:
    served = next(one for one in models if one.name == name)
    for asked in ASKED:
        texts: list[str] = []
        made = generate_one(
            served.model,
            served.tokenizer,
            prompt_text(served.tokenizer, asked),
            served.cap,
            Decoding(steer=served.steer(steering)),
            on_text=texts.append,
        )
        assert len(texts) == made.tokens == len(made.ids) > 1
        shown = in_pieces(served, texts, made.text, made.truncated)
        assert shown == at_once(served, made.text, made.truncated) and shown.endswith("\n")


@given(pieces=st.lists(st.sampled_from(TRACE), max_size=14), opened=st.booleans(), cut=st.booleans())
def test_any_trace_is_shown_alike(traces: ServedModel, pieces: list[str], opened: bool, cut: bool) -> None:
    whole, served = "".join(pieces), dataclasses.replace(traces, opened=opened)
    shown = in_pieces(served, [whole[:end] for end in range(len(whole))], whole, cut)
    assert shown == at_once(served, whole, cut)
    answer = served.read(whole, cut).answer
    assert shown.endswith(f"{answer}\n") and not (cut and "</cirf>" not in whole and answer)


@given(pieces=st.lists(st.sampled_from(PROSE), max_size=10))
def test_any_prose_is_shown_alike(prose: ServedModel, pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert in_pieces(prose, [whole[:end] for end in range(len(whole))], whole) == at_once(prose, whole)


def test_a_step_is_shown_once_its_result_is_whole_and_the_answer_as_it_comes(traces: ServedModel) -> None:
    lines = Lines(traces)
    first = f"  <cirf_000>   {'adds':28} 48\n"
    assert lines.more("<cirf_000>48", over=False) == ""
    assert lines.more("<cirf_000>48<cirf_003>", over=False) == first
    assert lines.more("<cirf_000>48<cirf_003>72</ci", over=False) == ""
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>", over=False) == first.replace("000", "003").replace(
        "adds   ", "divides"
    ).replace("48", "72")
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>7", over=False) == "7"
    assert lines.more("<cirf_000>48<cirf_003>72</cirf>72", over=True) == "2\n"


def test_prose_comes_as_it_is_written_and_its_answer_on_a_line_of_its_own(prose: ServedModel) -> None:
    lines = Lines(prose)
    assert lines.more("4 + 8 = 12", over=False) == "4 + 8 = 12"
    assert lines.more("4 + 8 = 12\n#### 1", over=False) == ""
    assert lines.more("4 + 8 = 12\n#### 1\nno:\n#### ", over=False) == "\n#### 1\nno:"
    assert lines.more("4 + 8 = 12\n#### 1\nno:\n#### 12", over=True) == "\n12\n"
