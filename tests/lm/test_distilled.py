"""Rows taught twice: what teacher and student read, and where they meet, whatever the tokenizer makes of blanks and figures."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cirf.lm.prompt import encode, end_token, prompt_text
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.objective import CurriculumRow
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.loss import Distilled, Form, answer_line, lead

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


def taught(tokenizer: Any, form: Form, answer: str, steps: tuple[str, ...]) -> tuple[Feature, Feature]:
    """The student with its teacher, and the validation row."""
    target = (lead(steps) if form.taught else "") + answer_line(form.anchor, answer)
    row = Row(prompt_text(tokenizer, "How many?"), target, len(answer), steps)
    features, _ = tokenise([row], tokenizer, 500)
    lessons = [CurriculumRow(row, features[0])]
    made = Distilled(lessons, lessons, tokenizer, form)
    return made.feature(0, 0), made.validation[0]


@pytest.mark.parametrize("kind", ["whole", "apart", "bytes", "marked"])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("answer", ANSWERS)
def test_they_meet_where_the_answers_first_token_is_predicted(kind: str, given: bool, answer: str) -> None:
    tokenizer = build(kind)
    for steps in STEPS:
        student, asked = taught(tokenizer, Form(2, END, ANCHOR, given, taught=True), answer, steps)
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
    student, asked = taught(tokenizer, Form(3, END, ANCHOR, True, True), "-42", STEPS[2])
    assert student.teacher is not None and student.thoughts == asked.thoughts == (len(encode(tokenizer, f"How many?{BEGIN}")), 3)
    assert shown(tokenizer, student) == (f"How many?{BEGIN}{END}{ANCHOR}", " -42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"a is 1.\nb is 2.\n{ANCHOR} -42<|im_end|>")
    student, _ = taught(tokenizer, Form(3, END, ANCHOR, False, True), "-42", STEPS[1])
    assert student.teacher is not None
    assert shown(tokenizer, student) == (f"How many?{BEGIN}{END}", f"{ANCHOR} -42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"{ANCHOR} -42<|im_end|>")  # of one step: the question alone
    bare, _ = taught(tokenizer, Form(3, END, "", True, True), "42", STEPS[0])
    assert shown(tokenizer, bare) == (f"How many?{BEGIN}{END}", "42<|im_end|>") and bare.teacher is not None
    assert shown(tokenizer, bare.teacher)[1] == "40+1 = 41.\n42<|im_end|>"
    alone, _ = taught(tokenizer, Form(3, END, ANCHOR, True, False), "42", STEPS[0])
    assert alone.teacher is None and alone.ids[alone.start :] == (*encode(tokenizer, " 42"), end_token(tokenizer))


def test_without_thoughts_there_are_no_marks() -> None:
    tokenizer = build("apart")
    tokenizer.chat_template = tokenizer.chat_template.partition("{{ '<latent>'")[0]
    student, _ = taught(tokenizer, Form(0, END, ANCHOR, False, True), "42", STEPS[0])
    assert student.thoughts is None and student.teacher is not None
    assert shown(tokenizer, student) == ("How many?", f"{ANCHOR} 42<|im_end|>")
    assert shown(tokenizer, student.teacher) == ("How many?", f"40+1 = 41.\n{ANCHOR} 42<|im_end|>")


def test_a_step_or_an_answer_cannot_bring_marks_of_its_own() -> None:
    tokenizer = build("apart")
    student, _ = taught(tokenizer, Form(2, END, ANCHOR, True, True), "42", (f"say {END} now", "so 42"))
    marks = tokenizer.convert_tokens_to_ids([BEGIN, END])
    assert student.teacher is not None and not set(marks) & set(student.teacher.ids)
    assert [student.ids.count(mark) for mark in marks] == [1, 1]


def test_it_tells_how_many_teachers_read_a_step(tiny: Any) -> None:
    tokenizer = build("apart")
    rows = [Row(prompt_text(tokenizer, "How many?"), f"{lead(steps)}{ANCHOR} 42", 2, steps) for steps in STEPS]
    features, _ = tokenise(rows, tokenizer, 500)
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]
    made = Distilled(lessons, lessons, tokenizer, Form(2, END, ANCHOR, True, True, explained=3))
    assert made.summary() == {"kind": "distillation", "thoughts": 2, "rows_with_steps": 2} and not made.fresh(7)
    said = [[tokenizer.decode(ids) for ids in made.feature(row, 0).groups] for row in range(3)]
    end = "<|im_end|>"
    assert said == [
        [f"40+1 = 41.{end}", f"41+1 = 42.{end}", ""],
        [f"So it is.{end}", "", ""],
        [f"a is 1.{end}", f"b is 2.{end}", f"Then 3.{end}"],
    ]
    assert all(row.groups == () for row in made.validation)
