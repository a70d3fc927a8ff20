"""The same questions to one saved model in several engines: which answers differ, and how long does each take?

    python -m benchmarks.engines RUN [--method cirf_full] [--rows 100] [--cap 160] [--out FILE] --server NAME=URL [...]

``RUN`` is a run with an evaluation of the method, whose questions are asked, alternating between tasks; ``--asked`` names another
one. Each ``NAME=URL`` is a server with OpenAI's chat completions that serves the run's ``models/METHOD``: ``vllm serve``, ``cirf
serve``, ``llama-server`` with the file of ``cirf export``, or ``transformers serve``. The address ends in ``/v1`` or
``/v1#MODEL``. All decode greedily, in turns of ``--block`` questions. With ``--together`` a server gets that many requests at
once, and the reference a padded batch; the time of a turn is then shared equally among its questions.

The reference is plain ``generate`` of transformers in this process, in float32. For an answer that differs, the script prints the
first difference and by how many nats the reference's token leads there. Engines with other number formats or orders of summation
differ where the lead is near zero. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cirf.lm.vocabulary import TokenNames

REFERENCE = "reference, float32"
_NEAR = 0.1  # nats: differences that 16-bit arithmetic may invert, seen on models of half a billion parameters


class Said(NamedTuple):
    """A trace without its delimiters, an answer, and their seconds."""

    trace: str
    answer: str
    seconds: float = 0.0


Ask = Callable[[Sequence[str]], list[Said]]


def asked(folder: Path, method: str, rows: int) -> list[dict[str, Any]]:
    """The first questions of an evaluation, the tasks taking turns."""
    from cirf.store.jsonl import read_rows

    tasks = [read_rows(path) for path in sorted((folder / "evaluation" / method).glob("*.jsonl"))]
    turns = [task[place] for place in range(max(map(len, tasks), default=0)) for task in tasks if place < len(task)]
    if not turns:
        raise SystemExit(f"{folder}: holds no evaluation of {method}")
    return turns[: max(1, rows)]


def server(url: str, cap: int, names: TokenNames, together: int) -> Ask:
    """A function that asks a server for the model after ``#``, or its first one. Traces left in the text are split off."""
    from cirf.lm.vocabulary import read_trace

    url, _, model = url.partition("#")
    url = url.rstrip("/")
    if not model:
        with urllib.request.urlopen(f"{url}/models", timeout=60) as response:
            model = json.load(response)["data"][0]["id"]

    # llama-cpp-python's server makes repeated tokens less likely by default; some servers refuse the key.
    more = {"repeat_penalty": 1.0}

    def ask(question: str) -> Said:
        asking = {"model": model, "messages": [{"role": "user", "content": question}], "temperature": 0.0, "max_tokens": cap}
        request = urllib.request.Request(
            f"{url}/chat/completions", json.dumps(asking | more).encode(), {"Content-Type": "application/json"}
        )
        started = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=600) as response:
                message = json.load(response)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            if error.code not in (400, 422) or not more:
                raise
            more.clear()
            return ask(question)
        seconds = time.perf_counter() - started
        trace, content = message.get("reasoning") or message.get("reasoning_content") or "", message.get("content") or ""
        trace, answer = (trace, content) if trace else read_trace(content, names)
        return Said(trace.strip(), answer.strip(), seconds)

    def ask_all(questions: Sequence[str]) -> list[Said]:
        if together == 1:
            return [ask(question) for question in questions]
        started = time.perf_counter()
        with ThreadPoolExecutor(together) as clients:
            said = list(clients.map(ask, questions))
        return shared(said, started)

    return ask_all


def shared(said: Sequence[Said], started: float) -> list[Said]:
    """The same answers, with the time since ``started`` shared equally among them."""
    each = (time.perf_counter() - started) / len(said)
    return [one._replace(seconds=each) for one in said]


