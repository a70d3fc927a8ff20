"""Functional tokens: names, traces as text, and rows in the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.errors import CirfError
from cirf.lm.vocabulary import extend, is_closed, matrices, parse_trace, read_trace, token_names, write_trace
from cirf.recipe import schema
from cirf.records import Trace

NAMES = token_names(32)


def test_a_trace_reads_as_documented() -> None:
    trace = Trace("train-0", 0, (16, 23), ("48", "72"), "72")
    text = write_trace(trace, NAMES)
    assert text == "<cirf><cirf_016>48<cirf_023>72</cirf>72"
    assert read_trace(text, NAMES) == ("<cirf_016>48<cirf_023>72", "72")
    assert parse_trace("<cirf_016>48<cirf_023>72") == [(16, "48"), (23, "72")]


@given(st.lists(st.tuples(st.integers(0, 31), st.text(max_size=8)), max_size=6), st.text(min_size=1, max_size=8))
def test_traces_survive_writing_and_reading(steps: list[tuple[int, str]], answer: str) -> None:
    trace = Trace("p", 0, tuple(code for code, _ in steps), tuple(result for _, result in steps), answer)
    inner, read = read_trace(write_trace(trace, NAMES), NAMES)
    assert parse_trace(inner) == steps
    assert read == answer.strip()


def test_names_inside_results_do_not_become_steps() -> None:
    trace = Trace("p", 0, (1,), ("a<cirf_002>b</cirf>",), "x</cirf>y")
    inner, answer = read_trace(write_trace(trace, NAMES), NAMES)
    assert parse_trace(inner) == [(1, "a< cirf_002>b< /cirf>")]
    assert answer == "x< /cirf>y"


def test_unfinished_and_missing_traces() -> None:
    assert read_trace("<cirf>4", NAMES) == ("4", "")
    assert read_trace(" 72 ", NAMES) == ("", "72")
    assert parse_trace("so <cirf_001>") == [(None, "so "), (1, "")]
    assert parse_trace("") == []


@each_row(
    ("text", "read", "closed"),
    [
        ("<cirf><cirf_001>4</cirf>7", ("<cirf_001>4", "7"), True),
        ("<cirf_001>4</cirf>7", ("<cirf_001>4", "7"), True),  # the prompt held the opening delimiter
        ("<cirf_001>4<cirf_002>7", ("<cirf_001>4<cirf_002>", "7"), False),  # never closed: what follows the last token counts
        ("<cirf><cirf_001>4<cirf_002>", ("<cirf_001>4<cirf_002>", ""), False),
        ("<cirf_001>4</cirf>", ("<cirf_001>4", ""), False),
        ("<cirf_001>4</cirf>7<cirf_002>", ("<cirf_001>4", "7<cirf_002>"), False),
        ("7", ("", "7"), False),
    ],
)
def test_a_delimiter_may_be_missing(text: str, read: tuple[str, str], closed: bool) -> None:
    assert read_trace(text, NAMES) == read
    assert is_closed(text, NAMES) is closed


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen2", False), ("gpt2", True)])
def test_rows_are_the_code_vectors_at_length_alpha(tiny: Any, kind: str, tied: bool) -> None:
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model(kind, tied)
    known = len(tokenizer)
    codes = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)
    old = [weight.detach().clone() for weight in matrices(model)]
    ids = extend(model, tokenizer, codes, schema.Vocabulary(alpha=0.01), 8, 0)
    assert ids == list(range(known, known + 10)) and len(matrices(model)) == (1 if tied else 2)
    for before, weight in zip(old, matrices(model), strict=True):
        expected = 0.01 * codes / np.linalg.norm(codes, axis=1, keepdims=True)
        np.testing.assert_allclose(weight[ids[2:]].detach().numpy(), expected, atol=1e-7)
        np.testing.assert_allclose(weight[ids[0]].detach(), before[:known].mean(0), atol=1e-6)
        assert torch.equal(weight[:known], before[:known]) and torch.equal(weight[known + 10 :], before[known + 10 :])


def test_spare_rows_are_used_and_never_cut(tiny: Any) -> None:
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model(rows=2048)
    extend(model, tokenizer, None, schema.Vocabulary(), 8, 0)
    assert model.get_input_embeddings().weight.shape[0] == 2048 and model.config.vocab_size == 2048


@pytest.mark.parametrize("tied", [True, False])
def test_a_full_matrix_grows(tiny: Any, tied: bool) -> None:
    tokenizer = tiny.build_tokenizer()
    model = tiny.build_model("llama", tied, rows=len(tokenizer))
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 8, 0)
    assert model.get_input_embeddings().weight.shape[0] == model.get_output_embeddings().weight.shape[0] == len(tokenizer)
    norms = model.get_output_embeddings().weight.norm(dim=1)
    torch.testing.assert_close(norms[ids[2:]], norms[: ids[0]].mean().expand(8))


def test_random_directions_follow_the_seed(tiny: Any) -> None:
    rows = []
    for seed in (0, 0, 1):
        model = tiny.build_model()
        ids = extend(model, tiny.build_tokenizer(), np.ones((8, 32)), schema.Vocabulary(init="random", alpha=0.01), 8, seed)
        rows.append(model.get_input_embeddings().weight[ids].detach())
    assert torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])
    assert torch.allclose(rows[0][2:].norm(dim=1), torch.tensor(0.01))


@pytest.mark.parametrize("tied", [True, False])
def test_rows_may_begin_at_that_of_a_token(tiny: Any, tied: bool) -> None:
    model, tokenizer = tiny.build_model("llama", tied), tiny.build_tokenizer()
    known = tokenizer("7", add_special_tokens=False).input_ids
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha=0.05, init_from_token="7"), 8, 0)
    for weight in matrices(model):
        assert torch.equal(weight[ids[:2]], weight[known].expand(2, -1))
        moved = weight[ids[2:]] - weight[known]
        assert torch.allclose(moved.norm(dim=1), torch.tensor(0.05), atol=1e-5) and len(moved.unique(dim=0)) == 8
    with pytest.raises(CirfError, match=r"^vocabulary\.init_from_token: '7é' is 3 tokens of this model"):
        extend(tiny.build_model(), tiny.build_tokenizer(), None, schema.Vocabulary(init_from_token="7é"), 8, 0)


def test_new_tokens_stay_in_decoded_text_and_match_alone(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    ids = extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(), 8, 0)
    text = "<cirf><cirf_001>48<cirf_003></cirf>72"
    encoded = tokenizer(text, add_special_tokens=False).input_ids
    assert [token for token in encoded if token in ids] == [ids[0], ids[3], ids[5], ids[1]]
    assert tokenizer.decode(encoded, skip_special_tokens=True) == text


def test_think_delimiters_are_reused_where_the_model_knows_them(tiny: Any) -> None:
    from transformers import AddedToken

    tokenizer, model = tiny.build_tokenizer(), tiny.build_model()
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
    known = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    before = model.get_input_embeddings().weight[known].detach().clone()
    ids = extend(model, tokenizer, None, schema.Vocabulary(delimiters="think"), 8, 0)
    assert ids[:2] == known and len(ids) == 10
    assert torch.equal(model.get_input_embeddings().weight[known], before)
    fresh = extend(tiny.build_model(), tiny.build_tokenizer(), None, schema.Vocabulary(delimiters="think"), 8, 0)
    assert len(set(fresh)) == 10


def test_codes_of_another_width_or_number_are_refused(tiny: Any) -> None:
    for shape in ((8, 16), (7, 32)):
        with pytest.raises(CirfError, match=r"codebook: .* rebuild"):
            extend(tiny.build_model(), tiny.build_tokenizer(), np.ones(shape), schema.Vocabulary(), 8, 0)
