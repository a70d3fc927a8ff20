"""The scorer: memory and batches change nothing."""

from __future__ import annotations

import functools
import importlib.util
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.pruning import plain
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.compression.scorer import RowParts, TraceScorer
from cirf.compression.search import TIE, Query, SearchItem, search
from cirf.lm.prompt import prompt_text, settle_template
from cirf.lm.training.batches import Row, tokenise
from cirf.lm.vocabulary import extend, token_names, write_trace
from cirf.recipe.schema import Vocabulary
from cirf.records import Trace

SIZE = 6


def _builders() -> Any:
    spec = importlib.util.spec_from_file_location("cirf_lm_tiny", Path(__file__).parents[1] / "lm" / "tiny.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma2"])
def judged(request: pytest.FixtureRequest) -> tuple[Any, list[RowParts], list[Trace], Any, list[int]]:
    """A tiny model with functional tokens, and some traces as ids and as they are."""
    torch.set_num_threads(1)
    tiny = _builders()
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer)
    model = tiny.build_model(request.param).eval()
    ids = extend(model, tokenizer, None, Vocabulary(alpha="mean"), SIZE, seed=3)
    chance = random.Random(5)
    names, rows, traces = token_names(SIZE), [], []
    for place in range(9):
        steps = chance.randint(1, 5)
        codes = tuple(chance.randrange(SIZE) for _ in range(steps))
        results = tuple(chance.choice(["", "12", "3 apples", "7"]) for _ in range(steps))
        traces.append(Trace(f"p{place}", 0, codes, results, chance.choice(["19", "yes", "104"])))
        question = "How many apples are there now? " * chance.randint(1, 3) + str(place)
        prompt, target = prompt_text(tokenizer, question), write_trace(traces[-1], names)
        if place % 2:  # the prompt ends with the opening delimiter
            prompt, target = prompt + names.start, target.removeprefix(names.start)
        rows.append(Row(prompt, target))
    features, _ = tokenise(rows, tokenizer, 10**6, ids)
    return model, [RowParts.of(feature, ids) for feature in features], traces, tokenizer, ids


@functools.cache
def _alone(model: Any, pieces: RowParts, kept: tuple[int, ...]) -> tuple[float, float]:
    """Answer's mean and the sum over results and answer, by one whole pass over one row."""
    ids, learned = list(pieces.head), []
    for step, code in enumerate(pieces.codes):
        ids.append(code)
        if step in kept:
            learned += range(len(ids), len(ids) + len(pieces.results[step]))
            ids += pieces.results[step]
    ids.append(pieces.end)
    answer = range(len(ids), len(ids) + len(pieces.answer))
    ids += pieces.answer
    with torch.inference_mode():
        losses = -torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
    found = {place: float(losses[place - 1, ids[place]]) for place in (*learned, *answer)}
    return sum(found[place] for place in answer) / len(answer), sum(found.values())


def test_pieces_are_the_row_cut_at_its_functional_tokens(judged: Any) -> None:
    _, pieces, traces, tokenizer, ids = judged
    for piece, trace in zip(pieces, traces, strict=True):
        assert [ids.index(code) - 2 for code in piece.codes] == list(trace.codes)
        assert tuple(tokenizer.decode(result) for result in piece.results) == trace.results
        assert tokenizer.decode(piece.answer) == trace.answer
        assert tokenizer.decode(piece.head).endswith("<cirf>") and not piece.head.count(ids[0]) > 1


@pytest.mark.parametrize("batch_tokens", [1, 64, 4096])
@pytest.mark.parametrize("selector", ["greedy", "joint"])
def test_losses_equal_those_of_whole_rows_one_at_a_time(judged: Any, batch_tokens: int, selector: Any) -> None:
    model, pieces, traces, _, _ = judged
    scorer = TraceScorer(model, pieces, selector == "joint", batch_tokens)
    asked: list[tuple[Query, Any]] = []
    real = scorer.score
    scorer.score = lambda queries: (found := real(queries), asked.extend(zip(queries, found, strict=True)))[0]  # type: ignore
    items = [SearchItem(trace.problem, 0, piece.tokens()) for trace, piece in zip(traces, pieces, strict=True)]
    search(items, scorer, selector, float("inf"))
    assert len(asked) > 3 * len(items)
    for query, losses in asked:
        answer, written = _alone(model, pieces[query.item], query.kept)
        assert losses.answer == pytest.approx(answer, abs=2e-5)
        if selector == "joint":
            assert losses.written == pytest.approx(written, abs=1e-4)
        else:
            assert math.isnan(losses.written)


