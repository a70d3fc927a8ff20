"""Words of a text, what tokens say of them, and texts cut into chunks."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.methods.token_skip.llmlingua2 import batches, chunks
from cirf.methods.token_skip.shorten import Word, per_word, weighed, word_spans

TOKENIZER = tinyrun.builders().build_tokenizer()


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def test_a_word_is_what_stands_between_blanks() -> None:
    assert words("Half of 48/2=24 clips,\nso\t12.") == ["Half", "of", "48/2=24", "clips,", "so", "12."]
    assert words("48 / 2 = $24") == ["48", "/", "2", "=", "$24"]
    assert words("\n\n  one\r\ntwo\u00a0three\u2003four ") == ["one", "two", "three", "four"]
    assert words("she’s co-op (e.g., 3.5%) 🙂🏽 naïve") == ["she’s", "co-op", "(e.g.,", "3.5%)", "🙂🏽", "naïve"]
    assert words("") == words(" \n ") == []


def test_scripts_without_blanks_have_a_word_a_sign() -> None:
    assert words("三加四，等于七。") == ["三", "加", "四，", "等", "于", "七。"]
    assert words("他有「3个」(48/2=24) abc中") == ["他", "有", "「3", "个」", "(48/2=24)", "abc", "中"]
    assert words("りんごを２つ") == ["り", "ん", "ご", "を", "２", "つ"]
    assert words("사과 세 개") == ["사과", "세", "개"]


@given(st.text(max_size=80))
def test_words_are_all_of_a_text_but_its_blanks(text: str) -> None:
    spans = word_spans(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())


def test_tokens_are_brought_together_by_word() -> None:
    text = "So 22 it is"
    offsets = [(0, 2), (2, 3), (3, 4), (4, 5), (5, 11)]  # the last holds two words, the second blanks alone
    values = [1.0, 100.0, 2.0, 4.0, 5.0]
    assert per_word(values, offsets, word_spans(text)) == [1.0, 3.0, 5.0, 5.0]
    assert per_word([], [], word_spans(text)) == [0.0] * 4  # no token holds them
    assert per_word([7.0, 1.0, 2.0], [(0, 0), (0, 1), (0, 1)], [(0, 1)]) == [1.5]  # an empty one; a sign of two tokens


@given(st.text(max_size=60))
def test_every_word_has_the_tokens_that_hold_it(text: str) -> None:
    encoded = TOKENIZER(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = word_spans(text)
    places = [float(place) for place in range(len(encoded.input_ids))]
    found = per_word(places, encoded.offset_mapping, spans)
    for (start, end), value in zip(spans, found, strict=True):
        held = [place for place, (a, b) in enumerate(encoded.offset_mapping) if a < end and b > start]
        assert value == pytest.approx(sum(held) / len(held))


def test_what_cannot_be_ordered_is_refused() -> None:
    assert weighed("a b", [(0, 1), (2, 3)], [1.0, 0.5]) == [Word(0, 1, 1.0), Word(2, 3, 0.5)]
    with pytest.raises(CirfError, match="importance of 'b' in 'a b' is not finite"):
        weighed("a b", [(0, 1), (2, 3)], [1.0, math.nan])


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_batches_hold_every_row_once_and_no_more_than_the_limit(lengths: list[int], limit: int) -> None:
    found = batches(lengths, limit)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or max(lengths[row] for row in batch) * len(batch) <= limit for batch in found)
    assert [lengths[row] for batch in found for row in batch] == sorted(lengths, reverse=True)


def pieces(text: str, limit: int) -> list[str]:
    """The chunks of a text of which every sign is a piece, as texts."""
    offsets = [(place, place + 1) for place in range(len(text))]
    return [text[first:last] for first, last in chunks(text, offsets, word_spans(text), limit)]


def test_chunks_end_with_sentences_lines_or_words_in_this_order() -> None:
    assert pieces("One two. Three 3.5 four", 20) == ["One two.", " Three 3.5 four"]
    assert pieces("One two\nThree four. Five", 12) == ["One two\n", "Three four.", " Five"]
    assert pieces("One (two.) Three four", 15) == ["One (two.)", " Three four"]
    assert pieces("One two three", 9) == ["One two", " three"]
    assert pieces("abcdefgh ij", 3) == ["abc", "def", "gh", " ij"]
    assert pieces("一二。三四五", 4) == ["一二。", "三四五"]
    assert pieces("Short.", 510) == ["Short."]
    assert pieces("", 510) == []


@given(st.text(max_size=60) | st.lists(st.sampled_from(["ab", ".", "\n", " "]), max_size=60).map("".join), st.integers(1, 20))
def test_chunks_are_all_pieces_once_and_none_is_too_long(text: str, limit: int) -> None:
    encoded = TOKENIZER(text, add_special_tokens=False, return_offsets_mapping=True)
    found = chunks(text, encoded.offset_mapping, word_spans(text), limit)
    assert [place for first, last in found for place in range(first, last)] == list(range(len(encoded.input_ids)))
    assert all(0 < last - first <= limit for first, last in found)
