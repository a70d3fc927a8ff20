"""Embedding: each text once, in order, and a killed run ends with the bytes of an unbroken one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyrun
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row
from watching import Counting

from cirf.codebook import embedding
from cirf.codebook.embedding import WORDING, Embedder, embed_once, wording, wordings
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.recipe import schema

SECTION = schema.Embeddings(model="tiny", batch_size=4)


def embed(
    texts: list[str], section: schema.Embeddings, source: Path | str, device: str, work: Path, progress: Progress
) -> np.ndarray:
    """The vectors all at once."""
    return embedding.embed(texts, section, source, device, work, progress)[:]


def _texts(count: int) -> list[str]:
    random = np.random.default_rng(2)
    return [
        " ".join(random.choice(["add", "divide", "apples", "coins", "total", "each", "1", "2", "3"], size=random.integers(1, 9)))
        for _ in range(count)
    ]


def test_each_text_gets_its_own_vector_and_equal_texts_the_same(
    embedding_model: Path, tmp_path: Path, counting: Counting, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = ["add apples", "divide coins each", "add apples", "total 3"]
    found = embed(texts, SECTION, embedding_model, "cpu", tmp_path, counting)
    assert found.shape == (4, 16) and found.dtype == np.float32
    np.testing.assert_array_equal(found[0], found[2])
    assert counting.units == {"embedding": 3}, "a text that comes twice is embedded once"
    alone = np.concatenate([embed_once([text], SECTION, embedding_model, "cpu") for text in texts])
    np.testing.assert_allclose(found, alone, atol=1e-5)
    assert len({row.tobytes() for row in found}) == 3
    assert capfd.readouterr() == ("", ""), "no bars and no chatter"


def test_finished_chunks_are_not_embedded_again(
    embedding_model: Path, tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "CHUNK", 8)
    texts = list(dict.fromkeys(_texts(40)))[:30]
    whole = embed(texts, SECTION, embedding_model, "cpu", tmp_path / "whole", SILENT)
    embed(texts, SECTION, embedding_model, "cpu", tmp_path / "broken", SILENT)
    chunks = sorted((tmp_path / "broken").iterdir())
    assert len(chunks) == 4
    chunks[1].unlink()
    chunks[2].write_bytes(chunks[2].read_bytes()[:50])
    again = embed(texts, SECTION, embedding_model, "cpu", tmp_path / "broken", counting)
    assert again.tobytes() == whole.tobytes()
    assert (counting.before, counting.units) == ({"embedding": 14}, {"embedding": 16})
    everything = embed(texts, SECTION, "no such folder", "cpu", tmp_path / "broken", SILENT)
    assert everything.tobytes() == whole.tobytes(), "with every chunk there, the model is not even opened"


def test_chunks_of_other_texts_are_not_taken(embedding_model: Path, tmp_path: Path) -> None:
    embed(["add", "total"], SECTION, embedding_model, "cpu", tmp_path, SILENT)
    found = embed(["total", "add"], SECTION, embedding_model, "cpu", tmp_path, SILENT)
    np.testing.assert_allclose(found[1], Embedder(SECTION, embedding_model, "cpu")(["add"])[0], atol=1e-5)


def test_a_kill_in_the_middle_costs_nothing(
    embedding_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counting: Counting
) -> None:
    texts = list(dict.fromkeys(_texts(60)))[:40]
    code = (
        "import sys; sys.path[:0] = sys.argv[5:] + sys.argv[1:3]\n"
        "from pathlib import Path; from watching import KillAfter; from test_embedding import SECTION, _texts\n"
        "from cirf.codebook import embedding; embedding.CHUNK = 8; texts = list(dict.fromkeys(_texts(60)))[:40]\n"
        "embedding.embed(texts, SECTION, sys.argv[3], 'cpu', Path(sys.argv[4]), KillAfter(20))"
    )
    source = str(Path(embedding.__file__).parents[2])
    here = Path(__file__).parent
    killed = tinyrun.python("-c", code, source, here, embedding_model, tmp_path / "a", here.parent)
    assert killed.code == -signal.SIGKILL, killed.err
    monkeypatch.setattr(embedding, "CHUNK", 8)
    resumed = embed(texts, SECTION, embedding_model, "cpu", tmp_path / "a", counting)
    unbroken = embed(texts, SECTION, embedding_model, "cpu", tmp_path / "b", SILENT)
    assert resumed.tobytes() == unbroken.tobytes() and counting.before == {"embedding": 24}


def test_length_is_capped(embedding_model: Path) -> None:
    short = Embedder(schema.Embeddings(model="tiny", max_length=4), embedding_model, "cpu")
    found = short(["add apples pears coins", "add apples total total total"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="no segments"):
        embed([], SECTION, tmp_path, "cpu", tmp_path / "work", SILENT)
    with pytest.raises(CirfError, match="tiny: no sentence embedding model in"):
        embed(["add"], SECTION, tmp_path, "cpu", tmp_path / "work", SILENT)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CirfError, match="tiny: cannot load a model from"):
        embed(["add"], SECTION, tmp_path, "cpu", tmp_path / "work", SILENT)


@pytest.fixture
def hub(embedding_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub, out of whose reach we are: ``some/model`` at ``main`` and, another model, at the tag ``v1``."""
    from huggingface_hub import constants
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    repo = tmp_path / "hub" / "models--some--model"
    for revision, commit, mode in (("main", "a" * 40, "mean"), ("v1", "b" * 40, "cls")):
        words = Transformer(str(embedding_model))
        modules = [words, Pooling(words.get_embedding_dimension(), mode)]
        SentenceTransformer(modules=modules, device="cpu").save(str(repo / "snapshots" / commit), create_model_card=False)
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / revision).write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repo


