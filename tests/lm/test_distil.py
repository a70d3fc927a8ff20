"""Self-distillation: the distance between student and teacher, where gradients stop, and that a batch is its rows. Rows taught
twice: what teacher and student read, and where they meet, whatever the tokenizer makes of blanks and figures.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cirf.lm.prompt import encode, end_token, prompt_text
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.objective import CurriculumRow
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.loop import Projector, read_after
from cirf.methods.latent.loss import (
    Distillation,
    DistillationCurriculum,
    LatentObjective,
    RowLayout,
    answer_line,
    at,
    distance,
    lead,
    teach,
)

KINDS = ["llama", "qwen2", "gpt2"]
ROWS = [  # prompts of unlike lengths, answers of one to three tokens behind one or two of an anchor
    Feature((5, 9, 30, 41, 90, 91, 50, 20, 21), 7, 7, (None), (5, 3), Feature((5, 9, 30, 41, 60, 61, 62, 50, 20, 21), 4, 8)),
    Feature((7, 90, 91, 50, 22, 23, 24, 25), 4, 5, (None), (2, 3), Feature((7, 50, 22, 23, 24, 25), 1, 3)),
    Feature(
        (70, 71, 72, 73, 74, 75, 90, 91, 50, 26, 27),
        9,
        9,
        (None),
        (7, 3),
        Feature((70, 71, 72, 73, 74, 75, 65, 50, 26, 27), 6, 8),
    ),
]


def objective(gamma: float = 20.0, rho: float = 1.0) -> Distillation:
    return Distillation(Projector(32, 24, 1), gamma, rho)


def states(model: Any, rows: list[Feature], made: Distillation) -> tuple[torch.Tensor, torch.Tensor, Any, torch.Tensor]:
    """The student's and the teacher's states where they meet, the student's pass and the teacher's loss."""
    batch = made.collate(rows, 0)
    given = (batch["input_ids"], batch["tail_mask"], batch["labels"])
    logits, targets, read = read_after(model, made.think(model, batch), *given, states=True)
    student = SimpleNamespace(logits=logits, targets=targets)
    taught, theirs = teach(model, batch["teacher"], batch["taught"], batch["taught_column"])
    return torch.stack(at(read.hidden_states, batch["column"])), torch.stack(theirs), student, taught


@pytest.mark.parametrize("kind", KINDS)
def test_they_meet_where_each_predicts_the_answers_first_token(tiny: Any, kind: str) -> None:
    """The last layer's state is what the head makes the logits of that token of."""
    model = tiny.build_model(kind, tied=False)
    with torch.no_grad():
        ours, theirs, student, _ = states(model, ROWS, objective())
        assert ours.shape == theirs.shape == (3, 3, 32)  # two layers and the embeddings
        counts = [len(row.ids) - row.start for row in ROWS]
        places = [sum(counts[:row]) + ROWS[row].answer - ROWS[row].start for row in range(3)]  # type: ignore[operator]
        assert [int(student.targets[place]) for place in places] == [20, 23, 26]
        torch.testing.assert_close(model.get_output_embeddings()(ours[-1]), student.logits[places], atol=1e-4, rtol=1e-4)
        for row, feature in enumerate(ROWS):
            teacher = feature.teacher
            assert teacher is not None and teacher.answer is not None
            wanted = model(torch.tensor([teacher.ids])).logits[0, teacher.answer - 1]
            torch.testing.assert_close(model.get_output_embeddings()(theirs[-1, row]), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_alone_is_the_row_in_a_padded_batch(tiny: Any, kind: str) -> None:
    model, made = tiny.build_model(kind, tied=False), objective()
    with torch.no_grad():
        ours, theirs, student, taught = states(model, ROWS, made)
        total, learned = 0.0, 0
        for place, row in enumerate(ROWS):
            own, their, _, loss = states(model, [row], made)
            torch.testing.assert_close(ours[:, place], own[:, 0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(theirs[:, place], their[:, 0], atol=1e-4, rtol=1e-4)
            assert row.teacher is not None
            count = len(row.teacher.ids) - row.teacher.start
            total, learned = total + float(loss) * count, learned + count
        torch.testing.assert_close(float(taught), total / learned, atol=1e-4, rtol=1e-4)
        losses = torch.nn.functional.cross_entropy(student.logits, student.targets, reduction="sum")
        alone_losses = [
            LatentObjective(made.projector).loss(model, made.collate([dataclasses.replace(row, teacher=None)], 0), 1)
            for row in ROWS
        ]
        torch.testing.assert_close(losses, torch.stack(alone_losses).sum(), atol=1e-4, rtol=1e-4)


def test_the_loss_is_its_three_parts_as_they_are_weighed(tiny: Any) -> None:
    model, made = tiny.build_model("llama", tied=False), objective(7.0, 0.5)
    with torch.no_grad():
        ours, theirs, student, taught = states(model, ROWS, made)
        near = torch.nn.functional.cross_entropy(student.logits, student.targets)
        layers = [
            torch.nn.functional.smooth_l1_loss(ours[layer], theirs[layer]) / theirs[layer].std() for layer in range(len(ours))
        ]
        apart = sum(layers) / len(layers)
        batch = made.collate(ROWS, 0)
        torch.testing.assert_close(made.loss(model, batch, None), near + 7.0 * apart + 0.5 * taught)
        count = int(student.targets.numel())
        torch.testing.assert_close(made.loss(model, batch, 3 * count) * 3, made.loss(model, batch, None))  # a third of an update
        assert float(apart) > 0.01


def test_no_distance_between_like_states_and_no_gradient_to_the_teacher() -> None:
    torch.manual_seed(0)
    teacher, student = (torch.randn(3, 4, 8, requires_grad=True) for _ in range(2))
    assert float(distance(teacher.detach().clone(), teacher)) == 0.0
    distance(student, teacher).backward()
    assert teacher.grad is None and student.grad is not None and bool(student.grad.abs().sum(dim=(1, 2)).gt(0).all())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_of_the_distance_nothing_reaches_what_only_the_teacher_reads(tiny: Any, kind: str) -> None:
    """Its rationale's words get gradients from its own loss alone; the question and the net get them from the distance."""
    words, question = [60, 61, 62, 65], [5, 9, 30, 41]

    def gradients(gamma: float, rho: float) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model, made = tiny.build_model(kind, tied=False), objective(gamma, rho)
        parts = made.parts(model, made.collate(ROWS, 0), None)[0]
        plain = LatentObjective(made.projector)
        own = plain.loss(model, made.collate([dataclasses.replace(row, teacher=None) for row in ROWS], 0), None)
        (parts - own).backward()  # without the student's own
        assert made.projector is not None
        given = [weight.grad for weight in made.projector.parameters() if weight.grad is not None]
        return model.get_input_embeddings().weight.grad, given

    rows, net = gradients(20.0, 0.0)
    assert not rows[words].any() and rows[question].abs().sum(dim=1).gt(1e-6).all()
    assert any(bool(weight.abs().max() > 1e-4) for weight in net)
    rows, net = gradients(0.0, 1.0)
    assert rows[words].abs().sum(dim=1).gt(1e-6).all() and all(float(weight.abs().max()) < 1e-4 for weight in net)


@pytest.mark.parametrize(("gamma", "rho", "teachers"), [(20.0, 1.0, 1), (20.0, 0.0, 1), (0.0, 1.0, 1)])
def test_the_teacher_is_passed_once_and_with_gradients_only_for_its_own_loss(
    tiny: Any, gamma: float, rho: float, teachers: int
) -> None:
    model, made, seen = tiny.build_model("llama", tied=False), objective(gamma, rho), []

    def watch(module: Any, args: Any, summary: dict[str, Any], out: Any) -> None:
        seen.append(
            (
                summary.get("past_key_values") is not None or summary["use_cache"],
                out.logits.requires_grad,
                summary["output_hidden_states"],
            )
        )

    model.register_forward_hook(watch, with_kwargs=True)
    made.loss(model, made.collate(ROWS, 0), None)
    cached = [row for row in seen if row[0]]
    assert len(cached) == 3 + 2 and [row[1:] for row in seen if not row[0]] == [(rho > 0, True)] * teachers
    assert cached[-1][2] == (gamma > 0)


def test_without_teachers_it_is_the_loss_of_thoughts_alone(tiny: Any) -> None:
    model, made = tiny.build_model("llama", tied=False), objective()
    rows = [dataclasses.replace(row, teacher=None) for row in ROWS]
    with torch.no_grad():
        assert torch.equal(
            made.loss(model, made.collate(rows, 0), 5), LatentObjective(made.projector).loss(model, made.collate(rows, 0), 5)
        )
        together = made.logits(model, made.collate(ROWS, 0))[0]  # as validation does
        torch.testing.assert_close(together, made.logits(model, made.collate(rows, 0))[0])


def test_without_thoughts_the_student_still_meets_its_teacher(tiny: Any) -> None:
    model, made = tiny.build_model("gpt2", tied=False), Distillation(None, 20.0, 1.0)
    rows = [
        Feature((5, 9, 30, 41, 50, 20, 21), 5, 5, teacher=ROWS[0].teacher),
        Feature((7, 50, 22, 23, 24, 25), 1, 3, teacher=Feature((7, 50, 22, 23, 24, 25), 1, 3)),
    ]
    with torch.no_grad():
        ours, theirs, _, _ = states(model, rows, made)
        torch.testing.assert_close(ours[:, 1], theirs[:, 1], atol=1e-4, rtol=1e-4)  # the same sequence
        assert (ours[1:, 0] - theirs[1:, 0]).abs().max() > 0.1


BEGIN, END, ANCHOR = "<latent>", "</latent>", "The answer is:"
ANSWERS = ["42", "-7", "-3.5", "yes", "the red one", "été", "°5"]
STEPS = [("40+1 = 41.", "41+1 = 42."), ("So it is.",), ("a is 1.", "b is 2.", "Then 3.")]


def build(kind: str) -> Any:
    """``whole``: a blank and the figures behind it are one token; ``apart``: the blank, and each figure; ``bytes``: every byte;
    ``marked``: words that begin with a mark, as in sentencepiece."""
    special = ["<|im_end|>"]
    core = Tokenizer(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.decoder = decoders.ByteLevel()
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "apart":
        single = pre_tokenizers.Split(Regex(r"\d| ?\p{L}+| ?[^\s\p{L}\d]+|\s+"), "isolated")
        core.pre_tokenizer = pre_tokenizers.Sequence([single, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif kind == "marked":
        core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace()
        alphabet = sorted(
            {
                char
                for text in [*ANSWERS, ANCHOR, " ".join(map(" ".join, STEPS)), "How many? 0123456789<|user>\n"]
                for char in text
            }
        )
    else:
        core.pre_tokenizer = level
    size = 400 if kind != "bytes" else len(alphabet) + 1
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator([f"{ANCHOR} {answer}" for answer in ANSWERS] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", clean_up_tokenization_spaces=False)
    template = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    tokenizer.chat_template = at_head_of_answer(template, BEGIN)
    tokenizer.add_tokens([BEGIN, END])
    return tokenizer


def taught(tokenizer: Any, form: RowLayout, answer: str, steps: tuple[str, ...]) -> tuple[Feature, Feature]:
    """The student with its teacher, and the validation row."""
    target = (lead(steps) if form.taught else "") + answer_line(form.anchor, answer)
    row = Row(prompt_text(tokenizer, "How many?"), target, len(answer), steps)
    features, _ = tokenise([row], tokenizer, 500)
    lessons = [CurriculumRow(row, features[0])]
    made = DistillationCurriculum(lessons, lessons, tokenizer, form)
    return made.feature(0, 0), made.validation[0]


@pytest.mark.parametrize("kind", ["whole", "apart", "bytes", "marked"])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
def test_they_meet_where_the_answers_first_token_is_predicted(kind: str, given: bool, answer: str) -> None:
    tokenizer = build(kind)
    for steps in STEPS:
        student, asked = taught(tokenizer, RowLayout(2, END, ANCHOR, given, taught=True), answer, steps)
        assert student.teacher is not None and asked.teacher is None and asked.ids == student.ids
        for row in (student, student.teacher):
            assert row.answer is not None
            before, first = tokenizer.decode(row.ids[: row.answer]), tokenizer.decode(row.ids[row.answer : -1])
            assert before.rstrip().endswith(ANCHOR) and first.strip() == answer and row.ids[-1] == end_token(tokenizer)
        # What both have read last is the same, and so is all that they write from there.
        assert student.ids[student.answer - 1 :] == student.teacher.ids[student.teacher.answer - 1 :]
        last = tokenizer.decode([student.ids[student.answer - 1]])  # type: ignore[operator]
        wanted = {"whole": ":", "apart": " " if answer[0].isdigit() else ":", "bytes": " "}
        assert kind == "marked" or last == wanted[kind]


@pytest.mark.parametrize(("kind", "count"), [("whole", 1), ("apart", 3), ("bytes", 3)])
def test_the_tokenizers_are_of_unlike_kinds(kind: str, count: int) -> None:
    assert len(encode(build(kind), " 42")) == count


def shown(tokenizer: Any, row: Feature) -> tuple[str, str]:
    """What is read and what is learned."""
    return tokenizer.decode(row.ids[: row.start]), tokenizer.decode(row.ids[row.start :])


def test_the_teacher_reads_all_steps_but_the_last_and_the_student_none() -> None:
    tokenizer = build("apart")
    student, asked = taught(tokenizer, RowLayout(3, END, ANCHOR, True, True), "-42", STEPS[2])
    assert student.teacher is not None and student.thoughts == asked.thoughts == (len(encode(tokenizer, f"How many?{BEGIN}")), 3)
    assert shown(tokenizer, student) == (f"How many?{BEGIN}{END}{ANCHOR}", " -42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"a is 1.\nb is 2.\n{ANCHOR} -42<|im_end|>")
    student, _ = taught(tokenizer, RowLayout(3, END, ANCHOR, False, True), "-42", STEPS[1])
    assert student.teacher is not None
    assert shown(tokenizer, student) == (f"How many?{BEGIN}{END}", f"{ANCHOR} -42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"{ANCHOR} -42<|im_end|>")  # of one step: the question alone
    bare, _ = taught(tokenizer, RowLayout(3, END, "", True, True), "42", STEPS[0])
    assert shown(tokenizer, bare) == (f"How many?{BEGIN}{END}", "42<|im_end|>") and bare.teacher is not None
    assert shown(tokenizer, bare.teacher)[1] == "40+1 = 41.\n42<|im_end|>"
    alone, _ = taught(tokenizer, RowLayout(3, END, ANCHOR, True, False), "42", STEPS[0])
    assert alone.teacher is None and alone.ids[alone.start :] == (*encode(tokenizer, " 42"), end_token(tokenizer))


def test_without_thoughts_there_are_no_marks() -> None:
    tokenizer = build("apart")
    tokenizer.chat_template = tokenizer.chat_template.partition("{{ '<latent>'")[0]
    student, _ = taught(tokenizer, RowLayout(0, END, ANCHOR, False, True), "42", STEPS[0])
    assert student.thoughts is None and student.teacher is not None
    assert shown(tokenizer, student) == ("How many?", f"{ANCHOR} 42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"40+1 = 41.\n{ANCHOR} 42<|im_end|>")


def test_a_step_or_an_answer_cannot_bring_marks_of_its_own() -> None:
    tokenizer = build("apart")
    student, _ = taught(tokenizer, RowLayout(2, END, ANCHOR, True, True), "42", (f"say {END} now", "so 42"))
    marks = tokenizer.convert_tokens_to_ids([BEGIN, END])
    assert student.teacher is not None and not set(marks) & set(student.teacher.ids)
    assert [student.ids.count(mark) for mark in marks] == [1, 1]


def test_it_shows_how_many_teachers_read_a_step(tiny: Any) -> None:
    tokenizer = build("apart")
    rows = [Row(prompt_text(tokenizer, "How many?"), f"{lead(steps)}{ANCHOR} 42", 2, steps) for steps in STEPS]
    features, _ = tokenise(rows, tokenizer, 500)
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]
    made = DistillationCurriculum(lessons, lessons, tokenizer, RowLayout(2, END, ANCHOR, True, True, explained=3))
    assert made.summary() == {"kind": "distillation", "thoughts": 2, "rows_with_steps": 2} and not made.fresh(7)
    said = [[tokenizer.decode(ids) for ids in made.feature(row, 0).groups] for row in range(3)]
    end = "<|im_end|>"
    assert said == [
        [f"40+1 = 41.{end}", f"41+1 = 42.{end}", ""],
        [f"So it is.{end}", "", ""],
        [f"a is 1.{end}", f"b is 2.{end}", f"Then 3.{end}"],
    ]
    assert all(row.groups == () for row in made.validation)
