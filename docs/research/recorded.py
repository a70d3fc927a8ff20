"""Record answers of a run's models with the log-probability of every token, for `docs.research.uses`.

    python -m docs.research.recorded RUN --out ROWS [--questions FILE] [--methods cirf_full terse] [--skip 300] [--votes 8]
    python -m docs.research.recorded pack --out ROWS.parquet ROWS [ROWS]

FILE is a JSONL file, read as the run's first task; without it, the first task's test questions are answered. ``--skip`` leaves
out the first, such as those trained on. For every generated token its kind, log-probability and entropy are recorded, before any
sampling. An interrupted call resumes.

``--votes`` draws that many samples of a question in each of three ways, at temperature 0.7 and top-p 0.95: ``all`` samples every
position; ``plan`` only those whose most likely token is functional or closes the trace (without functional tokens: the first
position of a line); ``rest`` only the others. All other positions are greedy.

Synthetic sums, without ``--questions``::

    cirf run reward-toy --set 'methods=[cirf_full,terse]' --set 'variants={}' --set problems.tasks.0.rows=240 \\
        --set problems.tasks.0.test=500 --set problems.tasks.0.options.max_terms=4 --set evaluate.max_trace_tokens=64

``pack`` writes several files as one, small enough for ``results/``: of outputs the functional tokens alone, of answers a hash.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

WAYS = ("all", "plan", "rest")
TEMPERATURE, TOP_P = 0.7, 0.95


class Recorder:
    """A logits processor that records the log-probability and entropy of every generated token of a batch."""

    def __init__(self, entropies: bool = True) -> None:
        """``entropies``: whether to record these too, which takes as long as a forward pass of a small model."""
        self.rows: list[int] = []
        self.logp: list[list[float]] = []
        self.entropy: list[list[float]] = []
        self._entropies = entropies
        self._last: Any = None

    def select(self, rows: list[int]) -> None:
        """Keep only these rows."""
        self.rows, self._last = [self.rows[row] for row in rows], [part[rows] for part in self._last]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return ``scores`` [rows x vocabulary] unchanged; ``input_ids`` [rows x length] end with the last chosen token."""
        if self._last is None:
            self.rows = list(range(len(scores)))
            self.logp, self.entropy = [[] for _ in self.rows], [[] for _ in self.rows]
        else:
            before, total = self._last
            for row, value in zip(self.rows, (before.gather(1, input_ids[:, -1:]) - total).flatten().tolist(), strict=True):
                self.logp[row].append(value)
        total = scores.logsumexp(dim=1, keepdim=True)
        self._last = (scores, total)
        if self._entropies:
            logs = scores - total
            for row, value in zip(self.rows, (-(logs.exp() * logs).nan_to_num().sum(dim=1)).tolist(), strict=True):
                self.entropy[row].append(value)
        return scores


class Places:
    """A logits processor that keeps only the most likely token at positions that a row does not sample."""

    def __init__(self, ways: Sequence[str], plan: Sequence[int], breaks: Callable[[int], bool]) -> None:
        """``ways``: one of `WAYS` a row; ``plan``: functional tokens and the closing delimiter.

        ``breaks``: whether a token ends a line, used if there is no plan.
        """
        self.ways, self.plan, self.breaks = list(ways), list(plan), breaks
        self._width: int | None = None

    def select(self, rows: list[int]) -> None:
        """Keep only these rows."""
        self.ways = [self.ways[row] for row in rows]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """``scores`` [rows x vocabulary]; in greedy rows all but the most likely token are minus infinity."""
        import torch

        if self._width is None:
            self._width = input_ids.shape[1]
        top = scores.argmax(dim=1, keepdim=True)
        if self.plan:
            planned = torch.isin(top[:, 0], torch.tensor(self.plan, device=top.device)).tolist()
        else:
            first = input_ids.shape[1] == self._width
            planned = [first or self.breaks(token) for token in input_ids[:, -1].tolist()]
        wanted = [way == "all" or plan == (way == "plan") for way, plan in zip(self.ways, planned, strict=True)]
        alone = torch.full_like(scores, -math.inf).scatter_(1, top, 0.0)
        return torch.where(torch.tensor(wanted, device=top.device)[:, None], scores, alone)


def kinds(ids: Sequence[int], pieces: Sequence[str], functional: Sequence[int], closing: int | None) -> str:
    """A letter a token: ``f`` functional, ``m`` closes the trace or a line, ``r`` result, ``a`` answer, ``e`` the last one.

    Without functional tokens, where nothing is ``closing``, the answer starts after the piece with ``####``.
    """
    if closing is not None:
        end = ids.index(closing) if closing in ids else len(ids)
    else:
        end = next((place for place, piece in enumerate(pieces) if "####" in piece), len(ids))
    found = ["a" if place > end else "r" for place in range(len(ids))]
    for place, token in enumerate(ids):
        if token in functional:
            found[place] = "f"
        elif place == end or (place < end and "\n" in pieces[place]):
            found[place] = "m"
    if found:
        found[-1] = "e"
    return "".join(found)


