"""Thousands of generated recipes, data rows, teacher answers and model outputs: each must give a result or one clear line of
error.

    python -m benchmarks.fuzz [--cases 2500] [--kinds recipes rows rationales answers outputs] [--seed 0]

- ``recipes``: shipped recipes with changed, missing or unknown keys, or changed characters. Each can be planned or gives one line
  of error.
- ``rows``: user files with values of every type and text in every script. Each row is kept or reported.
- ``rationales``: possible teacher texts, segmented by every rule, with results by every task's rule. Each is segmented or dropped
  with a reason, and every step has a result or none.
- ``answers``: a teacher's bad answers among good ones, and answers of a writer of results. Each is accepted, or rejected with a
  reason; none ends a run.
- ``outputs``: possible model outputs, read by every method and parsed for every task.

A case fails if it ends in a traceback, loses a row silently or prints an empty message. The first failure of a kind is printed in
its smallest form (hypothesis shrinks it). A case that takes more than ten seconds of processor time fails, too, and is printed as
drawn. The last line is JSON: numbers of cases (``peer``) and passed ones (``ours``), the ``failures``, and the ``lost`` rows.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import io
import json
import math
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path as File
from typing import Any
from unittest import mock

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cirf.errors import CirfError

LONGEST = 10
"""Seconds that one case may take."""

# Fragments of steps, answers and outputs, and strings that break parsers.
# fmt: off
PIECES = (
    "Step 1:", "**Step 2**:", "step 3 -", "1.", "2)", "(3)", "A.", "B:", "\n", "\n\n", "\r\n", "\t", " ", ". ", "- ", "* ", "# ",
    "The answer is", "#### ", "####", "= ", "<<48/2=24>>", "<<1/0=>>", "answer: ", "yes", "no", "(C)", "True", "therefore ",
    "7", "-3", "1,234.5", "1e400", "3/4", "0/0", "½", "٣", "１２", "five", "a dozen", "$5", "50%", "10:30", "2^10", "9" * 400,
    "\\frac{1}{2}", "\\boxed{", "}", "\\[", "\\]", "$", "$$", "\\sqrt{", "x^{2", "\\text{cm}", "^" * 50, "{" * 60, "∞", "&amp;",
    "<cirf>", "</cirf>", "<cirf_000>", "<cirf_003>", "<cirf_999>", "<think>", "</think>", "<|im_end|>", "<|im_start|>user", "<s>",
    "\0", "\u200b", "\u202e", "\ufeff", "e\u0301", "👩‍👩‍👧", "<script>", "{{ x }}", "%s", "\\",
    "שלום", "مرحبا", "漢字", "हिन्दी",
)
# fmt: on
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=14).flatmap(
    lambda parts: st.sampled_from((1, 1, 1, 1, 1, 1, 1, 40, 2000)).map(lambda times: ("".join(parts) * times)[:100_000])
)
OPENINGS = ("", "the answer", "the answer is ", "#### ", "#### not a", "Step 1: ", "Total", "1 = ", "<answer>", "\\boxed{")
LONG = st.builds(  # takes minutes with a quadratic pattern
    lambda opening, filling, length, closing: opening + filling * (length // len(filling)) + closing,
    st.sampled_from(OPENINGS),
    st.sampled_from(" \t.,;-=*#$({[\"'1A\\/<\u00a0") | st.sampled_from([piece for piece in PIECES if len(piece) < 20]),
    st.sampled_from((1_000, 20_000, 100_000)),
    st.sampled_from(("", "x", "5", "=", "\n", "b.", "}", "</answer>")),
)
TEXTS = st.one_of(TEXTS, TEXTS, TEXTS, LONG)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.integers(),
    st.floats(),
    TEXTS.map(lambda text: text[:200]),
    st.sampled_from((math.nan, math.inf, -0.0, 10**400, "auto", "none", "true", "1e-3", "../..", "/", "~", "bundled:x", "a\nb")),
)
VALUES = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=6), some, max_size=3), max_leaves=4
)


SEEN = [""]
"""Description of the current case, for one that takes too long."""


LOST = [0]
"""Rows that were neither kept nor reported."""


def total(there: int, summary: int, how: str) -> None:
    """Every row is kept or reported."""
    LOST[0] += abs(there - summary)
    assert summary == there, f"{there} rows, {how}"


def one_line(error: CirfError) -> None:
    """A readable error: one short line that is not empty."""
    text = str(error)
    assert text.strip() and "\n" not in text and len(text) < 2000, f"no clear line: {text[:300]!r}"


def paths_of(made: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a nested structure."""
    inner = made.items() if isinstance(made, dict) else enumerate(made) if isinstance(made, list) else ()
    return [so_far] * bool(so_far) + [path for key, value in inner for path in paths_of(value, (*so_far, key))]