class Plain:
    """Plain ``generate`` of the saved model on the CPU, with its log-probabilities."""

    def __init__(self, folder: Path, dtype: str, cap: int, names: TokenNames, together: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from cirf.lm.prompt import stop_ids

        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model, self.tokenizer = model.eval(), AutoTokenizer.from_pretrained(folder)
        self.tokenizer.padding_side = "left"
        self._cap, self._names, self._together = cap, names, together
        self._stops = frozenset(stop_ids(model, self.tokenizer))

    def __call__(self, questions: Sequence[str]) -> list[Said]:
        """Generate the answers."""
        size = self._together
        return [said for start in range(0, len(questions), size) for said in self._answers(questions[start : start + size])]

    def _answers(self, questions: Sequence[str]) -> list[Said]:
        import torch

        from cirf.lm.decoding.generate import output_of
        from cirf.lm.vocabulary import read_trace

        started = time.perf_counter()
        prompt = self._prompt(questions)
        with torch.no_grad():
            made = self.model.generate(**prompt, max_new_tokens=self._cap, do_sample=False)[:, prompt["input_ids"].shape[1] :]
        read = [read_trace(output_of(self.tokenizer, row.tolist(), self._stops).text, self._names) for row in made]
        return shared([Said(trace.strip(), answer.strip()) for trace, answer in read], started)

    def apart(self, question: str, ours: Said, theirs: Said) -> dict[str, Any]:
        """Where another answer first differs from ours, and by how many nats our token leads there. ``leads`` is ``None`` if
        nothing can be compared: one of them is incomplete (truncated, no trace) or both have the same tokens."""
        import torch

        from cirf.lm.vocabulary import opened_by_prompt

        opens, closes = "" if opened_by_prompt(self.tokenizer, self._names) else self._names.start, self._names.end
        both = [f"{opens}{said.trace}{closes}{said.answer}{self.tokenizer.eos_token}" for said in (ours, theirs)]
        one, other = (self.tokenizer(text, add_special_tokens=False).input_ids for text in both)
        whole = all(said.trace and said.answer for said in (ours, theirs))
        place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if place is None or not whole:
            return {"token": None, "ours": "".join(ours[:2]), "theirs": "".join(theirs[:2]), "leads": None}
        prompt = self._prompt([question])["input_ids"]
        with torch.no_grad():
            scores = self.model(torch.cat([prompt, torch.tensor([one[:place]], dtype=torch.long)], dim=1)).logits[0, -1]
        shown = [self.tokenizer.decode([ids[place]]) for ids in (one, other)]
        leads = round(float(scores[one[place]] - scores[other[place]]), 4)
        return {"token": place, "ours": shown[0], "theirs": shown[1], "leads": leads}

    def _prompt(self, questions: Sequence[str]) -> Any:
        asked = [[{"role": "user", "content": question}] for question in questions]
        return self.tokenizer.apply_chat_template(
            asked, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )


def main() -> None:
    """Ask all, print the table, the differences and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL", help="repeatable")
    parser.add_argument("--method", default="cirf_full", help="one with functional tokens")
    parser.add_argument("--asked", type=Path, help="folder of `cirf evaluate` to take the questions from; default: the run")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--dtype", help="ask plain generate in this number format too, such as bfloat16")
    parser.add_argument("--together", type=int, default=1, help="questions under way at once")
    parser.add_argument("--block", type=int, default=10, help="questions of an engine's turn")
    parser.add_argument(
        "--rest", type=float, default=4.0, help="seconds before a turn: some engines spin for a while after an answer"
    )
    parser.add_argument("--cap", type=int, default=160)
    parser.add_argument("--out", type=Path, help="JSONL with every answer")
    options = parser.parse_args()

    import torch
    import transformers

    from cirf.codebook.functions import functions_of
    from cirf.lm.prompt import sanitise
    from cirf.lm.vocabulary import token_names

    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    folder = options.run / "models" / options.method
    functions = functions_of(folder)
    if not functions:
        raise SystemExit(f"{folder}: no model with functional tokens")
    names = token_names(functions["size"], functions["delimiters"])
    rows = asked(options.asked or options.run, options.method, options.rows)
    exact = Plain(folder, "float32", options.cap, names, options.together)
    questions = [sanitise(row["prompt"], exact.tokenizer) for row in rows]
    sides: dict[str, Ask] = {REFERENCE: exact}
    if options.dtype:
        sides[f"generate, {options.dtype}"] = Plain(folder, options.dtype, options.cap, names, options.together)
    for summary in options.server:
        name, _, url = summary.partition("=")
        sides[name] = server(url, options.cap, names, options.together)
    for ask in sides.values():
        ask(questions[:1])  # to warm up

    said: dict[str, list[Said]] = {name: [] for name in sides}
    for turn, start in enumerate(range(0, len(questions), options.block)):
        block = questions[start : start + options.block]
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            time.sleep(options.rest)
            said[name] += sides[name](block)
        print(f"\r{start + len(block)} of {len(questions)}", end="", file=sys.stderr, flush=True)
    count, wanted = len(questions), said[REFERENCE]
    print(f"\n{folder}, {count} questions, {torch.get_num_threads()} threads, {options.together} at a time")
    print(f"{'':20} {'s a question':>12} {'p50':>6} {'p95':>6} {'ratio':>6}  same text  same answer  near ties  other")
    engines: dict[str, Any] = {}
    differences: list[dict[str, Any]] = []
    for name, ours in said.items():
        seconds = sorted(one.seconds for one in ours)
        mean, middle, late = sum(seconds) / count, seconds[count // 2], seconds[min(count - 1, int(0.95 * count))]
        found = [
            {"engine": name, "question": row["id"]} | exact.apart(question, right, one)
            for row, question, right, one in zip(rows, questions, wanted, ours, strict=True)
            if one[:2] != right[:2]
        ]
        differences += found
        near = sum(one["leads"] is not None and abs(one["leads"]) <= _NEAR for one in found)
        alike, answers = count - len(found), sum(one.answer == right.answer for one, right in zip(ours, wanted, strict=True))
        ratio = sum(right.seconds for right in wanted) / sum(seconds)
        times = f"{mean:12.3f} {middle:6.2f} {late:6.2f} {ratio:6.2f}"
        print(f"{name:20} {times}  {alike:9}  {answers:11}  {near:9}  {len(found) - near:5}")
        engines[name] = {"seconds": round(mean, 4), "ratio": round(ratio, 2), "same": alike, "answers": answers, "near": near}
    for one in differences:
        where = "" if one["token"] is None else f" token {one['token']}"
        how = "cannot be compared token by token" if one["leads"] is None else f"which leads by {one['leads']:.3f} nats"
        print(f"{one['engine']}, {one['question']}:{where} {one['theirs']!r}, of the reference {one['ours']!r}, {how}")
    if options.out:
        lines = [
            {"engine": name, "question": row["id"]} | one._asdict()
            for name, ours in said.items()
            for row, one in zip(rows, ours, strict=True)
        ]
        options.out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    print(json.dumps({"benchmark": "engines", "peer": REFERENCE, "unit": "s a question", "n": count, "engines": engines}))


if __name__ == "__main__":
    main()