def opened(run: Path, questions: Path | None, skip: int, most: int) -> tuple[Any, Any, Any]:
    """The run's recipe and context, and the problems of its first task: those of another file, or its test questions."""
    from cirf.recipe.load import load
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder
    from cirf.tasks.loading.load import load_problems

    sets = []
    if questions is not None:
        with questions.open(encoding="utf-8") as lines:
            count = min(skip + most, sum(1 for _ in lines))
        sets = [f"problems.tasks.0.test_file={questions.resolve()}", f"problems.tasks.0.test={count}"]
    recipe = load(str(run / "recipe.yaml"), sets)
    problems = load_problems(recipe.problems, recipe.seed).test
    return recipe, Context(recipe, RunFolder(run)), next(iter(problems.values()))[skip : skip + most]


def write(run: Path, questions: Path | None, out: Path, methods: Sequence[str], skip: int, most: int, votes: int) -> None:
    """Answer the questions that ``out`` lacks, all methods on a group of questions before the next group."""
    from cirf.methods import get
    from cirf.stages.models import load_for
    from cirf.store.files import write_rows

    recipe, context, problems = opened(run, questions, skip, most)
    rows = read(out) if out.is_file() else []
    count = Counter((row["method"], row["id"]) for row in rows)
    there = {key for key, times in count.items() if times == max(count[one] for one in count if one[0] == key[0])}
    write_rows(
        out, [row for row in rows if (row["method"], row["id"]) in there]
    )  # an interrupted call may have written only some rows of a question
    ready = {name: (get(name, recipe), *load_for(context, name)) for name in methods}
    step = 1 if votes else recipe.evaluate.batch_size
    with out.open("a", encoding="utf-8") as file:
        for start in range(0, len(problems), step):
            for name in methods:
                left = [one for one in problems[start : start + step] if (name, one.id) not in there]
                if left:
                    file.write("".join(json.dumps(row) + "\n" for row in answered(context, name, *ready[name], left, votes)))
                    file.flush()


def answered(
    context: Any, name: str, method: Any, model: Any, tokenizer: Any, problems: Sequence[Any], votes: int
) -> list[dict[str, Any]]:
    """Rows of some problems: their greedy answers, or ``votes`` samples of a single problem in each of `WAYS`."""
    from cirf.evaluation.harness import hide, judge
    from cirf.evaluation.harness import read as taken
    from cirf.lm.decoding.generate import Decoding, generate, sample_many
    from cirf.lm.prompt import encode, prompt_text
    from cirf.lm.vocabulary import names_in

    task = context.tasks[problems[0].task]
    names = names_in(tokenizer) if method.functional else None
    ids = tokenizer.convert_tokens_to_ids(list(names.all)) if names else []
    prompts = [prompt_text(tokenizer, method.prompt(hide(problem), task)) for problem in problems]
    cap, recorder = method.budget(task, context.recipe.evaluate), Recorder(entropies=not votes)
    if votes:
        drawn = [way for way in WAYS if names or way != "rest" for _ in range(votes)]
        problems, order = [problems[0]] * len(drawn), list(range(len(drawn)))
        steer = [recorder, Places(drawn, ids[1:], lambda token: "\n" in tokenizer.decode([token]))]
        outputs = sample_many(model, tokenizer, prompts[0], cap, len(drawn), Decoding(TEMPERATURE, TOP_P, 1, steer=lambda: steer))
    else:
        drawn = ["greedy"] * len(prompts)
        lengths = [len(encode(tokenizer, prompt)) for prompt in prompts]
        order = sorted(range(len(prompts)), key=lambda place: (-lengths[place], place))  # as `generate` puts them
        outputs = generate(model, tokenizer, prompts, cap, Decoding(steer=lambda: [recorder]), batch_size=len(prompts))
    rows = []
    for place, (problem, output) in enumerate(zip(problems, outputs, strict=True)):
        parsed, correct = judge(taken(method, output)[1], problem, task)
        own, written = order.index(place), list(output.ids)
        pieces = [tokenizer.decode([token]) for token in written]
        rows.append(
            {"method": name, "way": drawn[place], "id": problem.id, "correct": correct, "parsed": parsed}
            | {"output": output.text, "tokens": output.tokens, "truncated": output.truncated}
            | {"kinds": kinds(written, pieces, ids[2:], ids[1] if ids else None)}
            | {"logp": [round(value, 4) for value in recorder.logp[own][: len(written) - 1]]}  # the end token's may be missing
            | {"entropy": [round(value, 4) for value in recorder.entropy[own][: len(written)]]}
        )
    return rows


def pack(files: Sequence[Path], out: Path) -> None:
    """Write the rows of all ``files`` as one Parquet file, without texts."""
    rows = [row for file in files for row in read(file)]
    for row in rows:
        row["output"] = "".join(re.findall(r"<cirf_\d+>", row["output"]))
        row["parsed"] = None if row["parsed"] is None else f"{zlib.crc32(row['parsed'].encode()):08x}"
    table = pa.Table.from_pylist(rows)
    numbers = [pa.list_(pa.float32()) if field.name in ("logp", "entropy") else field.type for field in table.schema]
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.cast(pa.schema(zip(table.column_names, numbers, strict=True))), out, compression="zstd")


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of answers, without an incomplete last one, or of one that `pack` wrote."""
    found = []
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                found.append(json.loads(line))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder, or pack")
    parser.add_argument("rows", type=Path, nargs="*", help="of pack: the files")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=["cirf_full", "terse"])
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--votes", type=int, default=0)
    asked = parser.parse_intermixed_args(arguments)
    if str(asked.run) == "pack":
        return pack(asked.rows, asked.out)
    write(asked.run, asked.questions, asked.out, asked.methods, asked.skip, asked.most, asked.votes)


if __name__ == "__main__":
    main()
