"""Importance by a token classifier: any of the kinds that LLMLingua-2 comes as, on texts of any length."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import tinyrun
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from watching import Counting

from cirf.errors import CirfError
from cirf.methods.token_skip.llmlingua2 import LlmLingua2, keep_label, load_classifier
from cirf.methods.token_skip.scorers import Setting, get
from cirf.methods.token_skip.shorten import Reasoned, word_spans
from cirf.recipe import schema

SECTION = schema.Backbone(dtype="float32", device="cpu")
LENGTH = tinyrun.POSITIONS


@pytest.fixture(scope="module", params=["xlm-roberta", "bert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinyrun.write_classifier(tmp_path_factory.mktemp("classifier") / request.param, request.param)


@pytest.fixture(scope="module")
def scorer(folder: Path) -> LlmLingua2:
    made = get("llmlingua2").make(Setting(SECTION, source=folder))
    assert isinstance(made, LlmLingua2)
    return made


def texts_of(*rationales: str) -> list[Reasoned]:
    return [Reasoned("q", rationale, "1") for rationale in rationales]


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
    alone = get("llmlingua2").make(Setting(SECTION, source=folder, batch_tokens=1))
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
@settings(max_examples=40)
def test_any_text_is_weighed(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    for kind in ("xlm-roberta", "bert"):
        if kind not in _MADE:
            folder = tinyrun.write_classifier(tmp_path_factory.mktemp("any") / kind, kind)
            _MADE[kind] = get("llmlingua2").make(Setting(SECTION, source=folder))
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
    ours, other = (get("llmlingua2").make(Setting(SECTION, source=where)).score(texts)[0] for where in (folder, tmp_path))
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
    with pytest.raises(CirfError, match=r"its files lack the weights classifier\.weight; bring the whole model"):
        load_classifier(tmp_path / "model", SECTION)


def test_the_published_classifier_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(source: str | Path, section: schema.Backbone) -> Any:
        asked.append((source, section.revision, section.trust_remote_code))
        raise CirfError("asked for")

    monkeypatch.setattr("cirf.methods.token_skip.llmlingua2.load_classifier", load)
    section = SECTION.model_copy(update={"revision": "backbone's", "trust_remote_code": True})
    with pytest.raises(CirfError, match="asked for"):
        get("llmlingua2").make(Setting(section))
    assert asked == [("microsoft/llmlingua-2-xlm-roberta-large-meetingbank", None, False)]