def test_the_same_results_go_as_by_the_plain_algorithm(judged: Any) -> None:
    model, pieces, traces, _, _ = judged
    items = [SearchItem(trace.problem, 0, piece.tokens()) for trace, piece in zip(traces, pieces, strict=True)]
    for limit in (0.0, 0.2, 1.0):
        for piece, path in zip(pieces, search(items, TraceScorer(model, pieces, whole=False), "greedy", limit), strict=True):
            full = tuple(step for step, count in enumerate(piece.tokens()) if count)
            kept = plain(lambda steps, piece=piece: _alone(model, piece, steps)[0], full, limit)  # type: ignore[misc]
            assert set(full) - path.below(limit) == set(kept)


@st.composite
def _corpora(draw: st.DrawFn) -> list[RowParts]:
    """Rows of any ids and lengths; the functional tokens are the vocabulary's last."""
    text = st.integers(5, 400)
    corpus = []
    for _ in range(draw(st.integers(1, 5))):
        results = tuple(map(tuple, draw(st.lists(st.lists(text, max_size=4), min_size=1, max_size=5))))
        head, answer = draw(st.lists(text, min_size=1, max_size=30)), draw(st.lists(text, min_size=1, max_size=3))
        corpus.append(RowParts(tuple(head), tuple(401 + step % 3 for step in range(len(results))), results, 410, tuple(answer)))
    return corpus


@given(_corpora(), st.sampled_from([1, 40, 2048]), st.sampled_from([0.0, 0.1, 0.2, 1.0]))
@settings(max_examples=8)
def test_any_corpus_is_pruned_as_by_the_plain_algorithm(corpus: list[RowParts], batch_tokens: int, limit: float) -> None:
    model = _sharp()
    items = [SearchItem(str(place), 0, piece.tokens()) for place, piece in enumerate(corpus)]
    paths = search(items, TraceScorer(model, corpus, False, batch_tokens), "greedy", limit)
    for piece, path in zip(corpus, paths, strict=True):
        known: dict[tuple[int, ...], float] = {}

        def loss(steps: tuple[int, ...], piece: RowParts = piece, known: dict[tuple[int, ...], float] = known) -> float:
            known[steps] = _alone(model, piece, steps)[0]
            return known[steps]

        full = tuple(step for step, count in enumerate(piece.tokens()) if count)
        kept = plain(loss, full, limit)
        if _clear(known, limit):
            assert set(full) - path.below(limit) == set(kept)


@functools.cache
def _sharp() -> Any:
    """A model with widely spaced losses."""
    torch.manual_seed(1)
    model = _builders().build_model("llama").eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


def _clear(known: dict[tuple[int, ...], float], limit: float, rounding: float = 5e-5) -> bool:
    """Whether no choice or stop among these losses depends on rounding."""
    for kept, before in known.items():
        after = [known[rest] for step in kept if (rest := tuple(other for other in kept if other != step)) in known]
        if len(after) == len(kept) > 0:
            edges = [value - min(after) - TIE for value in after] + [min(after) - before - limit - TIE]
            if any(abs(edge) < rounding for edge in edges):
                return False
    return True


def test_a_model_without_a_growing_cache_is_asked_for_whole_rows() -> None:
    from transformers import AutoModelForCausalLM, MambaConfig

    tiny = _builders()
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer)
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=448, hidden_size=16, state_size=4, num_hidden_layers=2, pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = extend(model, tokenizer, None, Vocabulary(alpha="mean"), SIZE, seed=3)
    text = write_trace(Trace("p", 0, (1, 2), ("12", "7"), "19"), token_names(SIZE))
    pieces = [RowParts.of(tokenise([Row(prompt_text(tokenizer, "What is it?"), text)], tokenizer, 10**6, ids)[0][0], ids)]
    (path,) = search([SearchItem("p", 0, pieces[0].tokens())], TraceScorer(model, pieces, whole=False), "greedy", float("inf"))
    assert path.loss == pytest.approx(_alone(model, pieces[0], (0, 1))[0], abs=1e-4)
    assert path.removals[-1].loss == pytest.approx(_alone(model, pieces[0], ())[0], abs=1e-4)
