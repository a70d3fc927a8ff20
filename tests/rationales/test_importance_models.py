"""The scorers that ask a causal language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import tinyrun
import torch
from watching import Counting

from cirf import recipe
from cirf.errors import CirfError
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.prompt import prompt_text, settle_template
from cirf.rationales.importance import Reasoned, Setting, Word, get, word_spans
from cirf.rationales.importance.answer_grad import AnswerGrad
from cirf.rationales.importance.function_words import FUNCTION_WORDS
from cirf.rationales.importance.scorer import Scorer
from cirf.rationales.importance.surprisal import Surprisal

TINY = tinyrun.builders()
KINDS = ("llama", "gpt2", "gemma2")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = TINY.build_tokenizer()
    settle_template(made)
    return made


@pytest.fixture(scope="module")
def texts(tokenizer: Any) -> list[Reasoned]:
    solved = [
        ("Anna has 3 apples, buys 4.", "So 3 + 4 = 7.\nIt is 7 apples 🙂 in all.", "7"),
        ("Is the coin heads up?", "no", "no"),
        ("What is 12 plus 7?", "  12 and 7 are 19.  中文 The end. ", "19 or so"),
        ("And this?", "", "5"),
    ]
    return [Reasoned(question, text, answer, prompt_text(tokenizer, question)) for question, text, answer in solved]


def alike(one: Sequence[list[Word]], other: Sequence[list[Word]]) -> None:
    for row, same in zip(one, other, strict=True):
        assert [word[:2] for word in row] == [word[:2] for word in same]
        assert [word.importance for word in row] == pytest.approx([word.importance for word in same], abs=1e-5, rel=1e-4)


def by_hand(tokenizer: Any, text: Reasoned, ending: str = "") -> tuple[torch.Tensor, int, list[tuple[int, int]]]:
    """Ids [1 x s], how many of them the prompt has, and where the others stand."""
    prompt = tokenizer(text.prompt, add_special_tokens=False).input_ids
    encoded = tokenizer(text.rationale + ending, add_special_tokens=False, return_offsets_mapping=True)
    return torch.tensor([prompt + encoded.input_ids]), len(prompt), encoded.offset_mapping


@pytest.mark.parametrize("kind", KINDS)
def test_surprisal_is_the_mean_loss_of_a_words_tokens(kind: str, tokenizer: Any, texts: list[Reasoned]) -> None:
    model = TINY.build_model(kind)
    found = Surprisal(model, tokenizer).score(texts)
    for text, words in zip(texts, found, strict=True):
        assert [word[:2] for word in words] == word_spans(text.rationale)
        if not words:
            continue
        ids, asked, offsets = by_hand(tokenizer, text)
        with torch.no_grad():
            likelihoods = model(ids).logits[0].float().log_softmax(-1)
        for word in words:
            inside = [place for place, (start, end) in enumerate(offsets) if start < word.end and end > word.start]
            told = [-likelihoods[asked + place - 1, ids[0, asked + place]].item() for place in inside]
            assert word.importance == pytest.approx(fmean(told), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_answer_grad_is_the_change_of_the_answers_loss_with_a_words_embeddings(
    kind: str, tokenizer: Any, texts: list[Reasoned]
) -> None:
    model = TINY.build_model(kind)
    found = AnswerGrad(model, tokenizer, lead="\n#### ").score(texts)
    for text, words in zip(texts, found, strict=True):
        if not words:
            continue
        ids, asked, offsets = by_hand(tokenizer, text, f"\n#### {text.answer}")
        begin = asked + next(p for p, (_, end) in enumerate(offsets) if end > len(text.rationale) + 6)
        change = _changes(model, ids, begin)
        for word in words:
            inside = [place for place, (start, end) in enumerate(offsets) if start < word.end and end > word.start]
            assert word.importance == pytest.approx(sum(abs(change[asked + place]) for place in inside), rel=1e-3, abs=1e-5)


def _changes(model: Any, ids: torch.Tensor, begin: int) -> list[float]:
    """How the answer's mean loss changes as each token's embedding grows: the derivative by a factor before it, at 1."""
    factors = torch.ones(ids.shape[1], requires_grad=True)
    hook = model.get_input_embeddings().register_forward_hook(lambda module, args, output: output * factors[None, :, None])
    logits = model(ids).logits[0, begin - 1 : -1]
    hook.remove()
    (found,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, ids[0, begin:]), factors)
    return found.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [Surprisal, AnswerGrad])
def test_batches_and_neighbours_change_nothing(
    kind: str, make: Callable[..., Scorer], tokenizer: Any, texts: list[Reasoned]
) -> None:
    model = TINY.build_model(kind)
    together = make(model, tokenizer).score(texts)
    alike(together, make(model, tokenizer, batch_tokens=1).score(texts))
    alike(together[::-1], make(model, tokenizer).score(texts[::-1]))
    assert together == make(model, tokenizer).score(texts)


def test_weights_get_no_gradient_and_the_model_stays_as_it_was(tokenizer: Any, texts: list[Reasoned]) -> None:
    for frozen in (True, False):
        model = TINY.build_model("llama").requires_grad_(not frozen)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():  # a caller that computes no gradients itself
            found = AnswerGrad(model, tokenizer).score(texts)
        assert any(word.importance > 0 for word in found[0])
        assert all(parameter.grad is None and parameter.requires_grad is not frozen for parameter in model.parameters())
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert not model.get_input_embeddings()._forward_hooks


def test_the_answer_is_read_and_the_lead_is_not_part_of_it(tokenizer: Any, texts: list[Reasoned]) -> None:
    model = TINY.build_model("llama")
    other = [Reasoned(text.question, text.rationale, "12", text.prompt) for text in texts]
    assert AnswerGrad(model, tokenizer).score(texts[:1]) != AnswerGrad(model, tokenizer).score(other[:1])
    assert Surprisal(model, tokenizer).score(texts) == Surprisal(model, tokenizer).score(other)
    assert AnswerGrad(model, tokenizer, lead="\n").score(texts[:1]) != AnswerGrad(model, tokenizer).score(texts[:1])


@pytest.mark.parametrize("make", [Surprisal, AnswerGrad])
def test_mistakes_are_one_sentence(make: Callable[..., Scorer], tokenizer: Any, texts: list[Reasoned]) -> None:
    model = TINY.build_model("llama")
    scorer = make(model, tokenizer)
    with pytest.raises(CirfError, match="'so it is' has an empty prompt"):
        scorer.score([Reasoned("q", "so it is", "1")])
    long = Reasoned("q", "very " * 300, "1", texts[0].prompt)
    with pytest.raises(CirfError, match=r"has \d+ tokens with its prompt, but the model that scores it takes 256"):
        scorer.score([long])
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(float("nan"))
    with pytest.raises(CirfError, match="is not finite"):
        scorer.score(texts[:1])
    if make is AnswerGrad:
        with pytest.raises(CirfError, match="has an empty answer"):
            scorer.score([Reasoned("q", "so it is", " ", texts[0].prompt)])


def test_progress_counts_rationales(tokenizer: Any, texts: list[Reasoned]) -> None:
    counting = Counting()
    Surprisal(TINY.build_model("llama"), tokenizer).score(texts, counting)
    assert counting.units == {"importance": 3}  # one has no words


def test_models_are_loaded_by_name(tmp_path: Path, tokenizer: Any, texts: list[Reasoned]) -> None:
    folder, other = tinyrun.write_backbone(tmp_path / "one"), tinyrun.write_backbone(tmp_path / "other", seed=5)
    fitting = recipe.Backbone(model=str(folder), dtype="float32", device="cpu", architecture=recipe.Architecture(layers=2))
    own = get("surprisal").make(Setting(fitting)).score(texts)
    assert own == get("surprisal").make(Setting(fitting, source=folder)).score(texts)
    unlike = fitting.model_copy(update={"architecture": recipe.Architecture(layers=3), "revision": "gone"})
    assert own != get("surprisal").make(Setting(unlike, source=other)).score(
        texts
    )  # what is not the backbone need not be like it
    with pytest.raises(CirfError, match=r"backbone\.architecture\.layers"):
        get("answer_grad").make(Setting(unlike))
    lead = get("answer_grad").make(Setting(fitting, lead=" = ")).score(texts)
    assert lead != get("answer_grad").make(Setting(fitting)).score(texts)


SOLVED = [
    (
        "A box holds 6 rows of 8 eggs. 5 eggs are broken. How many are whole?",
        "There are 6 * 8 = 48 eggs in the box.\nOf these, 48 - 5 = 43 are whole.",
        "43",
    ),
    (
        "Eva reads 15 pages a day for 4 days and has 20 pages left. How long is the book?",
        "In 4 days she reads 15 * 4 = 60 pages.\nSo the book has 60 + 20 = 80 pages.",
        "80",
    ),
    (
        "A ticket costs $12 and a drink $3. What do 3 people pay for both?",
        "One person pays 12 + 3 = $15 for it.\nSo all of them pay 15 * 3 = $45.",
        "45",
    ),
    (
        "Tom has 90 stamps and gives a third of them to Ann. How many has he then?",
        "A third of the stamps is 90 / 3 = 30.\nThat is why he has 90 - 30 = 60 of them.",
        "60",
    ),
]


@pytest.mark.real
def test_a_pretrained_models_answer_hangs_on_numbers_more_than_on_function_words(bundled: Callable[[str], Path]) -> None:
    folder, section = bundled("smollm2-135m-instruct"), recipe.Backbone(dtype="float32", device="cpu")
    model, tokenizer = load_model(folder, section), load_tokenizer(folder, section)
    texts = [Reasoned(question, text, answer, prompt_text(tokenizer, question)) for question, text, answer in SOLVED]

    def means(scorer: Scorer) -> tuple[float, float]:
        """Mean ranks, from 0 to 1 for the most important, of the words with digits and of the function words."""
        ranks: tuple[list[float], list[float]] = ([], [])
        for text, words in zip(texts, scorer.score(texts), strict=True):
            order = sorted(words, key=lambda word: word.importance)
            for place, word in enumerate(order):
                said = text.rationale[word.start : word.end]
                if any(sign.isdigit() for sign in said):
                    ranks[0].append(place / (len(words) - 1))
                elif said.strip(".,").casefold() in FUNCTION_WORDS:
                    ranks[1].append(place / (len(words) - 1))
        return fmean(ranks[0]), fmean(ranks[1])

    numbers, function = means(AnswerGrad(model, tokenizer))
    assert numbers > 0.5 > function
    numbers, function = means(Surprisal(model, tokenizer))
    assert numbers < 0.5 < function  # a number that follows from the others is expected
