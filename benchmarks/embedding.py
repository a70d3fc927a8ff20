"""Embedding segments as a run does, in chunks that are files, against one `SentenceTransformer.encode` of all of them.

    python -m benchmarks.embedding [--run RUN] [--texts 4096] [--rounds 7] [--threads N] [--set KEY=VALUE]

Segments are the distinct ones of ``--run``, otherwise random ones, so that deduplication gives no advantage. ``every segment``
takes all segments of the run, with repetitions. Both sides read the same text with the same loaded model and batch size. Ours
packs its weights (`cirf.cpu.packed`); the peer is loaded as in a stock script, and `encode` sorts by length. Rounds alternate
after one warm-up. The last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock


def _made(count: int) -> list[str]:
    """Distinct random segments of 5 to 60 words, without numbers, which would be masked."""
    draw = random.Random("segments")
    sentence = "there are cats and dogs in the garden so each of them has four legs which gives apples coins boxes in total"
    words = sentence.split()
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(draw.choices(words, k=min(60, 5 + int(draw.expovariate(0.1)))))] = None
    return list(found)


def _timed(work: Callable[[list[str]], Any], texts: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    started = time.perf_counter(), time.process_time()
    work(texts)
    return time.perf_counter() - started[0], time.process_time() - started[1]


def main() -> None:
    """Run both in turns, compare the vectors, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    options = parser.parse_args()
    import numpy as np
    import torch

    from cirf.assets import resolve
    from cirf.codebook import embedding
    from cirf.codebook.embedding import wording, wordings
    from cirf.progress import SILENT
    from cirf.recipe.load import load
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder

    if options.threads:
        torch.set_num_threads(options.threads)
    recipe = load(str(options.run / "recipe.yaml") if options.run else "quickstart", options.sets)
    section = recipe.embeddings
    if options.run:
        context = Context(recipe, RunFolder(options.run))
        choices = {problem.id: problem.choices for problem in [*context.train(), *context.validation()]}
        every = [text for row in context.steps() for text in wordings(row.segments, section, choices[row.problem])]
    else:
        every = [wording(text, section) for text in _made(options.texts)]
    distinct = list(dict.fromkeys(every))[: options.texts]
    source = resolve(section.model, SILENT)
    embedder = embedding.Embedder(section, source, "cpu")
    model = import_module("sentence_transformers").SentenceTransformer(str(source), device="cpu")  # as a stock script has it
    model.max_seq_length = embedder.model.max_seq_length

    def ours(texts: list[str]) -> Any:
        with tempfile.TemporaryDirectory() as work, mock.patch.object(embedding, "Embedder", lambda *_: embedder):
            return embedding.embed(texts, section, source, "cpu", Path(work), SILENT)[:]

    def peer(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=section.batch_size, show_progress_bar=False)

    summary: dict[str, Any] = {}
    print(f"{section.model}, batches of {section.batch_size}, {torch.get_num_threads()} threads")
    print(f"{'':18}{'texts':>8}{'ours, s':>10}{'encode, s':>11}{'ratio':>8}{'range':>14}{'by CPU':>8}{'range':>14}{'apart':>10}")
    sets = {"distinct segments": distinct} | ({"every segment": every} if options.run and len(every) > len(distinct) else {})
    for name, texts in sets.items():
        apart = float(np.abs(ours(texts) - peer(texts)).max())
        pairs = []
        for turn in range(options.rounds):
            found = {side: _timed(side, texts) for side in (ours, peer)[:: -1 if turn % 2 else 1]}
            pairs.append((found[ours], found[peer]))
        ratios = [[second[clock] / first[clock] for first, second in pairs] for clock in (0, 1)]
        middle, between = [statistics.median(found) for found in ratios], [(min(found), max(found)) for found in ratios]
        seconds = [statistics.median(pair[side][0] for pair in pairs) for side in (0, 1)]
        spans = [f"{low:.2f}-{high:.2f}" for low, high in between]
        print(f"{name:18}{len(texts):8}{seconds[0]:10.2f}{seconds[1]:11.2f}", end="")
        print(f"{middle[0]:8.2f}{spans[0]:>14}{middle[1]:8.2f}{spans[1]:>14}{apart:10.1e}", flush=True)
        summary[name] = {
            "ours": round(seconds[0], 3),
            "peer": round(seconds[1], 3),
            "ratio": round(middle[0], 3),
            "range": [round(bound, 3) for bound in between[0]],
            "ratio_cpu": round(middle[1], 3),
            "range_cpu": [round(bound, 3) for bound in between[1]],
            "n": len(texts),
            "apart": apart,
        }
    first = next(iter(summary.values()))
    print(json.dumps({"benchmark": "embedding", "unit": "s", "rounds": options.rounds, **first, "all": summary}))


if __name__ == "__main__":
    main()
