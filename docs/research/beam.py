"""Does beam search over functional tokens find better traces than greedy decoding?

    python -m docs.research.beam RUN [--method cirf_full] [--width 4] [--most 300]

Beams branch only where the most likely token is functional or closes the trace, into the ``width`` most likely of these. Other
tokens are greedy. After each functional token the ``width`` beams with the largest log-probability of all tokens so far are
kept; the best finished one answers. Width 1 is greedy decoding. Questions: the test questions of the run's first task. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from docs.research.recorded import opened

from cirf.statistics import compare, describe_difference, mean


@dataclass(frozen=True)
class Beam:
    """The ids after the prompt, the sum of their log-probabilities, and what may follow: ``None`` if not yet known, nothing at
    the end, or tokens with their log-probabilities."""

    ids: tuple[int, ...]
    score: float = 0.0
    branches: tuple[tuple[int, float], ...] | None = None


@torch.inference_mode()
def advanced(
    model: Any, prompt: Sequence[int], beams: list[Beam], plan: Sequence[int], stops: Collection[int], width: int, cap: int
) -> list[Beam]:
    """Continue each beam greedily to its next branch, its end or ``cap`` tokens."""
    beams = list(beams)
    while True:
        going = [place for place, beam in enumerate(beams) if beam.branches is None]
        if not going:
            return beams
        rows = [[*prompt, *beams[place].ids] for place in going]
        longest = max(map(len, rows))
        padded = torch.tensor([row + [0] * (longest - len(row)) for row in rows])  # causal: what follows a row is not seen
        ends = torch.tensor([len(row) - 1 for row in rows])
        logs = model(input_ids=padded, use_cache=False).logits[torch.arange(len(rows)), ends].float().log_softmax(-1)
        for place, row in zip(going, logs, strict=True):
            beam, top = beams[place], int(row.argmax())
            if len(beam.ids) == cap:
                beams[place] = Beam(beam.ids, beam.score, ())
            elif top in plan:
                best = row[list(plan)].topk(min(width, len(plan)))
                chosen = zip((plan[index] for index in best.indices.tolist()), best.values.tolist(), strict=True)
                beams[place] = Beam(beam.ids, beam.score, tuple(chosen))
            else:
                beams[place] = Beam((*beam.ids, top), beam.score + float(row[top]), () if top in stops else None)


def search(
    model: Any, prompt: Sequence[int], plan: Sequence[int], stops: Collection[int], width: int, cap: int
) -> tuple[list[Beam], int]:
    """The finished beams, the best first, and all tokens that were generated."""
    beams, spent = [Beam(())], 0
    while True:
        lengths = sum(len(beam.ids) for beam in beams)
        beams = advanced(model, prompt, beams, plan, stops, width, cap)
        spent += sum(len(beam.ids) for beam in beams) - lengths
        if not any(beam.branches for beam in beams):
            return sorted(beams, key=lambda beam: -beam.score), spent
        every = [beam for beam in beams if not beam.branches]
        every += [Beam((*b.ids, token), b.score + logp) for b in beams for token, logp in b.branches or ()]
        beams = sorted(every, key=lambda beam: -beam.score)[:width]
        spent += sum(beam.branches is None for beam in beams)


def answered(run: Path, name: str, widths: Sequence[int], most: int) -> dict[int, dict[str, tuple[float, int, float]]]:
    """By width and question: whether the best beam is right, all tokens generated, and whether any beam is right."""
    from cirf.evaluation.harness import hide, judge
    from cirf.evaluation.harness import read as taken
    from cirf.lm.decoding.generate import output_of
    from cirf.lm.prompt import encode, prompt_text, stop_ids
    from cirf.lm.vocabulary import names_in
    from cirf.methods import get
    from cirf.stages.models import load_for

    recipe, context, problems = opened(run, None, 0, most)
    method, (model, tokenizer) = get(name, recipe), load_for(context, name)
    names = names_in(tokenizer)
    if names is None:
        raise SystemExit(f"{name} writes no functional tokens")
    stops, plan = stop_ids(model, tokenizer), tokenizer.convert_tokens_to_ids(list(names.all))[1:]
    found: dict[int, dict[str, tuple[float, int, float]]] = {width: {} for width in widths}
    for problem in problems:
        task = context.tasks[problem.task]
        prompt = encode(tokenizer, prompt_text(tokenizer, method.prompt(hide(problem), task)))
        for width in widths:
            beams, spent = search(model, prompt, plan, stops, width, method.budget(task, recipe.evaluate))
            right = [judge(taken(method, output_of(tokenizer, [*beam.ids], stops))[1], problem, task)[1] for beam in beams]
            found[width][problem.id] = (float(right[0]), spent, float(any(right)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="cirf_full")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--most", type=int, default=300)
    asked = parser.parse_args(arguments)
    found = answered(asked.run, asked.method, (1, asked.width), asked.most)
    greedy, beam = ({item: right for item, (right, _, _) in found[width].items()} for width in (1, asked.width))
    gap = compare(beam, greedy)
    summary: dict[str, Any] = {"n": len(beam), "greedy": mean(list(greedy.values())), "beam": mean(list(beam.values()))}
    summary["any beam"] = mean([some for _, _, some in found[asked.width].values()])
    summary["tokens"] = [mean([float(spent) for _, spent, _ in found[width].values()]) for width in found]
    print(describe_difference(gap, f"beam search of width {asked.width}", "greedy decoding"))
    print(json.dumps(summary | {"difference": gap.to_dict()}))


if __name__ == "__main__":
    main()
