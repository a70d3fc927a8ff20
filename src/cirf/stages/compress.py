"""From full traces to shorter ones (paper 3.4): search which results go, then leave them out."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

from cirf.compression.search import Path, SearchItem, Selector, compress, price_for, search
from cirf.distributed import Share
from cirf.errors import CirfError
from cirf.methods import SCORED_BY, get
from cirf.progress import SILENT
from cirf.records import Trace
from cirf.stages.context import Context
from cirf.stages.models import release
from cirf.store.files import RowLog, to_json, write_atomic, write_rows

if TYPE_CHECKING:
    from cirf.compression.scorer import RowParts
    from cirf.methods.base import Method
    from cirf.recipe.schema import Compression

WINDOW = 64
"""Traces searched together. Windows are always the same, so a killed search resumes with the same batches."""


def search_removals(context: Context, selector: Selector, work: File) -> dict[str, Any]:
    """Find the order in which the results of every trace can be removed, judged by the model of ``cirf_full``. Processes share
    the windows."""
    from cirf.compression.scorer import TraceScorer
    from cirf.cpu.packed import pack
    from cirf.lm import backbone

    section = context.recipe.compression
    release(context)
    folder = context.folder.folder(f"models/{SCORED_BY}")
    tokenizer = backbone.load_tokenizer(folder, context.recipe.backbone)
    pieces, traces = read_pieces(context, tokenizer)
    order = sorted(range(len(traces)), key=lambda i: (-len(pieces[i].head), i))
    share, path = Share.of_launch(), work / "scratch" / "paths.jsonl"

    def read() -> dict[tuple[str, int], Path]:
        return {(row.problem, row.sample): row for one in share.paths(path) for row in RowLog(one).read(Path.from_dict)}

    known = share.settled(read)
    log, model = RowLog(share.path(path)), None
    windows = [order[start : start + WINDOW] for start in range(0, len(order), WINDOW)]
    names = [(trace.problem, trace.sample) for trace in traces]
    missing = share.mine([window for window in windows if not all(names[i] in known for i in window)])
    done = len(traces) - sum(map(len, missing))
    progress = context.progress if share.main else SILENT
    with progress.task(f"pruning ({selector})", len(traces), "traces", done) as advance:
        for window in missing:
            if model is None:
                precise = context.recipe.backbone.model_copy(update={"dtype": section.dtype})
                model = backbone.load_model(folder, precise, training=None)
                pack(model)
            scorer = TraceScorer(model, [pieces[i] for i in window], selector == "joint", section.batch_tokens)
            items = [SearchItem(traces[i].problem, traces[i].sample, pieces[i].tokens()) for i in window]
            found = search(items, scorer, selector, limit(section, selector))
            log.append(*(asdict(one) for one in found if (one.problem, one.sample) not in known))  # a kill may have left some
            advance(len(window))
    del model
    gc.collect()
    known = share.settled(read)
    if share.main:
        write_rows(work / "compression.jsonl", [known[name] for name in names])
    return {"rows": len(names)}


def limit(section: Compression, selector: Selector) -> float:
    """How far a search goes: beyond every requested threshold, in whole nats; if tokens have a price, to the end.

    So one search serves all thresholds, also later ones.
    """
    return float(max(1, math.ceil(max(section.fast, section.faster, *section.gamma)))) if selector == "greedy" else math.inf


def read_pieces(context: Context, tokenizer: Any) -> tuple[list[RowParts], list[Trace]]:
    """Every full trace, as ids and as text: training problems first, then the held-out ones."""
    from cirf.compression.scorer import RowParts
    from cirf.lm.backbone import prompt_text
    from cirf.lm.training.batches import Row, tokenise
    from cirf.lm.vocabulary import token_names

    recipe = context.recipe
    method = get(SCORED_BY, recipe)
    training, held_out = context.examples(method)
    examples = [*training, *held_out]
    names = tokenizer.convert_tokens_to_ids(list(token_names(recipe.codebook.codes, recipe.vocabulary.delimiters).all))
    rows = [
        Row(prompt_text(tokenizer, method.prompt(e.problem, context.tasks[e.problem.task])), method.target(e)) for e in examples
    ]
    longest = 10**9  # what training drops as too long may be scored all the same
    features, _ = tokenise(rows, tokenizer, longest, names)
    pieces = [RowParts.of(feature, names) for feature in features]
    for piece, example in zip(pieces, examples, strict=True):
        if len(piece.codes) != len(example.trace.codes):
            raise CirfError(f"{example.problem.id}: the tokenizer does not reproduce its trace; run again")
    return pieces, [example.trace for example in examples]


def pruned_traces(context: Context, name: str, work: File) -> dict[str, Any]:
    """The traces of a method: full ones without the results that its threshold, or price, removes."""
    full = {(trace.problem, trace.sample): trace for trace in context.traces()}
    chosen, details = _chosen(context, name)
    rows = []
    for path, removed in chosen:
        trace = full[path.problem, path.sample]
        rows.append(Trace(trace.problem, trace.sample, trace.codes, compress(trace.results, removed), trace.answer))
    write_rows(work / "traces.jsonl", rows)
    paths = [path for path, _ in chosen]
    report = details | {
        "rows": len(rows),
        "results": sum(bool(result) for path in paths for result in full[path.problem, path.sample].results),
        "results_kept": sum(bool(result) for row in rows for result in row.results),
        "result_tokens": round(sum(path.tokens for path in paths) / max(1, len(paths)), 3),
        "result_tokens_kept": round(_tokens(chosen), 3),
    }
    write_atomic(work / "report.json", to_json(report))
    return {"rows": len(rows)}


def rests_on(section: Compression, method: Method) -> tuple[Selector, ...]:
    """The searches that a method's traces come from: its own, and the paper's where they are to be as short as that's."""
    assert method.pruning is not None
    return ("greedy", "joint") if method.pruning == "joint" and isinstance(section.lean, str) else (method.pruning,)


def rule(section: Compression, method: Method) -> dict[str, Any]:
    """What decides which results of a method's traces are removed: a threshold, a price, or a length to reach."""
    gammas = {"cirf_zero": 0.0, "cirf_fast": section.fast, "cirf_faster": section.faster}
    if method.base in gammas:
        return {"gamma": gammas[method.base]}
    return {"as_short_as": gammas[f"cirf_{section.lean}"]} if isinstance(section.lean, str) else {"price": section.lean}


def _chosen(context: Context, name: str) -> tuple[list[tuple[Path, frozenset[int]]], dict[str, float]]:
    """Every path with the steps whose results are removed, and the threshold or price that decided it."""
    by = rule(context.recipe.compression, get(name, context.recipe))
    if "gamma" in by:
        return [(path, path.below(by["gamma"])) for path in _paths(context, "greedy")], by
    paths = _paths(context, "joint")
    if "as_short_as" in by:
        budget = _tokens([(path, path.below(by["as_short_as"])) for path in _paths(context, "greedy")])
        by = {"price": price_for(paths, budget)}
    return [(path, path.worth(by["price"])) for path in paths], by


def _paths(context: Context, selector: Selector) -> list[Path]:
    return [Path.from_dict(row) for row in context.rows(f"compression/{selector}", "compression.jsonl")]


def _tokens(chosen: Sequence[tuple[Path, frozenset[int]]]) -> float:
    return sum(path.tokens_without(removed) for path, removed in chosen) / max(1, len(chosen))
