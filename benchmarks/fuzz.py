"""Thousands of made-up recipes, data rows, teacher answers and model outputs: a result or one clear line for each.

    python -m benchmarks.fuzz [--cases 2500] [--kinds recipes rows rationales outputs] [--seed 0]

- ``recipes``: shipped ones with keys changed, gone or unknown, or with characters of their text changed. Each is a recipe that
  can be planned, or one line of error.
- ``rows``: files of a user's own, with values of every type and texts of every script. Each row is kept or told of.
- ``rationales``: what a teacher might write, cut into steps by every rule, with results by the rule of every task. Each is cut
  or dropped with a reason, and every step has a result or none.
- ``outputs``: what a model might write, read by every method and parsed for every task.

A case that ends in a traceback or that says nothing is told in its smallest form (hypothesis shrinks it), one that takes over
ten seconds as it was drawn. The last line is JSON; a ratio of 1 means that there was none.
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

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cirf.errors import CirfError

LONGEST = 10
"""Seconds that one case may take."""

# What steps, answers and models' outputs are made of, and what breaks readers of text.
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
"""What the case under way is about, for one that takes too long."""


def one_line(error: CirfError) -> None:
    """An error for people: short, of one line, with something in it."""
    text = str(error)
    assert text.strip() and "\n" not in text and len(text) < 2000, f"no clear line: {text[:300]!r}"


def paths_of(made: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a nested structure."""
    inner = made.items() if isinstance(made, dict) else enumerate(made) if isinstance(made, list) else ()
    return [so_far] * bool(so_far) + [path for key, value in inner for path in paths_of(value, (*so_far, key))]


def recipes(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf.commands.running import checked, resolved
    from cirf.recipe_io import load, shipped
    from cirf.run import plans

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
    from cirf.recipe import Problems, TaskEntry
    from cirf.tasks.leaks import settle
    from cirf.tasks.load import load_problems

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
        section = Problems(tasks=(TaskEntry(task="jsonl", train_file=str(file)),))
        try:
            loaded = settle(load_problems(section, 1), section.near, False)
        except CirfError as error:
            one_line(error)
            return
        kept = len(loaded.train) + len(loaded.validation) + sum(map(len, loaded.test.values()))
        there = sum(bool(line.strip()) for line in lines)
        assert kept + len(loaded.dropped) == there, f"{there} rows, {kept} kept, {len(loaded.dropped)} told of"

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
    from cirf.recipe import Results, Segments
    from cirf.records import Rationale

    there = problems()

    def case(data: Any) -> None:
        problem = there[data.draw(st.sampled_from(sorted(there)))]
        SEEN[0] = repr((text := data.draw(TEXTS))[:300])
        by = data.draw(st.sampled_from(("auto", "ordinal", "line", "sentence", "option")))
        section = Segments(by=by, equations=data.draw(st.sampled_from(("keep", "split"))))
        found = cut_all([Rationale(problem.id, 0, text, "x")], section, [problem])
        assert len(found.steps) + len(found.dropped) == 1
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


def outputs(work: File) -> Callable[[Any], None]:
    """See the module."""
    from cirf import methods, tasks
    from cirf.evaluation.harness import judge
    from cirf.recipe_io import load

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


KINDS = {"recipes": recipes, "rows": rows, "rationales": rationales, "outputs": outputs}


def tried(kind: str, cases: int, chance: int, work: File) -> dict[str, Any]:
    """How many cases were tried, the seconds of all and of the slowest, the smallest that failed, and what took too long."""
    count, slowest, failure, late = 0, 0.0, None, list[str]()
    case = KINDS[kind](work)

    @seed(chance)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.data())
    def try_all(data: Any) -> None:
        nonlocal count, slowest
        count += 1
        faulthandler.dump_traceback_later(30 * LONGEST, exit=True)  # what hangs in a library's own code cannot be ended alone
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            case(data)
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        if seconds > LONGEST:
            late.append(f"{seconds:.0f} s: {SEEN[0]}")

    began = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            try_all()
    except Exception as error:
        found = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        places = [traceback.extract_tb(each.__traceback__)[-1] for each in found]
        told = (
            f"{type(each).__name__}: {str(each)[:300]} ({at.filename}:{at.lineno})"
            for each, at in zip(found, places, strict=True)
        )
        failure = f"{'; '.join(told)}: {SEEN[0]}"
    faulthandler.cancel_dump_traceback_later()
    seconds = round(time.perf_counter() - began, 1)
    return {"cases": count, "seconds": seconds, "slowest_s": round(slowest, 2), "failure": failure, "late": late[:3]}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.setrecursionlimit(2000)
    told: dict[str, Any] = {}
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        for kind in options.kinds:
            told[kind] = row = tried(kind, options.cases, options.seed, File(place))
            bad = [*filter(None, [row["failure"]]), *row["late"]]
            failed += bool(bad)
            said = f"{kind:12} {row['cases']:>7,} cases {row['seconds']:>8.1f} s, slowest {row['slowest_s']:.2f} s"
            print(f"{said}   {'; '.join(bad) or 'none failed'}", flush=True)
    tries = sum(row["cases"] for row in told.values())
    print(
        json.dumps(
            {
                "benchmark": "fuzz",
                "ours": len(told) - failed,
                "peer": len(told),
                "ratio": (len(told) - failed) / len(told),
                "unit": "kinds without a failure",
                "n": tries,
                "seed": options.seed,
                "kinds": told,
            }
        )
    )


if __name__ == "__main__":
    main()
