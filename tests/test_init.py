"""``cirf init``: rows of one's own in, a short recipe with reasons out, which the other commands take as it is."""

from __future__ import annotations

import json
import random
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.fitting.choices import Choice, draft
from cirf.fitting.fit import name_of
from cirf.methods import get
from cirf.recipe.load import parse
from cirf.recipe.schema import Recipe

NO_MODEL = "nobody/model-0.5B"
"""Not on this machine: words are counted in place of its tokens, and its size is that in its name."""

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn")


def choice_rows(count: int) -> list[dict[str, Any]]:
    """Options, with working that calculates."""
    rows = []
    for place, row in enumerate(tinyrun.sums(count)):
        right = int(row["answer"])
        options = [str(right + off) for off in (0, 1, 2, 5)]
        letter = "ABCD"[place % 4]
        options.insert("ABCD".index(letter), options.pop(0))
        lines = re.sub(r"Step \d: ", "", row["rationale"])
        rows.append({**row, "choices": options, "answer": letter, "rationale": f"{lines}\nAnswer: {letter}"})
    return rows


def option_rows(count: int) -> list[dict[str, Any]]:
    """Options, which the rationales go through one by one."""
    rows = []
    for place in range(count):
        letter = "ABC"[place % 3]
        lines = [f"{'ABC'[at]}. a {thing}: it {'is' if 'ABC'[at] == letter else 'is not'} what was asked for in place {place}."
                 for at, thing in enumerate(("tree", "lamp", "road"))]  # fmt: skip
        rows.append(
            {
                "question": f"Which is wanted in place {place}?",
                "choices": ["tree", "lamp", "road"],
                "answer": letter,
                "rationale": "\n".join([*lines, f"Therefore the answer is {letter}."]),
            }
        )
    return rows


def yesno_rows(count: int) -> list[dict[str, Any]]:
    """Yes or no, with reasons."""
    rows = []
    for place in range(count):
        answer = ("yes", "no")[place % 2]
        can = "can" if answer == "yes" else "need not"
        text = f"Animal {place} has wings. Things with wings {can} fly. So the answer is {answer}."
        rows.append({"question": f"Can animal {place} fly?", "answer": answer, "rationale": text})
    return rows


def text_rows(count: int) -> list[dict[str, Any]]:
    """Answers in words."""
    draw = random.Random(2)
    rows = []
    for place in range(count):
        name = draw.choice(NAMES)
        text = f"The door {place} was opened by whoever had key {place}. {name} had key {place}, so it was {name}."
        rows.append({"question": f"Who opened door {place}?", "answer": name, "rationale": text})
    return rows


KINDS: dict[str, Any] = {
    "number": tinyrun.sums, "choice": choice_rows, "option": option_rows, "yesno": yesno_rows, "text": text_rows,
}  # fmt: skip


MOST_STEPS = {"number": 3, "choice": 3, "option": 2, "yesno": 3, "text": 2}
"""Of a row of each kind."""


def init(file: Path, *more: str | Path) -> tuple[str, Recipe]:
    said = tinyrun.cirf("init", file, *more)
    assert said.code == 0, said.err
    return said.out, parse(said.out)


def reasons(text: str) -> dict[str, list[str]]:
    """The comments on the values, by the last part of their key: beside them or on a line of its own above."""
    lines = text.splitlines()
    found: dict[str, list[str]] = {}
    for place, line in enumerate(lines):
        if match := re.match(r"[ -]*(\w+): \S", line):
            above = lines[place - 1].strip()
            beside = line.partition("  # ")[2] or (above.removeprefix("# ") if above.startswith("# ") else "")
            found.setdefault(match[1], []).append(beside)
    return found