def recipes(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf.commands.run import checked, resolved
    from cirf.recipe.load import load, shipped
    from cirf.stages.planning import plans

    whole = {name: yaml.safe_load(path.read_text()) for name, path in shipped().items()}

    def case(data: Any) -> None:
        made = copy.deepcopy(whole[data.draw(st.sampled_from(sorted(whole)))])
        for _ in range(data.draw(st.integers(1, 3))):
            path = data.draw(st.sampled_from(paths_of(made)))
            place = made
            for key in path[:-1]:
                place = place[key]
            how = data.draw(st.sampled_from(("set", "set", "remove", "add")))
            if how == "set":
                place[path[-1]] = data.draw(VALUES)
            elif how == "remove":
                del place[path[-1]]
            elif isinstance(place, dict):
                place[data.draw(st.text(max_size=8))] = data.draw(VALUES)
        text = yaml.safe_dump(made, allow_unicode=True)
        if data.draw(st.integers(0, 3)) == 0:
            at = data.draw(st.integers(0, len(text) - 1))
            text = (
                text[:at]
                + data.draw(st.sampled_from(("", ":", "\t", "'", "{", "- ", "&a ", "*a ", "!!x ", "\0", "é")))
                + text[at + 1 :]
            )
        file = work / "recipe.yaml"
        file.write_text(text, encoding="utf-8")
        SEEN[0] = ""
        try:
            plans(checked(resolved(load(str(file), []), None, None), work / "run", True))
        except CirfError as error:
            one_line(error)

    return case


def rows(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf.recipe.schema import Problems, TaskEntry
    from cirf.tasks.loading.leaks import settle
    from cirf.tasks.loading.load import load_problems

    good = {"question": "How many are 2 and 3?", "answer": "5", "rationale": "Step 1: 2 + 3 = 5."}
    keys = st.sampled_from(("question", "answer", "rationale", "choices", "id", "other"))

    def case(data: Any) -> None:
        lines = []
        for number in range(data.draw(st.integers(1, 6))):
            row: Any = {**good, "question": f"How many are 2 and {number}?"}
            for _ in range(data.draw(st.integers(0, 2))):
                if data.draw(st.booleans()):
                    row[data.draw(keys)] = data.draw(VALUES | TEXTS)
                else:
                    row.pop(data.draw(keys), None)
            line = json.dumps(
                data.draw(VALUES) if data.draw(st.integers(0, 30)) == 0 else row, ensure_ascii=data.draw(st.booleans())
            )
            if data.draw(st.integers(0, 20)) == 0:
                line = line[: data.draw(st.integers(0, len(line)))]
            lines.append(line)
        file = work / "rows.jsonl"
        SEEN[0] = repr("\n".join(lines))[:600]
        file.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
        allowed = data.draw(st.sampled_from((0.0, 0.05, 0.5, 1.0)))
        section = Problems(tasks=(TaskEntry(task="jsonl", train_file=str(file)),), max_unusable_share=allowed)
        try:
            loaded = settle(load_problems(section, 1), section.near_duplicates, False)
        except CirfError as error:
            one_line(error)
            return
        kept = len(loaded.train) + len(loaded.validation) + sum(map(len, loaded.test.values()))
        there = sum(bool(line.strip()) for line in lines)
        summary = len(loaded.dropped) + sum(len(file.errors) for file in loaded.unusable)
        total(there, kept + summary, f"{kept} kept, {summary} reported")

    return case


def problems() -> dict[str, Any]:
    """A problem of every kind of answer, by the task's name."""
    from cirf import tasks
    from cirf.records import Problem

    golds = {
        "option": "B",
        "yesno": "yes",
        "truth": "True",
        "validity": "valid",
        "list": "a b",
        "brackets": ") ]",
        "latex": "\\frac{1}{2}",
    }
    found = {}
    for name in tasks.names():
        task = tasks.get(name)
        for kind in task.all_kinds:
            choices = ("one", "five", "ten") if kind == "option" else None
            found[f"{name}/{kind}"] = Problem(f"{name}/0", name, "How many are 2 and 3?", golds.get(kind, "5"), choices)
    return found


def rationales(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf import tasks
    from cirf.rationales.results import write_results
    from cirf.rationales.segmentation import cut_all
    from cirf.recipe.schema import Results, Segments
    from cirf.records import Rationale

    there = problems()

    def case(data: Any) -> None:
        problem = there[data.draw(st.sampled_from(sorted(there)))]
        SEEN[0] = repr((text := data.draw(TEXTS))[:300])
        by = data.draw(st.sampled_from(("auto", "ordinal", "line", "sentence", "option")))
        section = Segments(by=by, equations=data.draw(st.sampled_from(("keep", "split"))))
        found = cut_all([Rationale(problem.id, 0, text, "x")], section, [problem])
        total(1, len(found.steps) + len(found.dropped), f"{len(found.steps)} cut, {len(found.dropped)} reported")
        if not found.steps:
            assert found.dropped[0].reason
            return
        assert all(segment.strip() for segment in found.steps[0].segments)
        results = Results(
            values=data.draw(st.sampled_from(("last", "used"))),
            units=data.draw(st.sampled_from(("drop", "keep"))),
            working=data.draw(st.sampled_from(("drop", "keep"))),
        )
        written = write_results(found.annotated, [problem], {problem.task: tasks.get(problem.task)}, results, None)
        assert len(written[0]) == len(found.steps[0].segments)

    return case


def answers(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf import tasks
    from cirf.endpoints.requests import Answer, Request
    from cirf.rationales import teachers, writers
    from cirf.recipe import schema as recipe
    from cirf.records import Problem, Steps
    from cirf.store.files import RowLog

    asked = [Problem(f"gsm8k/{number}", "gsm8k", f"How many are 2 and {number}?", str(2 + number)) for number in range(3)]
    task = {"gsm8k": tasks.get("gsm8k")}
    endpoint = recipe.Endpoint(url="http://127.0.0.1:9/v1", model="m")
    taught_by = recipe.Rationales(source="teacher", teacher=recipe.Teacher(endpoints=(endpoint,)))
    written_by = recipe.Results(by="llm", writer=recipe.ResultWriter(endpoints=(endpoint,)))
    rows = [Steps(problem.id, 0, "line", (f"2 + {at} = {2 + at}", "So it is.")) for at, problem in enumerate(asked)]
    log = RowLog(work / "asked.jsonl")

    def teacher(data: Any) -> None:
        texts = [f"Step 1: 2 + {number} = {2 + number}.\nStep 2: So {2 + number}.\n#### {2 + number}" for number in range(3)]
        texts[data.draw(st.integers(0, 2))] = data.draw(TEXTS | TEXTS.map(lambda text: f"<think>{text}</think>{text}"))
        SEEN[0] = repr(texts)[:600]

        def said(requests: list[Request], *rest: Any) -> tuple[dict[str, Answer], dict[str, str]]:
            finish = data.draw(st.sampled_from(("stop", "length")))
            return {one.key: Answer(text, finish, 5) for one, text in zip(requests, texts, strict=True)}, {}

        with mock.patch.object(teachers, "ask", said):
            found, refused = teachers.teach(asked, taught_by, recipe.Segments(), task, log, 0)
        total(3, len(found) + len(refused), f"{len(found)} judged, {len(refused)} refused")
        assert all(row.steps or row.fault("drop") for row in found)

    def writer(data: Any) -> None:
        listed = st.recursive(SCALARS, lambda some: st.lists(some, max_size=3), max_leaves=4)
        made = st.lists(listed, min_size=1, max_size=3).map(lambda row: json.dumps({"results": row}))
        number = st.integers(300, 5000).map(lambda digits: '{"results": ["5", 1' + "0" * digits + "]}")
        text = data.draw(TEXTS | made | number)
        SEEN[0] = repr(text)[:600]

        def said(requests: list[Request], *rest: Any) -> tuple[dict[str, Answer], dict[str, str]]:
            return {one.key: Answer(text, "stop", 5) for one in requests}, {}

        with mock.patch.object(writers, "ask", said):
            made_of = writers.write_with_model(rows, asked, task, written_by, log, 0)
        total(3, len(made_of), f"{len(made_of)} written")
        assert all(len(row.results) == 2 and (row.by != "rule" or row.fault) for row in made_of)

    return lambda data: (teacher if data.draw(st.booleans()) else writer)(data)


def outputs(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf import methods, tasks
    from cirf.evaluation.harness import judge
    from cirf.recipe.load import load

    recipe = load("quickstart", [])
    there = problems()
    readers = {name: methods.get(name, recipe) for name in methods.METHODS}

    def case(data: Any) -> None:
        SEEN[0] = repr((text := data.draw(TEXTS))[:300])
        reader = readers[data.draw(st.sampled_from(sorted(readers)))]
        trace, answer = reader.read(text)
        assert isinstance(trace, str) and isinstance(answer, str)
        problem = there[data.draw(st.sampled_from(sorted(there)))]
        parsed, right = judge(answer, problem, tasks.get(problem.task))
        assert right is False or parsed is not None

    return case


KINDS = {"recipes": recipes, "rows": rows, "rationales": rationales, "answers": answers, "outputs": outputs}


def tried(kind: str, cases: int, chance: int, work: File) -> dict[str, Any]:
    """Counts of cases, failures and lost rows, total and slowest seconds, the first failure in its smallest form, and the case
    that took too long."""
    count, slowest, late = 0, 0.0, list[str]()
    broken: list[str] = []
    case = KINDS[kind](work)
    how: dict[str, Any] = {"max_examples": cases, "deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    def one(data: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            case(data)

    @seed(chance)
    @settings(phases=(Phase.generate,), **how)
    @given(st.data())
    def try_all(data: Any) -> None:  # a failed case ends nothing: all are counted
        nonlocal count, slowest
        count += 1
        faulthandler.dump_traceback_later(30 * LONGEST, exit=True)  # code that blocks inside a library cannot be stopped alone
        began = time.process_time()
        try:
            one(data)
        except Exception as error:
            if type(error).__module__.startswith("hypothesis"):  # hypothesis' own ways to end a case
                raise
            broken.append(f"{_described(error)}: {SEEN[0]}")
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        if seconds > LONGEST:
            late.append(f"{seconds:.0f} s: {SEEN[0]}")

    before, began = LOST[0], time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        try_all()
        lost = LOST[0] - before
        failure = broken[0] if broken else None
        if broken:
            try:
                seed(chance)(settings(phases=(Phase.generate, Phase.shrink), **how)(given(st.data())(one)))()
            except Exception as error:
                failure = f"{'; '.join(map(_described, getattr(error, 'exceptions', (error,))))}: {SEEN[0]}"
    faulthandler.cancel_dump_traceback_later()
    seconds = round(time.perf_counter() - began, 1)
    summary = {
        "cases": count,
        "failures": len(broken) + len(late),
        "lost": lost,
        "seconds": seconds,
        "slowest_s": round(slowest, 2),
    }
    return summary | {"failure": failure, "late": late[:3]}


def _described(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:300]} ({at.filename}:{at.lineno})"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.setrecursionlimit(2000)
    summary: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for kind in options.kinds:
            summary[kind] = row = tried(kind, options.cases, options.seed, File(place))
            bad = [*filter(None, [row["failure"]]), *row["late"]]
            said = f"{kind:12} {row['cases']:>7,} cases {row['seconds']:>8.1f} s, slowest {row['slowest_s']:.2f} s"
            print(f"{said}   {row['failures']} failed{': ' if bad else ''}{'; '.join(bad)}", flush=True)
    tries, failures, lost = (sum(row[key] for row in summary.values()) for key in ("cases", "failures", "lost"))
    print(
        json.dumps(
            {
                "benchmark": "fuzz",
                "ours": tries - failures,
                "peer": tries,
                "ratio": (tries - failures) / tries,
                "unit": "cases without a failure",
                "n": tries,
                "failures": failures,
                "lost": lost,
                "seed": options.seed,
                "kinds": summary,
            }
        )
    )


if __name__ == "__main__":
    main()
