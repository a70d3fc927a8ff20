"""Stepwise internalisation: what is deleted when, and what training makes of it."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.lm.prompt import encode, end_token, prompt_text
from cirf.lm.training import trainer
from cirf.lm.training.batches import Feature, LengthSampler, Row, collate, tokenise, tokens_before
from cirf.lm.training.finetune import finetune
from cirf.lm.training.history import History
from cirf.lm.training.loss import IGNORED
from cirf.lm.training.objective import CurriculumRow
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.training.trainer import UpdateSampler, answer_places
from cirf.methods.curricula import RemovalCurriculum
from cirf.methods.icot_si import InternalisationSettings
from cirf.methods.prose.cot import ANSWER_MARK
from cirf.recipe import schema

LINES = "48/2 = 24 in May.\n48+24 = 72 in all.\n"


def row(tokenizer: Any, rationale: str = LINES, answer: str = "72", question: str = "How many clips?") -> Row:
    return Row(prompt_text(tokenizer, question), f"{rationale}#### {answer}", len(answer))


def lessons(tokenizer: Any, rows: list[Row]) -> list[CurriculumRow]:
    features, dropped = tokenise(rows, tokenizer, 10**6)
    assert not dropped
    return [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]


def removal(
    tokenizer: Any, rows: list[Row], epochs: float = 10, updates: int = 8, held_out: Any = (), **keys: Any
) -> RemovalCurriculum:
    settings = InternalisationSettings(**keys)
    made = lessons(tokenizer, rows), lessons(tokenizer, list(held_out))
    return RemovalCurriculum(*made, tokenizer, ANSWER_MARK, settings, epochs, updates, seed=3)


def made_up(lengths: list[int]) -> tuple[list[CurriculumRow], Any]:
    """Lessons whose rationales have so many tokens, one a letter, and a tokenizer of letters."""

    class Letters:
        is_fast = False

        def __call__(self, text: str, **more: Any) -> Any:
            return type("Encoded", (), {"input_ids": list(map(ord, text))})

    rows = [Row("ask", "x" * length + "#### 7", 1) for length in lengths]
    ids = [tuple(map(ord, row.prompt + row.target + "$")) for row in rows]
    features = [Feature(one, 3, len(one) - 2) for one in ids]
    return [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)], Letters()


@pytest.mark.parametrize("side", ["left", "right"])
def test_of_a_row_the_first_or_last_tokens_of_its_rationale_go_and_nothing_else(tokenizer: Any, side: str) -> None:
    made = removal(tokenizer, [row(tokenizer)], epochs=100, updates=1, rate=1, jump=1, smoothing=None, side=side)
    whole, asked = made.rows[0], encode(tokenizer, row(tokenizer).prompt)
    reasoning = encode(tokenizer, LINES)
    answer = [*encode(tokenizer, "#### 72"), end_token(tokenizer)]
    assert list(whole.ids) == asked + reasoning + answer  # the cut falls between two tokens
    assert made.lengths == [len(reasoning)]
    for k in range(len(reasoning) + 3):
        left = reasoning[k:] if side == "left" else reasoning[: max(0, len(reasoning) - k)]
        found = made.feature(0, k)
        assert list(found.ids) == asked + left + answer
        assert found.start == len(asked) and found.skipped is None
        assert answer_places([found]).tolist() == [False] * (len(left) + len(answer) - 3) + [True] * 3  # 7, 2, end
    assert list(made.feature(0, len(reasoning)).ids) == asked + answer


def test_the_answer_alone_is_learned_where_that_is_asked_for(tokenizer: Any) -> None:
    made = removal(tokenizer, [row(tokenizer)], updates=1, rate=4, jump=4, smoothing=None, targets="answer")
    answer = [*encode(tokenizer, "#### 72"), end_token(tokenizer)]
    for update in range(10):
        feature = made.feature(0, update)
        labels = collate([feature], 0)["labels"][0]
        assert labels[labels != IGNORED].tolist() == answer
        assert (labels != IGNORED).nonzero().flatten().tolist() == list(range(len(feature.ids) - len(answer), len(feature.ids)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_kept_positions_are_those_of_the_whole_row(tokenizer: Any, side: str) -> None:
    made = removal(tokenizer, [row(tokenizer)], updates=1, rate=5, jump=5, smoothing=None, side=side, keep_position=True)
    whole, other = made.rows[0], Feature((1, 2, 3), 1)
    assert "position_ids" not in collate([made.feature(0, 0), other], 0)
    for update in range(1, 9):
        cut = made.feature(0, update)
        batch = collate([cut, other], 0)
        places = batch["position_ids"][0][: len(cut.ids)].tolist()
        assert [whole.ids[place] for place in places] == list(cut.ids)
        assert places == sorted(set(places)) and places[-1] == len(whole.ids) - 1
        assert batch["position_ids"][1][:3].tolist() == [0, 1, 2]


def test_offsets_are_geometric_seeded_and_bounded() -> None:
    train, tokenizer = made_up([300] * 40)

    def offsets(seed: int) -> list[int]:
        settings = InternalisationSettings(rate=1e-6, jump=1, partial=True)
        made = RemovalCurriculum(train, [], tokenizer, ANSWER_MARK, settings, 10, 1000, seed)
        return [len(made.rows[i].ids) - len(made.feature(i, update).ids) for update in range(500) for i in range(40)]

    drawn = offsets(1)
    assert drawn == offsets(1) != offsets(2)
    counts = collections.Counter(drawn)
    share = counts[0] / len(drawn)  # of 20,000: standard error 0.001
    assert abs(share - (1 - math.exp(-4))) < 0.004 and counts[0] > counts[1] > counts[2]
    wide = InternalisationSettings(rate=1e-6, jump=1, smoothing=0.005, partial=True)
    made = RemovalCurriculum(train, [], tokenizer, ANSWER_MARK, wide, 10, 1000, 1)
    far = [len(made.rows[i].ids) - len(made.feature(i, update).ids) for update in range(20) for i in range(40)]
    assert max(far) == 100 and sum(offset == 100 for offset in far) / len(far) == pytest.approx(math.exp(-0.5), abs=0.07)


@given(
    lengths=st.lists(st.integers(0, 80), min_size=1, max_size=12),
    epochs=st.sampled_from([1.0, 2.0, 2.5, 7.0, 30.0]),
    updates=st.integers(3, 40),
    done_by=st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    jump=st.none() | st.integers(1, 30),
)
def test_by_itself_the_schedule_ends_when_it_is_to_and_never_goes_back(
    lengths: list[int], epochs: float, updates: int, done_by: float, jump: int | None
) -> None:
    train, tokenizer = made_up(lengths)
    settings = InternalisationSettings(done_by=done_by, jump=jump)
    made = RemovalCurriculum(train, train, tokenizer, ANSWER_MARK, settings, epochs, updates, 1)
    total = math.ceil(epochs * updates - 1e-9)
    gone = [made.gone(update) for update in range(total)]
    assert gone == sorted(gone) and (gone[0] == 0 or made.longest == 0)
    due = min(math.ceil(done_by * epochs * updates - 1e-9), total - 1)
    assert made.share(due) == 1.0 == made.final_share
    assert [feature.ids for feature in made.validation] == [tuple(map(ord, "ask#### 7$"))] * len(lengths)
    assert "note" not in made.summary() and made.summary()["removed"][-1]["share"] == 1.0
    shares = [entry["share"] for entry in made.summary()["removed"]]
    assert shares == sorted(shares) and made.summary()["removed"][0]["update"] == 0


def test_rates_jumps_and_pretraining_are_kept_to() -> None:
    train, tokenizer = made_up([30] * 19 + [70])
    settings = InternalisationSettings(rate=8, jump=2, pretrain=1, partial=True)
    made = RemovalCurriculum(train, [], tokenizer, ANSWER_MARK, settings, 10, 4, 1)
    assert made.longest == 30  # the 95th percentile of lengths
    assert [made.gone(update) for update in range(12)] == [0, 0, 0, 0, 0, 2, 4, 6, 8, 10, 12, 14]
    assert made.gone(4 + 15) >= 70 and made.gone(4 + 14) == 28  # past the 95th percentile all goes, of the longest rationale too
    assert [update for update in range(40) if made.fresh(update)] == list(range(5, 20))
    assert len(made.feature(0, 3).ids) == len(made.rows[0].ids)  # no offset before it begins
    never = RemovalCurriculum(train, [], tokenizer, ANSWER_MARK, settings.model_copy(update={"fresh_optimizer": False}), 10, 4, 1)
    assert not any(map(never.fresh, range(40)))


def test_a_rationale_longer_than_any_in_training_is_gone_when_validated() -> None:
    train, tokenizer = made_up([3, 4])
    longer, _ = made_up([5000])
    made = RemovalCurriculum(train, longer, tokenizer, ANSWER_MARK, InternalisationSettings(), 10, 4, 1)
    assert [len(feature.ids) for feature in made.validation] == [len("ask#### 7$")]


def test_an_incomplete_removal_is_reported() -> None:
    train, tokenizer = made_up([100] * 5)
    settings = InternalisationSettings(rate=8, jump=8, partial=True)
    made = RemovalCurriculum(train, train, tokenizer, ANSWER_MARK, settings, 10, 4, 1)
    assert made.final_share == pytest.approx(0.72)  # 72 of 100 in the last of ten epochs
    assert made.summary()["note"] == "only 72% of the rationales' tokens were gone when training ended"
    assert {len(feature.ids) for feature in made.validation} == {len("ask#### 7$") + 28}


def test_a_schedule_without_time_says_so() -> None:
    train, tokenizer = made_up([9])
    for keys, epochs, updates in (({"pretrain": 6}, 10, 4), ({}, 1, 1)):
        with pytest.raises(CirfError, match="none is left in which rationales could go"):
            RemovalCurriculum(train, [], tokenizer, ANSWER_MARK, InternalisationSettings(**keys), epochs, updates, 1)


def test_a_token_that_holds_the_blank_before_the_answer_is_the_answers(tokenizer: Any) -> None:
    text = "It is yes\n#### yes"
    tokens = tokenizer.convert_ids_to_tokens(encode(tokenizer, text))
    assert tokens[-1] == "Ġyes"  # the blank and the answer are one token
    assert tokens_before(tokenizer, text, len(text) - 3) == len(tokens) - 1
    assert tokens_before(tokenizer, text, text.rindex("####")) == len(encode(tokenizer, "It is yes\n"))
    assert tokens_before(tokenizer, text, 0) == 0 and tokens_before(tokenizer, text, len(text)) == len(tokens)


@pytest.mark.parametrize("blank", [True, False])
@pytest.mark.parametrize(("processes", "rows"), [(1, 21), (2, 21), (2, 20), (3, 17), (4, 3)])
def test_an_update_has_the_same_rows_on_any_number_of_processes(processes: int, rows: int, blank: bool) -> None:
    batch, passes = 2, 4
    order = LengthSampler(list(range(rows)), batch, 5)
    updates = UpdateSampler(order, batch, passes, processes, numbered=True, blank=blank)
    an_epoch = math.ceil(rows / (batch * passes))
    for epoch in (0, 1):
        updates.set_epoch(epoch)
        whole = list(order)
        found: dict[int, list[int]] = {update: [] for update in range(an_epoch)}
        sampler = torch.utils.data.BatchSampler(updates, batch, drop_last=False)
        shares = [BatchSamplerShard(sampler, processes, process) if processes > 1 else sampler for process in range(processes)]
        for mine in map(list, shares):
            assert len(mine) == math.ceil(len(updates) / batch / processes)
            for place, one in enumerate(mine):
                update = place // math.ceil(passes / processes)
                assert {number for _, number in one} == {epoch * an_epoch + update}
                found[update] += [row for row, _ in one]
        for update, made in found.items():
            wanted = whole[update * batch * passes : (update + 1) * batch * passes]
            assert set(wanted) <= set(made) and (not blank or sorted(row for row in made if row >= 0) == sorted(wanted))


# Within a training


def section(**keys: Any) -> schema.Finetune:
    base = {
        "adaptation": "full",
        "epochs": 4,
        "batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 3e-3,
        "warmup_steps": 2,
    }
    return schema.Finetune.model_validate(base | {"bf16": False} | keys)


def rows_of(tokenizer: Any, count: int = 8) -> list[Row]:
    return [
        row(tokenizer, f"{i} plus {i} is {2 * i}.\n" * (1 + i % 3), str(2 * i), f"What is {i} plus {i}?") for i in range(count)
    ]


def train(tiny: Any, tokenizer: Any, folder: Path, settings: InternalisationSettings, **keys: Any) -> tuple[Any, History]:
    how, rows = section(**keys), rows_of(tokenizer)

    def teach(lessons: list[CurriculumRow], held_out: list[CurriculumRow], updates: int) -> RemovalCurriculum:
        return RemovalCurriculum(lessons, held_out, tokenizer, ANSWER_MARK, settings, how.epochs, updates, 1)

    model, history, _ = finetune(
        tiny.build_model(), tokenizer, rows, rows[:3], TrainingSpec(how, "icot_si", [], folder, 1, teach=teach)
    )
    return model, history


def test_moments_are_forgotten_when_more_goes_and_at_no_other_update(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: dict[int, set[int]] = {}
    curricula: list[RemovalCurriculum] = []
    begin, end = trainer.TrainingControl.on_step_begin, trainer.TrainingControl.on_step_end

    def steps(optimizer: Any) -> set[int]:
        state = getattr(optimizer, "optimizer", optimizer).state
        return {int(moment["step"]) for moment in state.values()}

    def on_step_begin(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        begin(self, args, state, control, **more)
        curricula.append(self._curriculum)
        moments[state.global_step] = steps(more["optimizer"])

    ages: dict[int, set[int]] = {}

    def on_step_end(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        end(self, args, state, control, **more)
        ages[state.global_step - 1] = steps(more["optimizer"])

    monkeypatch.setattr(trainer.TrainingControl, "on_step_begin", on_step_begin)
    monkeypatch.setattr(trainer.TrainingControl, "on_step_end", on_step_end)
    _, history = train(tiny, tokenizer, tmp_path, InternalisationSettings(jump=9))
    removed = [entry["update"] for entry in history.curriculum["removed"]] if history.curriculum else []
    fresh = {update for update in range(history.updates) if curricula[0].fresh(update)}
    assert fresh == set(removed) - {0} and 2 <= len(fresh) < history.updates - 2
    age = 0
    for update in range(history.updates):
        age = 1 if update in fresh else age + 1
        assert moments[update] == (set() if update in fresh or update == 0 else {age - 1}), update
        assert ages[update] == {age}, update


def test_a_history_shows_what_was_gone_and_validation_is_in_the_form_of_answering(
    tiny: Any, tokenizer: Any, tmp_path: Path
) -> None:
    model, history = train(tiny, tokenizer, tmp_path / "a", InternalisationSettings())
    summary = history.to_dict()["curriculum"]
    shares = [entry["share"] for entry in summary["removed"]]
    assert summary["kind"] == "removal" and shares[0] == 0.0 and shares[-1] == 1.0 and shares == sorted(shares)
    assert [entry["update"] for entry in history.validation] == [0, 2, 4, 6, 8]
    # The last losses are those of the bare answer line after the question, by the model that training ends with.
    bare = [Row(one.prompt, one.target[one.target.rindex("####") :], one.answer) for one in rows_of(tokenizer)[:3]]
    features, _ = tokenise(bare, tokenizer, 10**6)
    losses, places = [], []
    for feature in features:
        with torch.no_grad():
            logits = model(torch.tensor([feature.ids])).logits[0, feature.start - 1 : -1]
        wanted = torch.tensor(feature.ids[feature.start :])
        losses.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        places.append(torch.arange(feature.start, len(feature.ids)) >= (feature.answer or 0))
    last = history.validation[-1]
    assert last["loss"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-4)
    assert last["answer_loss"] == pytest.approx(float(torch.cat(losses)[torch.cat(places)].mean()), rel=1e-4)
    assert last["answer_loss"] != last["loss"]


@pytest.mark.parametrize(
    "keys", [pytest.param({"rate": 1e-6, "partial": True}, marks=pytest.mark.slow), {"rate": 50, "pretrain": 4, "partial": True}]
)
def test_without_any_removal_it_is_plain_training(tiny: Any, tokenizer: Any, tmp_path: Path, keys: dict[str, Any]) -> None:
    model, history = train(tiny, tokenizer, tmp_path / "a", InternalisationSettings(smoothing=None, **keys))
    rows = rows_of(tokenizer)
    plain, losses, _ = finetune(
        tiny.build_model(), tokenizer, rows, rows[:3], TrainingSpec(section(), "sft_cot", [], tmp_path / "b", 1)
    )
    assert history.losses == losses.losses and history.validation == losses.validation
    assert all(torch.equal(weight, plain.state_dict()[name]) for name, weight in model.state_dict().items())
    _, other = train(tiny, tokenizer, tmp_path / "c", InternalisationSettings())
    assert other.losses != losses.losses