def reason(text: str, key: str) -> str:
    """The comment on the only value of that key."""
    (only,) = reasons(text)[key]
    return only


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *((kind, 100) for kind in KINDS),
        *(pytest.param(kind, 300, marks=pytest.mark.slow) for kind in KINDS),
        *(pytest.param(kind, 1000, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_every_value_has_its_reason_and_fits_the_rows(kind: str, count: int, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "my rows.jsonl", KINDS[kind](count))
    text, recipe = init(mine, "--model", NO_MODEL)
    assert 25 <= len(text.splitlines()) <= 45
    assert all(comment for comments in reasons(text).values() for comment in comments), text
    (task,) = recipe.problems.tasks
    answers = {"choice": "option"}.get(kind, kind)
    assert (recipe.name, task.name, task.task, task.train_file) == ("my_rows", "my_rows", "jsonl", str(mine))
    assert task.answer == answers
    assert task.test == {100: 20, 300: 60, 1000: 200}[count]
    rest = count - task.test
    held = round(recipe.problems.validation * rest)
    assert held == {100: 8, 300: 36, 1000: 48}[count] and f"{held} of {rest} questions" in reason(text, "validation")
    assert recipe.methods == ("cirf_full", "sft_cot", "direct_sft") and recipe.finetune.new_token_lr_multiplier == 10
    assert (
        recipe.finetune.epochs == "auto"
        and recipe.finetune.gradient_accumulation_steps == 1
        and recipe.finetune.adam_beta2 == 0.95
    )
    assert recipe.finetune.learning_rate == 2e-4 and "500 million" in reason(text, "learning_rate")
    steps = int(reason(text, "size").split()[0].replace(",", ""))
    size = recipe.codebook.size
    assert size == max([8, *(larger for larger in (16, 32, 64) if steps / larger >= 25)])
    assert recipe.results.working == "keep"
    assert recipe.embeddings.choices == ("mask" if answers == "option" else "keep")
    by_options = kind == "option"
    assert (recipe.segments.options, recipe.embeddings.closing) == (("together", "drop") if by_options else ("each", "keep"))
    if by_options:
        assert "go through the options one by one" in reason(text, "options")
    longest = int(re.findall(r"\d+", reason(text, "max_new_tokens"))[0])
    assert longest < recipe.evaluate.max_new_tokens <= 2 * longest + 32
    assert int(re.findall(r"\d+", reason(text, "max_trace_tokens"))[0]) < recipe.evaluate.max_trace_tokens
    most = int(re.findall(r"\d+", reason(text, "variants"))[0])
    assert recipe.variants["cirf_full"].settings == {"budget": most + 1} and most == MOST_STEPS[kind]


@pytest.mark.parametrize(
    "kind", [kind if kind in ("number", "choice") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_a_recipe_that_was_written_is_one_that_runs(kind: str, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", KINDS[kind](60))
    written = tmp_path / "mine.yaml"
    written.write_text(init(mine, "--model", str(workshop.backbone))[0], encoding="utf-8")
    said = tinyrun.cirf("run", written, "--dry-run", "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert set(found["methods"]) == {"cirf_full", "sft_cot", "direct_sft"}
    assert all(row["training_seconds"] >= 0 for row in found["methods"].values())
    (updates,) = found["updates"]
    assert not updates["too_few"] and updates["methods"] == ["cirf_full", "sft_cot", "direct_sft"]
    reason_of_epochs = reason(written.read_text(), "epochs")
    assert reason_of_epochs == f"{updates['rows']} rows: {updates['passes']:g} passes, {updates['updates']} updates"


def test_few_rows_get_smaller_batches_and_a_sentence(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(12))
    said = tinyrun.cirf("init", mine, "--model", workshop.backbone)
    assert f"note: {mine}: 12 usable rows leave 8 to learn from, which are too few" in said.err
    recipe = parse(said.out)
    assert recipe.finetune.batch_size == 4 and "make too few updates of 8 rows" in reason(said.out, "batch_size")
    assert recipe.problems.tasks[0].test == 3


def test_rows_without_rationales_have_them_written(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(100)]
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows)
    said = tinyrun.cirf("init", mine, "--model", workshop.backbone)
    assert "no row has a rationale, so the recipe has " in said.err and "rationales.teacher.endpoints" in said.err
    written = tmp_path / "mine.yaml"
    written.write_text(said.out)
    assert parse(said.out).rationales.source == "teacher"
    dry = tinyrun.cirf("run", written, "--dry-run", "--out", tmp_path / "run")
    assert dry.code == 0 and "80 questions go to 1 model" in dry.out


def test_answers_of_several_kinds_are_reported(tmp_path: Path) -> None:
    odd = {"question": "What is 0 / 0?", "answer": "unknown", "rationale": "Nobody knows. It is unknown."}
    few = tinyrun.write_jsonl(tmp_path / "few.jsonl", [*tinyrun.sums(99), odd])
    said = tinyrun.cirf("init", few, "--model", NO_MODEL)
    assert parse(said.out).problems.tasks[0].answer == "number"
    assert reason(said.out, "answer") == "99 of 100 answers are numbers; the other 1 cannot be used"
    assert "99 of 100 rows have a number as answer, those of line 100 have not and are dropped" in said.err
    many = tinyrun.write_jsonl(tmp_path / "many.jsonl", [*tinyrun.sums(60), *yesno_rows(40)])
    said = tinyrun.cirf("init", many, "--model", NO_MODEL)
    assert parse(said.out).problems.tasks[0].answer == "text"
    assert "so all answers count as text" in said.err
    assert reason(said.out, "answer") == "the 100 answers are not all numbers, options or yes/no: see line 61"


def test_rows_that_cannot_be_used_are_allowed_and_reported(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    tinyrun.write_jsonl(mine, tinyrun.sums(60))
    mine.write_text(mine.read_text() + "{\n" * 12)
    said = tinyrun.cirf("init", mine, "--model", workshop.backbone)
    assert parse(said.out).problems.max_unusable_share == 0.17 and "12 of 72 rows cannot be used" in reason(
        said.out, "max_unusable_share"
    )
    assert "12 of 72 rows cannot be used, which the recipe allows" in said.err
    written = tmp_path / "mine.yaml"
    written.write_text(said.out)
    assert tinyrun.cirf("run", written, "--dry-run", "--out", tmp_path / "run").code == 0


def test_a_note_on_what_says_nothing_and_on_a_model_nobody_knows(tmp_path: Path) -> None:
    rows = [row | {"rationale": "Step 1: Look.\nStep 2: Think.\nStep 3: Look again."} for row in yesno_rows(80)]
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows)
    said = tinyrun.cirf("init", mine, "--model", "nobody/model")
    assert "100% of the steps have no result" in said.err
    assert "nobody/model: not on this machine, and its name gives no size; finetune.learning_rate 0.0001 is a guess" in said.err


def test_no_recipe_where_none_would_work(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    wrong = tinyrun.write_jsonl(tmp_path / "wrong.jsonl", [row | {"rationale": "So it is 5000."} for row in tinyrun.sums(20)])
    said = tinyrun.cirf("init", wrong, "--model", NO_MODEL)
    assert (
        f"{wrong}: no usable row: another answer (20); 20 rationales end in another answer: " in said.error() and said.out == ""
    )
    one = tinyrun.write_jsonl(tmp_path / "one.jsonl", tinyrun.sums(1))
    assert "a single question cannot be trained on and tested with" in tinyrun.cirf("init", one, "--model", NO_MODEL).error()
    again = tinyrun.write_jsonl(
        tmp_path / "again.jsonl", [*tinyrun.sums(1) * 9, *({"question": str(n), "key": n} for n in "abc")]
    )
    said = tinyrun.cirf("init", again, "--model", NO_MODEL).error()
    assert "left out: the field answer is missing (3), the question appears twice (8); line 10: the field answer" in said
    assert "this has question, key; say which is which with --columns question=question,answer=key" in said
    assert "no such file" in tinyrun.cirf("init", tmp_path / "none.jsonl", "--model", NO_MODEL).error()
    assert "/no/model: no such folder" in tinyrun.cirf("init", workshop.train, "--model", "/no/model").error()
    assert "--data" in tinyrun.cirf("init", workshop.train, "--data", tmp_path / "none").error()


def test_data_is_in_the_folder_named(tmp_path: Path) -> None:
    tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(100))
    _, recipe = init(Path("mine.jsonl"), "--model", NO_MODEL, "--data", tmp_path)
    assert (recipe.problems.data, recipe.problems.tasks[0].train_file) == (str(tmp_path), "mine.jsonl")


def test_long_rows_raise_what_would_drop_them(tmp_path: Path) -> None:
    rows = tinyrun.sums(100)
    rows[7] = rows[7] | {"question": "Please think. " * 400 + rows[7]["question"]}
    text, recipe = init(tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows), "--model", NO_MODEL)
    assert recipe.finetune.max_length > 1024 and "the longest row" in reason(text, "max_length")


def test_steps_of_thinking_are_embedded_by_their_first_words_and_keep_all_values_used(tmp_path: Path) -> None:
    thinking = "Okay, {0} pens are there and one comes. " + "Wait, let me count them again, slowly and with care. " * 20
    said = [(f"{n} + 1?", thinking.format(n) + f"So it is {n + 1}.", str(n + 1)) for n in range(30)]
    rows = [dict(zip(("question", "rationale", "answer"), each, strict=True)) for each in said]
    text, recipe = init(tinyrun.write_jsonl(tmp_path / "mine.jsonl", rows), "--model", NO_MODEL)
    assert recipe.embeddings.words == 4 and recipe.results.values == "used" and "30 by function" in text
    _, recipe = init(tinyrun.write_jsonl(tmp_path / "short.jsonl", tinyrun.sums(100)), "--model", NO_MODEL)
    assert recipe.embeddings.words == "all" and recipe.results.values == "last"


def test_names_of_files_become_names_of_folders() -> None:
    names = ["mine.jsonl", "a b/c d.jsonl", "-x.jsonl", "..jsonl", "yes.jsonl", "1\n2.jsonl", "ü.jsonl", "x" * 200 + ".jsonl"]
    assert [name_of(name) for name in names] == ["mine", "c_d", "x", "mine", "yes", "1_2", "_", "x" * 60]


def test_a_draft_opens_every_section_once() -> None:
    keys = ("name", "a.b.c", "a.b.d", "a.list.0.x", "a.list.0.y", "e.f")
    assert draft(["Top."], [Choice(key, place, "why") for place, key in enumerate(keys)]) == (
        "# Top.\nname: 0  # why\na:\n  b:\n    c: 1  # why\n    d: 2  # why\n"
        "  list:\n    - x: 3  # why\n      y: 4  # why\ne:\n  f: 5  # why\n"
    )


ROW = st.fixed_dictionaries(
    {},
    optional={
        "question": st.one_of(st.text(max_size=20), st.sampled_from(["Who?", "How many?", "Why?"]), st.none(), st.integers()),
        "answer": st.one_of(st.sampled_from(["yes", "no", "A", "7", "red", " "]), st.integers(0, 9), st.booleans(), st.none()),
        "rationale": st.one_of(
            st.sampled_from(["Step 1: 3 + 4 = 7.\nStep 2: So 7.", "A. no\nB. yes\nSo B."]), st.text(max_size=60)
        ),
        "choices": st.lists(st.text(max_size=4), max_size=4),
        "id": st.one_of(st.integers(0, 3), st.text(max_size=2)),
    },
)


@settings(max_examples=6)
@given(
    rows=st.lists(st.one_of(ROW, st.text(max_size=10)), max_size=12), kind=st.sampled_from(list(KINDS)), sound=st.integers(0, 30)
)
def test_odd_files_are_a_recipe_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], kind: str, sound: int
) -> None:
    mine = tmp_path_factory.mktemp("odd") / "mine.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in [*KINDS[kind](sound), *rows]]
    mine.write_text("\n".join(lines), encoding="utf-8")
    said = tinyrun.cirf("init", mine, "--model", NO_MODEL)
    if said.code:
        assert said.error() and said.out == ""
        return
    recipe = parse(said.out)
    recipe_file = mine.with_name("mine.yaml")
    recipe_file.write_text(said.out, encoding="utf-8")
    checked = tinyrun.cirf("check", recipe_file, "--json")
    if recipe.rationales.source != "teacher":
        assert checked.code == 0, checked.err
        assert recipe.codebook.size <= max(8, json.loads(checked.out)["total"]["steps_total"])


def test_batches_fit_into_the_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(120))
    sizes = {"parameters": 10**9, "layers": 20, "width": 2048, "inner": 8192, "vocabulary": 150_000, "lora_per_rank": 10**6}
    monkeypatch.setattr("cirf.commands.check.sizes_of", lambda recipe: sizes)

    def fitted(gibibytes: float) -> tuple[Recipe, str]:
        monkeypatch.setattr("cirf.commands.check.free_memory", lambda device: int(gibibytes * 2**30))
        said = tinyrun.cirf("init", mine, "--model", NO_MODEL)
        return parse(said.out), said.out

    ample, _ = fitted(500)
    assert ample.finetune.batch_size == 8 and not ample.finetune.overrides
    for gibibytes in (5, 2):
        recipe, text = fitted(gibibytes)
        section = recipe.finetune.resolved("sft_cot", get("sft_cot", recipe).training)
        assert section.batch_size < 8 and f"of memory, and {gibibytes:.1f} are free" in text
        for each in (section, recipe.finetune):
            assert each.batch_size * each.gradient_accumulation_steps == 8
        assert recipe.finetune.batch_size >= section.batch_size
    assert recipe.finetune.batch_size == section.batch_size == 1  # the smallest, even where that does not fit


@pytest.mark.slow
def test_a_training_of_hours_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tinyrun.write_jsonl(tmp_path / "mine.jsonl", tinyrun.sums(120))
    sizes = {"parameters": 10**9, "inside": 10**9, "layers": 20, "width": 2048, "inner": 8192, "vocabulary": 150_000}
    monkeypatch.setattr("cirf.commands.check.sizes_of", lambda recipe: sizes | {"lora_per_rank": 10**6})
    for speed, announced in ((1e9, True), (1e15, False)):
        monkeypatch.setattr(import_module("cirf.fitting.fit"), "speed", lambda *given, speed=speed: speed)
        said = tinyrun.cirf("init", mine, "--model", NO_MODEL)
        assert ("note: training takes about" in said.err and "hours on this machine" in said.err) == announced
        assert parse(said.out).name == "mine"
