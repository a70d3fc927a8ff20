"""A saved model in vLLM: in this process, and behind its server with the reasoning parser that docs name (``make engines``)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.decoding.calculator import Calculator
from cirf.lm.decoding.generate import Decoding, Output, generate
from cirf.lm.decoding.trace_grammar import Steering, SteeringProcessor
from cirf.lm.prompt import prompt_text, settle_template, stop_ids
from cirf.lm.saving import save_model
from cirf.lm.vocabulary import extend, read_trace, token_names
from cirf.methods.base import at_head_of_answer
from cirf.recipe import schema

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

CAP = 24
SECTION = schema.Backbone(dtype="float32", device="cpu")
QUESTIONS = ["What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many apples are there now?", "Is the coin heads up?"]


@pytest.fixture(scope="module")
def folder(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four functional tokens, its prompts ending in ``<cirf>``, with heads as wide as vLLM's kernels want them."""
    made = tmp_path_factory.mktemp("vllm") / "model"
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", False, seed=3, width=128)
    settle_template(tokenizer)
    extend(model, tokenizer, None, schema.Vocabulary(alpha=1.0), 4, 0)
    names = token_names(4)
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, names.start)
    prompts = [prompt_text(tokenizer, question) for question in QUESTIONS]
    often = generate(model, tokenizer, prompts, CAP)[0].ids[CAP // 2]
    with torch.no_grad():  # so that some traces close: where it would write that token, it writes the delimiter
        head = model.get_output_embeddings().weight
        head[tokenizer.convert_tokens_to_ids(names.end)] = 1.05 * head[often]
    save_model(model, tokenizer, made, "float32", "cirf")
    return made


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[Output]:
    """The greedy answers of our own loop."""
    model, tokenizer = load_model(folder, SECTION, training=None), load_tokenizer(folder, SECTION)
    return generate(model, tokenizer, [prompt_text(tokenizer, question) for question in QUESTIONS], CAP)


def test_answers_are_those_of_the_loop(folder: Path, wanted: list[Output]) -> None:
    from cirf.evaluation.engines import engine

    tokenizer = load_tokenizer(folder, SECTION)
    prompts = [prompt_text(tokenizer, question) for question in QUESTIONS]
    with engine(folder, tokenizer, SECTION) as running:
        assert running.generate(prompts, CAP) == wanted
        drawn = [running.generate(prompts, CAP, temperature=1.0, seed=seed) for seed in (5, 5, 6)]
        votes = running.generate(prompts[:1] * 4, CAP, temperature=1.0, seed=5, votes=range(4))
        assert running.generate(prompts[:1] * 2, CAP, temperature=1.0, seed=5, votes=(2, 3)) == votes[2:]
        both = running.generate([prompts[0]] * 2 + [prompts[1]] * 2, CAP, temperature=1.0, seed=5, votes=(2, 3, 0, 1))
        assert both == votes[2:] + running.generate(prompts[1:2] * 2, CAP, temperature=1.0, seed=5, votes=range(2))
    assert drawn[0] == drawn[1] and drawn[0] != drawn[2]
    assert len({output.text for output in votes}) > 1


@pytest.mark.parametrize(
    "how",
    [Steering(budget=1, result_tokens=3), Steering(results=False, at_most=((1, 0), (2, 1))), Steering(result_cost=2.0)],
    ids=["budget", "codes", "cost"],
)
def test_steered_answers_are_those_of_the_loop(folder: Path, wanted: list[Output], how: Steering) -> None:
    from cirf.evaluation.engines import engine, steers

    model, tokenizer = load_model(folder, SECTION, training=None), load_tokenizer(folder, SECTION)
    prompts = [prompt_text(tokenizer, question) for question in QUESTIONS]

    def steer() -> list[Any]:
        return [SteeringProcessor(how, token_names(4), tokenizer, stop_ids(model, tokenizer)), Calculator(tokenizer)]

    steered = generate(model, tokenizer, prompts, CAP, Decoding(steer=steer))
    assert steers(steer()) and not steers([lambda ids, scores: scores])
    with engine(folder, tokenizer, SECTION, steer()) as running:
        assert running.generate(prompts, CAP) == steered != wanted
        drawn = running.generate(prompts * 4, CAP, temperature=1.0, seed=5)
    assert all(output.text.count("<cirf_") <= (1 if how.budget else CAP) for output in drawn)
    assert all(output.truncated or "</cirf>" in output.text for output in drawn)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """What ``vllm serve`` starts. The CPU build's package has another name, by which that command does not find its version."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "tiny"]
    command += [
        "--reasoning-parser",
        "hf",
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "256",
        "--port",
        str(port),
    ]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            assert process.poll() is None, "vllm serve ended"
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def test_the_reasoning_parser_distinguishes_trace_and_answer(server: str, wanted: list[Output]) -> None:
    """Of an answer that is cut at the cap inside a character, vLLM leaves that character out."""
    names = token_names(4)
    closed = 0
    for question, output in zip(QUESTIONS, wanted, strict=True):
        body = {"model": "tiny", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": CAP}
        request = urllib.request.Request(
            f"{server}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        message = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]
        trace, answer = read_trace(output.text, names)
        if names.end in output.text:
            closed += 1
            assert (message["reasoning"], (message["content"] or "").strip()) == (trace, answer.rstrip("\ufffd"))
        else:
            assert (message["reasoning"] or "") + (message["content"] or "") == output.text.rstrip("\ufffd")
    assert closed