def test_a_hub_id_is_loaded_at_its_revision(hub: Path, embedding_model: Path, tmp_path: Path) -> None:
    texts = ["add apples", "divide coins each"]
    found = {
        revision: embed(
            texts, schema.Embeddings(model="some/model", revision=revision), "some/model", "cpu", tmp_path / "w", SILENT
        )
        for revision in (None, "v1")
    }
    assert found[None].shape == (2, 16)
    np.testing.assert_allclose(found[None], embed_once(texts, SECTION, embedding_model, "cpu"), atol=1e-5)
    assert np.abs(found["v1"] - found[None]).max() > 0.01, "the revision is another model"


@pytest.mark.parametrize(
    ("model", "revision", "said"),
    [("some/other", None, "embeddings.model some/other: "), ("some/model", "v2", "embeddings.model some/model at v2: ")],
)
def test_a_hub_id_that_cannot_be_had_is_one_line(
    hub: Path, model: str, revision: str | None, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CirfError) as caught:
        Embedder(schema.Embeddings(model=model, revision=revision), model, "cpu")
    message = str(caught.value)
    assert message.startswith(said) and "\n" not in message
    assert "cannot be reached" in message and "name a folder" in message
    assert capfd.readouterr() == ("", "")


# What is embedded of a step: what is about the question goes where the recipe says so, and nothing else

CHOICES = ("bank", "department store", "New York")


def _section(**keys: str) -> schema.Embeddings:
    return schema.Embeddings.model_validate(keys)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("48/2 = 24 clips", "N/N = N clips"),
        ("$1,250.75 is 5% of 25,015.", "N is N of N."),
        ("€3 and £4, or 7.", "N and N, or N."),
        ("no number", "no number"),
    ],
)
def test_a_number_is_masked_whole(text: str, read: str) -> None:
    section = _section(numbers="mask")
    assert wording(text, section) == read == wording(read, section)


@each_row(
    ("text", "read"),
    [
        ("A. Bank: a bank is guarded.", "it: a it is guarded."),
        ("(B) department store - too open", "it - too open"),
        ("Option C is far away", "Option it is far away"),
        ("Therefore, the answer is B. department store.", "Therefore, the answer is it."),
        ("So C. New York, the city", "So it, the city"),
        ("A bankrupt man needs vitamin D", "A bankrupt man needs vitamin D"),
        ("A big bank", "A big it"),
        ("B's worth", "B's worth"),
        ("Option A is the answer.", "Option A is the answer."),
    ],
)
def test_a_choice_is_masked_by_letter_and_by_text(text: str, read: str) -> None:
    section = _section(choices="mask")
    assert wording(text, section, CHOICES) == read
    assert wording(text, section) == text, "a question without choices has none to mask"


def test_choices_may_be_empty_or_hold_signs() -> None:
    section = _section(choices="mask")
    assert wording("B. 3+4 (or so)", section, ("", "3+4 (or so)")) == "it"
    assert wording("a word", section, ("", "")) == "a word"
    assert wording("The bank is open", section, ("bank ",)) == "The it is open"
    assert wording("12.5 km are 12, not 5", section, ("12", "5")) == "12.5 km are it, not it"
    assert wording("Ann goes to Z.", section, [f"place {n}" for n in range(40)]) == "Ann goes to it"


CLOSED = "Zoe flips the coin: tails up."


@pytest.mark.parametrize(
    "closing",
    [
        "At the end of these steps, the coin is tails up.",
        "After considering all, it is tails up.\nFinal answer: no.",
        "Therefore, the answer is no.",
        "Since neither of them flipped it, heads up.",
        "Answer: yes",
    ],
)
def test_the_lines_that_close_a_rationale_are_not_read(closing: str) -> None:
    section = _section(closing="drop")
    steps = [f"Ann waits.\n{closing}", f"{CLOSED}\n{closing}"]
    assert wordings(steps, section) == [steps[0], CLOSED], "only a last step closes"
    assert wordings([closing], section) == [closing.split("\nFinal")[0]], "a step that is nothing else stays"


def test_a_last_step_that_goes_on_is_read_whole() -> None:
    steps = ["Flip.\nCurrent state: tails up.\nSince Bo waits, it stays.\nSo it costs $56."]
    assert wordings(steps, _section(closing="drop")) == steps


def test_first_words_are_read_of_every_step() -> None:
    steps = ["Wait,  is\nthat so, or not?", "Fine.", "Let me check B.\nTherefore, the answer is B."]
    section = _section(words=3, choices="mask", closing="drop")
    assert wordings(steps, section, ("no", "yes")) == ["Wait, is that", "Fine.", "Let me check"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.lists(st.text(max_size=8), max_size=4))
def test_kept_texts_are_as_they_are_and_changed_ones_hold_something_where_they_did(texts: list[str], choices: list[str]) -> None:
    assert wordings(texts, _section(), choices) == texts
    every: dict[str, Any] = dict(zip(WORDING, ("mask", "mask", "drop", 2), strict=True))
    read = wordings(texts, _section(**every), choices)
    assert [bool(text.strip()) for text in read] == [bool(text.strip()) for text in texts]
