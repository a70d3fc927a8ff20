"""The scorers that ask no model: rules and chance; and all scorers by name. Words of a text, what tokens say of them, and texts
cut into chunks. Importance by a token classifier: any of the kinds that LLMLingua-2 comes as, on texts of any length.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import tinyrun
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tables import each_row
from watching import Counting

from cirf.errors import CirfError
from cirf.lm.backbone import load_tokenizer
from cirf.methods.token_skip.llmlingua2 import LlmLingua2, chunks, keep_label, load_classifier
from cirf.methods.token_skip.scorers import RandomScorer, Rules, make_scorer
from cirf.methods.token_skip.shorten import Solution, Word, per_word, shorten, weighed, word_spans
from cirf.recipe import schema


def levels(text: str, answer: str = "", question: str = "") -> dict[str, int]:
    """The level of every word."""
    (words,) = Rules().score([Solution(question, text, answer)])
    return {text[word.start : word.end]: int(word.importance) for word in words}


def at(level: int, text: str, answer: str = "", question: str = "") -> list[str]:
    return [word for word, found in levels(text, answer, question).items() if found == level]


def test_levels_of_a_solution() -> None:
    text = "So Mark is 15 + 7 = 22 years old. In 5 years, that makes him older, not younger."
    assert levels(text, "27", "How old is Mark?") == {
        "So": 0, "Mark": 2, "is": 0, "15": 4, "+": 4, "7": 4, "=": 4, "22": 5, "years": 2, "old.": 1,
        "In": 0, "5": 3, "years,": 2, "that": 0, "makes": 1, "him": 0, "older,": 1, "not": 2, "younger.": 1,
    }  # fmt: skip


@each_row(
    ("text", "working"),
    [
        ("48/2=24 and 3 stay", ["48/2=24"]),
        ("Half: 48/2 clips", ["48/2"]),
        ("pays 12 x 2 or 2 × 3 or 6 times 7", ["12", "x", "2", "×", "3", "6", "times", "7"]),
        ("the x axis, co-op, and/or (so)", []),
        ("- 13 pens\n- 4 cups\nleaves 13 - 4", ["-", "13", "4"]),
        (r"\[ \frac{1}{2} \]", [r"\[", r"\frac{1}{2}", r"\]"]),
        ("( 3 + 4 ) is it", ["(", "3", "+", "4", ")"]),
        ("one - two", ["-", "two"]),
    ],
)
def test_what_calculates(text: str, working: list[str]) -> None:
    assert at(4, text) == working


def test_numbers_negations_units_names() -> None:
    assert at(3, "She has 3 pens, four cups, ½ pie, 20% and 1,200 more on 5th") == ["3", "four", "½", "20%", "1,200", "5th"]
    assert at(2, "She didn't, can’t, never will, nor without it") == ["didn't,", "can’t,", "never", "nor", "without"]
    assert at(2, "3 pens. 4 of them cost 5 dollars more") == ["pens.", "dollars"]
    assert at(2, "Bakers sell. Ann’s NASA cap. Caps cost Bob much. (C) no; D. yes") == ["NASA", "Bob", "(C)", "no;", "D."]
    assert at(2, "Ann's cap.", question="What has Ann?") == ["Ann's"]


def test_the_answer_and_results() -> None:
    assert at(5, "2 + 2 = 4. So 4 it is, Yes.", "4") == ["4.", "4"]
    assert at(5, "The coin is tails, so no.", "no") == ["no."]
    assert at(5, "A cat fits a box, so (A) is it: A.", "A") == ["A", "(A)", "A."]
    assert at(5, "It is the end of the line.", "the line") == ["line."]
    assert at(5, "Nothing.", "") == []


def test_rarer_words_and_those_said_more_often_weigh_more() -> None:
    texts = ["pens cost money", "pens cost time", "pens pens grow apples"]
    rows = Rules().score([Solution("", text, "") for text in texts])
    weights = [{text[word.start : word.end]: word.importance for word in row} for text, row in zip(texts, rows, strict=True)]
    assert weights[0]["money"] > weights[0]["cost"] > weights[0]["pens"]
    assert weights[2]["pens"] > weights[1]["pens"]


def test_function_words_go_first_and_equations_stay() -> None:
    text = "So she will buy 3 of the red pens at $2, and then it is 3 * 2 = $6.\nThis means that the pens cost her 6 dollars."
    (words,) = Rules().score([Solution("What do the pens cost?", text, "6")])

    def length(part: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", part))

    assert shorten(text, words, 0.5, length).text == "buy 3 pens $2, 3 * 2 = $6.\npens 6 dollars."
    assert shorten(text, words, 0.25, length).text == "3 * 2 = $6.\n6"


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=60), st.text(max_size=8)), max_size=4), st.integers(0, 3))
def test_any_text_is_weighed_and_alike_each_time(rows: list[tuple[str, str, str]], seed: int) -> None:
    texts = [Solution(*row) for row in rows]
    for scorer in (Rules(), RandomScorer(seed)):
        found = scorer.score(texts)
        assert [[word[:2] for word in row] for row in found] == [word_spans(text.rationale) for text in texts]
        assert found == scorer.score(texts)
        assert all(0 <= word.importance < 6 for row in found for word in row)


def test_chance_hangs_on_the_seed_and_the_row_alone() -> None:
    one, other = Solution("q", "a b c d e f", "1"), Solution("r", "a b c d e f", "1")
    both = RandomScorer(1).score([one, other])
    assert both == [*RandomScorer(1).score([one]), *RandomScorer(1).score([other])]
    assert both[0] != both[1] != RandomScorer(2).score([other])[0]


def test_scorers_are_made_by_name() -> None:
    text = Solution("q", "a b c", "1")
    assert make_scorer("random", schema.Backbone(), seed=3).score([text]) == RandomScorer(3).score([text])
    assert make_scorer("rules", schema.Backbone()).score([text]) == Rules().score([text])


TOKENIZER = tinyrun.builders().build_tokenizer()


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def test_a_word_is_what_is_between_blanks() -> None:
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


SECTION = schema.Backbone(dtype="float32", device="cpu")
LENGTH = tinyrun.POSITIONS


@pytest.fixture(scope="module", params=["xlm-roberta", "bert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyrun.write_classifier(tmp_path_factory.mktemp("classifier") / request.param, request.param)


@pytest.fixture(scope="module")
def scorer(folder: Path) -> LlmLingua2:
    made = make_scorer("llmlingua2", SECTION, folder)
    assert isinstance(made, LlmLingua2)
    return made


def texts_of(*rationales: str) -> list[Solution]:
    return [Solution("q", rationale, "1") for rationale in rationales]


def test_a_words_importance_is_the_mean_probability_of_its_pieces(folder: Path, scorer: LlmLingua2) -> None:
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "There are 7 + 9 = 16\nboxes, so 16."
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    with torch.no_grad():
        kept = model(encoded.input_ids).logits[0].softmax(-1)[1:-1, 1]
    places = encoded.offset_mapping[0, 1:-1].tolist()
    (words,) = scorer.score(texts_of(text))
    assert [word[:2] for word in words] == word_spans(text)
    for word in words:
        inside = [float(p) for p, (start, end) in zip(kept, places, strict=True) if start < word.end and end > word.start]
        assert inside and word.importance == pytest.approx(fmean(inside), abs=1e-5)
    spread = [word.importance for word in words]
    assert max(spread) - min(spread) > 0.1


def test_batches_change_nothing(folder: Path, scorer: LlmLingua2) -> None:
    texts = texts_of("There are 7 + 9 = 16 boxes.", "", "no", " ".join(["A sum of 3 + 4 is 7."] * 12), " \n")
    alone = LlmLingua2(load_classifier(folder, SECTION), load_tokenizer(folder, SECTION), batch_rows=1)
    for one, other in zip(scorer.score(texts), alone.score(texts), strict=True):
        assert [word[:2] for word in one] == [word[:2] for word in other]
        assert [word.importance for word in one] == pytest.approx([word.importance for word in other], abs=1e-5)


def test_long_texts_are_read_sentence_by_sentence(folder: Path, scorer: LlmLingua2) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    sentences = [f"There are {number} + {number} = {2 * number} pears in box {number}." for number in range(90, 98)]
    assert all(LENGTH / 2 + 1 < len(tokenizer(sentence).input_ids) <= LENGTH for sentence in sentences)  # so no two fit
    for blank in (" ", "\n"):
        counting = Counting()
        (words,) = scorer.score(texts_of(blank.join(sentences)), counting)
        assert counting.units == {"importance": len(sentences)}
        alone = [word.importance for found in scorer.score(texts_of(*sentences)) for word in found]
        assert [word.importance for word in words] == pytest.approx(alone, abs=1e-5)


@given(text=st.text(max_size=120) | st.lists(st.sampled_from(["pears ", "7", ". ", "\n", "中", "é"]), max_size=120).map("".join))
@settings(max_examples=20)
def test_any_text_is_weighed(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    for kind in ("xlm-roberta", "bert"):
        if kind not in _MADE:
            folder = tinyrun.write_classifier(tmp_path_factory.mktemp("any") / kind, kind)
            _MADE[kind] = make_scorer("llmlingua2", SECTION, folder)
        (words,) = _MADE[kind].score(texts_of(text))
        assert [word[:2] for word in words] == word_spans(text)
        assert all(0 <= word.importance <= 1 for word in words)


_MADE: dict[str, Any] = {}


def test_the_label_that_keeps(folder: Path, tmp_path: Path) -> None:
    from transformers import BertConfig

    assert keep_label(BertConfig(num_labels=2)) == 1
    assert keep_label(BertConfig(id2label={0: "Keep", 1: "Drop"})) == 0
    assert keep_label(BertConfig(id2label={0: "drop", 1: "other", 2: "preserve"})) == 2
    with pytest.raises(CirfError, match=r"none of its 3 labels \(LABEL_0, LABEL_1, LABEL_2\) says that a word is kept"):
        keep_label(BertConfig(num_labels=3))
    named = json.loads((folder / "config.json").read_text()) | {"id2label": {"0": "keep", "1": "drop"}}
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(named))
    texts = texts_of("There are 7 + 9 = 16 boxes.")
    ours, other = (make_scorer("llmlingua2", SECTION, where).score(texts)[0] for where in (folder, tmp_path))
    assert [word.importance for word in ours] == pytest.approx([1 - word.importance for word in other], abs=1e-6)


def test_other_models_are_refused(tmp_path: Path) -> None:
    backbone = tinyrun.write_backbone(tmp_path / "backbone")
    with pytest.raises(CirfError, match="holds a LlamaForCausalLM, not a token classifier; give"):
        load_classifier(backbone, SECTION)
    with pytest.raises(CirfError, match="no such folder"):
        load_classifier(tmp_path / "gone", SECTION)


def test_a_classifier_that_lacks_a_weight_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CirfError, match=r"its files lack the weights classifier\.weight; fetch the whole model again"):
        load_classifier(tmp_path / "model", SECTION)


def test_the_published_classifier_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(source: str | Path, section: schema.Backbone) -> Any:
        asked.append((source, section.revision, section.trust_remote_code))
        raise CirfError("asked for")

    monkeypatch.setattr("cirf.methods.token_skip.llmlingua2.load_classifier", load)
    section = SECTION.model_copy(update={"revision": "backbone's", "trust_remote_code": True})
    with pytest.raises(CirfError, match="asked for"):
        make_scorer("llmlingua2", section)
    assert asked == [("microsoft/llmlingua-2-xlm-roberta-large-meetingbank", None, False)]
