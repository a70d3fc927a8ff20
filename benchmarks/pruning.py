"""Our search for results to prune against the plain algorithm: one trace at a time, one candidate at a time.

    python -m benchmarks.pruning [--run RUN] [--rows 200] [--gammas 0 0.1 0.2] [--dtype float32]

With ``--run`` the model is that run's ``cirf_full``, with its traces; otherwise an untrained SmolLM2-135M with functional tokens
scores traces of generated problems. Both sides have the same number format and threads, compute logits of the answer only, and
stop at the threshold. The plain algorithm searches once a threshold. Ours is timed in the same way, and with one search for all
thresholds. The last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path as File
from typing import Any

Loss = Callable[[tuple[int, ...]], float]


def plain(loss: Loss, kept: tuple[int, ...], gamma: float) -> tuple[int, ...]:
    """The steps that keep their results, by the literal algorithm of section 3.4; ``loss`` takes the steps kept."""
    from cirf.compression.search import TIE

    current = loss(kept)
    while kept:
        losses = [loss(tuple(other for other in kept if other != step)) for step in kept]
        lowest = min(losses)
        place = next(place for place, value in enumerate(losses) if value <= lowest + TIE)
        if losses[place] - current > gamma + TIE:
            break
        current = losses[place]
        kept = kept[:place] + kept[place + 1 :]
    return kept


def _plain_loss(model: Any, pieces: Any) -> Loss:
    import torch

    def loss(kept: tuple[int, ...]) -> float:
        ids = list(pieces.head)
        for step, code in enumerate(pieces.codes):
            ids += [code, *(pieces.results[step] if step in kept else ())]
        ids += [pieces.end, *pieces.answer]
        count = len(pieces.answer)
        with torch.inference_mode():
            made = model(input_ids=torch.tensor([ids[:-1]]), logits_to_keep=count, use_cache=False)
            targets = torch.tensor(pieces.answer)
            return float(torch.nn.functional.cross_entropy(made.logits[0].float(), targets))

    return loss


def _from_run(run: File, dtype: str) -> tuple[Any, list[Any]]:
    from cirf.lm import backbone
    from cirf.methods import SCORED_BY
    from cirf.recipe.load import load
    from cirf.stages.compress import read_pieces
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder

    recipe = load(str(run / "recipe.yaml"))
    context = Context(recipe, RunFolder(run))
    folder = run / "models" / SCORED_BY
    tokenizer = backbone.load_tokenizer(folder, recipe.backbone)
    model = backbone.load_model(folder, recipe.backbone.model_copy(update={"dtype": dtype}))
    return model, read_pieces(context, tokenizer)[0]


def _made(rows: int, dtype: str) -> tuple[Any, list[Any]]:
    from cirf.compression.scorer import RowParts
    from cirf.lm import backbone, vocabulary
    from cirf.lm.training.batches import Row, tokenise
    from cirf.recipe.schema import Backbone, Problems, TaskEntry, Vocabulary
    from cirf.records import Trace
    from cirf.tasks.loading.load import load_problems

    source, section, size = "bundled:smollm2-135m-instruct", Backbone(dtype=dtype), 16
    tokenizer, model = backbone.load_tokenizer(source, section), backbone.load_model(source, section)
    ids = vocabulary.extend(model, tokenizer, None, Vocabulary(alpha="mean"), size, seed=1)
    names = vocabulary.token_names(size)
    options = {"min_animals": 2, "max_animals": 4, "max_count": 9}
    task = TaskEntry(task="leg_counting", train=rows, test=1, options=options)
    problems = load_problems(Problems(tasks=(task,), validation=0), 1).train
    texts = []
    for problem in problems:
        results = tuple(line.rpartition("= ")[2].split()[0].rstrip(".") for line in (problem.rationale or "").splitlines())
        trace = Trace(problem.id, 0, tuple(step % size for step in range(len(results))), results, problem.answer)
        texts.append(Row(backbone.prompt_text(tokenizer, problem.question), vocabulary.write_trace(trace, names)))
    return model, [RowParts.of(feature, ids) for feature in tokenise(texts, tokenizer, 10**6, ids)[0]]


def _ours(model: Any, pieces: Sequence[Any], limit: float) -> list[Any]:
    from cirf.compression.scorer import TraceScorer
    from cirf.compression.search import SearchItem, search
    from cirf.stages.compress import WINDOW

    order = sorted(range(len(pieces)), key=lambda i: (-len(pieces[i].head), i))
    found: dict[int, Any] = {}
    for start in range(0, len(order), WINDOW):
        window = order[start : start + WINDOW]
        scorer = TraceScorer(model, [pieces[i] for i in window], whole=False)
        items = [SearchItem(str(i), 0, pieces[i].tokens()) for i in window]
        found |= dict(zip(window, search(items, scorer, "greedy", limit), strict=True))
    return [found[i] for i in range(len(pieces))]


def main() -> None:
    """Run both, compare the kept results, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=File)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.0, 0.1, 0.2])
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    model, pieces = _from_run(options.run, options.dtype) if options.run else _made(options.rows, options.dtype)
    pieces = pieces[: options.rows]
    _ours(model, pieces[:4], 0.0)  # to warm up
    started = time.perf_counter()
    shared = _ours(model, pieces, max(options.gammas))
    ours = time.perf_counter() - started
    total, differing, ratios = 0.0, 0, {}
    print(f"{'γ':>6}{'plain, s':>10}{'ours, s':>10}{'ratio':>8}{'results kept':>14}")
    everything = [tuple(step for step, count in enumerate(row.tokens()) if count) for row in pieces]
    for gamma in options.gammas:
        started = time.perf_counter()
        paths = _ours(model, pieces, gamma)
        alone = time.perf_counter() - started
        started = time.perf_counter()
        kept = [plain(_plain_loss(model, row), full, gamma) for row, full in zip(pieces, everything, strict=True)]
        seconds = time.perf_counter() - started
        total += seconds
        ratios[str(gamma)] = round(seconds / alone, 2)
        for found in (paths, shared):
            ours_kept = [
                tuple(step for step in full if step not in path.below(gamma))
                for path, full in zip(found, everything, strict=True)
            ]
            differing += sum(one != other for one, other in zip(kept, ours_kept, strict=True))
        share = sum(map(len, kept)) / max(1, sum(map(len, everything)))
        print(f"{gamma:6.2f}{seconds:10.1f}{alone:10.1f}{seconds / alone:8.1f}{share:14.1%}", flush=True)
    print(f"{'all':>6}{total:10.1f}{ours:10.1f}{total / ours:8.1f}")
    print(
        json.dumps(
            {
                "benchmark": "pruning",
                "ours": round(ours, 2),
                "peer": round(total, 2),
                "ratio": round(total / ours, 2),
                "ratios_of_one_threshold": ratios,
                "unit": "s for all thresholds",
                "n": len(pieces),
                "gammas": options.gammas,
                "dtype": options.dtype,
                "identical": differing == 0,
                "differing": differing,
            }
        )
    )


if __name__ == "__main__":
    main()
