"""Which points share a front and a picture: runs once, the same questions, known costs, one setting. Which runs are compared:
what counts once, what separates groups, and what no name may hide.
"""

from __future__ import annotations

import random
import re
from typing import Any

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.analysis import AnalysisResult, MissingInputError, get
from cirf.analysis.groups import distinct_labels, file_name, grouped, model_names, put
from cirf.analysis.source import Source
from cirf.analysis.tradeoff import FEW, MethodPoint, draw, together
from cirf.errors import CirfError
from cirf.pictures.canvas import canvas
from cirf.pictures.placing import place_names
from cirf.statistics import wilson

BOTH = {"sums": 0.5, "coins": 0.6}


def make(name: str, *runs: Any) -> AnalysisResult:
    return get(name).make(Source(runs))


def rows(found: AnalysisResult, table: str) -> list[Any]:
    return list(next(one for one in found.tables if one.name == table).rows)


def run(folder: Any, *methods: str, share: dict[str, float] = BOTH, **keys: Any) -> Any:
    """A generated run, with the table by task."""
    return run_of(folder, dict.fromkeys(methods, share), **keys)


def run_of(folder: Any, shares: dict[str, dict[str, float]], **keys: Any) -> Any:
    found = made.run(folder, shares, **keys)
    for method in found.methods.values():
        for summary in method["tasks"].values():
            summary |= {"interval": wilson(summary["accuracy"] * summary["n"], summary["n"]), "truncated": 0.0, "unparsed": 0.0}
    return found


def test_a_run_counts_once_however_many_parts_name_it(tmp_path):
    one, other = run(tmp_path / "one", "cirf_full"), run(tmp_path / "two", "cirf_full", codebook__size=8)
    assert [row["method"] for row in rows(make("pareto", one, other, one), "pareto")] == ["cirf_full", "cirf_full (two)"]


def test_a_run_without_times_leaves_the_others_theirs(tmp_path):
    timed = run(tmp_path / "timed", "cirf_full", "cirf_bare", seconds={"cirf_full": 1.0, "cirf_bare": 0.5})
    found = make("pareto", timed, run(tmp_path / "untimed", "cirf_full", codebook__size=8))
    assert set(found.pictures) == {"tiny-135m-in-seconds", "tiny-135m-in-tokens"}
    assert "tiny-135m, in domain: 1 of 3 points have no time and are not in the picture of it." in found.notes
    fronts = {row["method"]: row["front_seconds"] for row in rows(found, "pareto")}
    assert fronts["cirf_full (untimed)"] is None and True in fronts.values()


def test_a_name_in_the_picture_says_what_sets_its_run_apart(tmp_path):
    changes: dict[str, dict[str, Any]] = {
        "base": {}, "eight": {"codebook__size": 8}, "bare": {"codebook__representation": "raw"}, "again": {"codebook__size": 8}
    }  # fmt: skip
    runs = {name: run(tmp_path / name, "cirf_full", "cot", **keys) for name, keys in changes.items()}
    summary = make("pareto", *(runs[name] for name in ("base", "eight", "bare"))).pictures["tiny-135m-in-tokens"]
    for name in ("CIRF", "CIRF, K 8", "CIRF, raw", "CoT, untrained", "CoT, untrained, K 8", "CoT, untrained, raw"):
        assert f" {name}: " in summary  # in the description, whole
    twice = make("pareto", *runs.values()).pictures["tiny-135m-in-tokens"]
    same = [runs["base"], run(tmp_path / "same", "cirf_full", "cot"), runs["eight"], runs["bare"]]
    alike = make("pareto", *same).pictures["tiny-135m-in-tokens"]
    assert all(f" CIRF, {name}: " in alike for name in ("base 1", "base 2", "K 8", "raw"))
    assert " CIRF, raw: " in twice and " CIRF, K 8 1: " in twice and " CIRF, K 8 2: " in twice


def test_a_long_name_next_to_the_edge_is_written_on_two_lines():
    with canvas(4.9, 3.7, "x") as (figure, out):
        axes = figure.add_subplot()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 100)
        between = [(0.5, y, y, y, "taken", "#000000") for y in (32.0, 40.0, 48.0, 56.0, 64.0, 72.0)]
        place_names(figure, axes, [*between, (0.98, 50.0, 45.0, 55.0, "Chain-of-thought, fine-tuned", "#000000")])
        out.append("")
        box, around = axes.texts[-1].get_window_extent(), figure.bbox
        assert axes.texts[-1].get_text() == "Chain-of-thought,\nfine-tuned"
        assert around.x0 <= box.x0 and box.x1 <= around.x1


def test_of_many_methods_the_front_and_the_baseline_are_named_at_their_points(tmp_path):
    many = [*(f"method_{place}" for place in range(14)), "sft_cot"]
    share = {name: {"sums": 0.3, "coins": 0.3} for name in many} | {"method_0": {"sums": 1.0, "coins": 1.0}}
    tokens = {name: 40 + place for place, name in enumerate(many)} | {"method_5": 3}
    picture = make("pareto", run_of(tmp_path / "many", share, tokens=tokens)).pictures["tiny-135m-in-tokens"]
    named = re.findall(r'<g class="mark name" data-method="(\w+)"', picture)
    assert set(named) == {"method_0", "method_5", "sft_cot"}  # the best, the shortest, the baseline
    assert picture.count('class="mark point"') == 15 and all(f"<title>{name}: " in picture for name in many[:14])


def spots(number: int, **fields: Any) -> list[MethodPoint]:
    families = ("prose", "latent", "functional")
    plain = MethodPoint("m", "name", "label", "prose", 3.0, 40.0, 35.0, 60.0, False)
    several = [plain._replace(family=families[place % 3], cost=3.0 + place, accuracy=40.0 + place) for place in range(number)]
    return [spot._replace(**fields) for spot in several]


def drawn(some: list[MethodPoint]) -> str:
    return draw(some, "x", ("tokens", "accuracy"), "described")


def test_colours_are_those_of_three_families_and_the_legend_names_them_once():
    picture = drawn(spots(20))
    marks = re.findall(r'class="mark point".*?fill: (#[0-9a-f]{6})', picture, re.S)
    assert len(marks) == 20 and len(set(marks)) == 3
    for title in ("prose", "latent or no reasoning", "functional tokens"):
        assert picture.count(f">{title}</text>") == 1
    assert "functional tokens" not in drawn(spots(9, family="prose"))  # of one family there is no legend


def test_few_points_are_all_named():
    assert drawn(spots(FEW)).count('class="mark name"') == FEW
    assert 'class="mark name"' not in drawn(spots(FEW + 1))


def test_the_axis_of_accuracy_is_fitted_to_the_intervals():
    ticks = [float(text) for text in re.findall(r">([\d.]+)</text>", drawn(spots(7, cost=5.0)))]
    assert 100.0 not in ticks and 0.0 not in ticks


def test_a_name_covers_no_point_that_has_none():
    first = (0.5, 50.0, 45.0, 55.0, "one", "#000000")
    placed = [(0.5, 80.0, 75.0, 85.0, "below the picture", "#000000"), first, (*first[:4], "another", "#000000")]
    assert [point[4] for point in together(placed, [False, True, True])] == ["", "one\nanother", ""]
    with canvas(4.9, 3.7, "x") as (figure, out):
        axes = figure.add_subplot()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 100)
        crowd = [(x, 50.0, 48.0, 52.0, "not written", "#000000") for x in (0.42, 0.56, 0.6, 0.64)]
        place_names(figure, axes, together([*crowd, first], [False] * 4 + [True]))
        out.append("")
        (name,) = axes.texts
        box = name.get_window_extent()
        assert not any(box.contains(*axes.transData.transform((x, y))) for x, y, *_ in crowd)


def test_descriptions_have_names_whole(tmp_path):
    long = [f"a_name_of_many_characters_of_which_all_count_{place}" for place in range(3)]
    found = make("pareto", run(tmp_path / "long", *long))
    label = found.pictures["tiny-135m-in-tokens"].partition('aria-label="')[2].partition('"')[0]
    assert all(name in label for name in long)


def test_other_questions_share_no_front(tmp_path):
    many = run(tmp_path / "many", "cirf_full", "direct", "cot")
    few = run(tmp_path / "few", "cirf_bare", share={"sums": 1.0, "coins": 1.0}, questions=20, tokens={"cirf_bare": 1})
    found = make("pareto", few, many)
    table = {row["method"]: row for row in rows(found, "pareto")}
    assert {name: row["questions"] for name, row in table.items()} == {"cirf_full": 80, "direct": 80, "cot": 80, "cirf_bare": 40}
    assert "front_tokens" not in table["cirf_bare"]
    assert any(table[name]["front_tokens"] for name in ("cirf_full", "direct", "cot"))
    assert any("cirf_bare" in note and "other questions than most" in note for note in found.notes)
    assert "no results" not in found.pictures["tiny-135m-in-tokens"]


def test_tasks_called_like_columns_keep_the_papers_layout(tmp_path):
    found = make("pareto", run(tmp_path / "run", "cirf_full", share={"source": 0.5, "method": 0.6, "metric": 0.4}))
    table = next(one for one in found.tables if one.name == "main")
    assert len(set(table.keys())) == len(table.keys()) == 7
    (row,) = table.rows
    assert (row["source"], row["method"], row["metric"]) == ("this run", "cirf_full", "accuracy")


def test_the_papers_layout_has_the_spread_over_runs_next_to_the_interval(tmp_path):
    shown = run(tmp_path / "run", "cirf_full", share={"coin_flip": 0.5}, seconds={"cirf_full": 0.42})
    shown.methods["cirf_full"]["tasks"]["coin_flip"] |= {"accuracy": 0.8317, "accuracy_sd": 0.0155, "latency_sd_s": 0.012}
    found = get("pareto").make(Source([shown], paper=True))
    lines = [(row["source"], row["metric"], row["task:coin_flip"]) for row in rows(found, "main") if row["method"] == "cirf_full"]
    ours = [summary for source, _, summary in lines if source != "paper"]
    assert ours[0].startswith("83.2\N{NO-BREAK SPACE}% ± 1.55 (") and ours[1] == "0.42 ± 0.01 s"
    theirs = [summary for source, _, summary in lines if source == "paper"]
    assert theirs[:2] == ["83.2\N{NO-BREAK SPACE}% ± 1.55", "0.48 ± 0.01 s"]
    once = get("pareto").make(Source([run(tmp_path / "once", "cirf_full")]))
    assert not any(key.endswith("_sd") for one in once.tables for key in one.to_dict()["rows"][0])


def test_each_run_of_a_sweep_is_named_by_its_name(tmp_path):
    runs = [
        run(tmp_path / "base", "cirf_full", part="sizes"),
        run(tmp_path / "large", "cirf_full", part="sizes", backbone__model="large"),
    ]
    table = rows(make("pareto", *runs), "tasks")
    assert {row["source"] for row in table} == {one.name for one in runs} and "this run" not in {one.name for one in runs}


def test_backbones_of_long_or_equal_names_have_pictures_of_their_own(tmp_path):
    models = ["/a/model", "/b/model", "/" + "very-long-name-" * 20]
    runs = [run(tmp_path / f"{place}", "cirf_full", "direct", backbone__model=model) for place, model in enumerate(models)]
    found = make("pareto", *runs)
    assert len(found.pictures) == 3 and all(len(f"{name}.svg".encode()) <= 100 for name in found.pictures)


@pytest.mark.parametrize("name", ["scaling", "variants"])
def test_other_training_of_a_backbone_is_a_line_of_its_own(name, tmp_path):
    runs = [
        run(tmp_path / f"{model}{rate}", "cirf_full", "cirf_bare", backbone__model=model, finetune__learning_rate=rate)
        for model, rate in (("small", 0.1), ("small", 0.01), ("large", 0.1))
    ]
    table = rows(make(name, *runs), name)
    places = [(row["backbone"], row["method"], row["domain"]) for row in table]
    assert len(places) == len(set(places)) == 6
    assert {row["backbone"] for row in table} == {"small (learning_rate 0.1)", "small (learning_rate 0.01)", "large"}


def test_methods_of_one_setting_in_several_runs_are_shown_together(tmp_path):
    small = [run(tmp_path / name, name) for name in ("cirf_full", "cirf_bare", "codi")]
    large = run(tmp_path / "large", "cirf_full", "codi", "pause", backbone__model="large")
    table = rows(make("scaling", *small, large), "scaling")
    assert sorted(row["method"] for row in table if row["backbone"] == "tiny-135m") == ["cirf_bare", "cirf_full", "codi"]
    assert all("beaten_tokens" in row for row in table if row["method"] == "codi")


PLAIN = {"cirf_full": {"sums": 0.5, "coins": 0.6}}
MORE = PLAIN | {"cirf_bare": {"sums": 0.4, "coins": 0.4}}


def analysed(name: str, *runs: Any, paper: bool = False) -> AnalysisResult:
    return get(name).make(Source(runs, paper))


def lines(found: AnalysisResult, table: str) -> list[Any]:
    return list(next(one for one in found.tables if one.name == table).rows)


def codes(count: int, size: int = 4, seed: int = 0) -> dict[str, list[list[int]]]:
    draw = random.Random(seed)
    return {task: [[draw.randrange(size) for _ in range(3)] for _ in range(count)] for task in made.TASKS}


def with_tasks(run: Any, path: str) -> Any:
    run.data["recipe"]["problems"] = {"tasks": [{"task": "jsonl", "name": "sums", "train_file": path}]}
    return run


def test_groups_of_other_long_values_are_not_mixed(tmp_path):
    runs = [
        with_tasks(
            made.run(tmp_path / f"{name}{size}", PLAIN, codebook__size=size), f"/a/very/long/path/of/problems/{name}.jsonl"
        )
        for name in ("one", "two")
        for size in (4, 8)
    ]
    found = analysed("codebook_size", *runs)
    labels = {row["settings"] for row in lines(found, "codebook_size")}
    assert labels == {"tasks sums 1", "tasks sums 2"}
    assert len(found.pictures) == 4


def test_backbones_of_one_last_part_are_not_mixed(tmp_path):
    runs = [
        made.run(tmp_path / f"{folder}{size}", PLAIN, backbone__model=f"/{folder}/model", codebook__size=size)
        for folder in "ab"
        for size in (4, 8)
    ]
    found = analysed("codebook_size", *runs)
    assert {row["settings"] for row in lines(found, "codebook_size")} == {"model 1", "model 2"} and len(found.pictures) == 4
    names = model_names(runs)
    assert len(set(names.values())) == 2 and all(name.startswith("model ") for name in names.values())
    assert model_names(runs[:2]) == {"/a/model": "model"}


def test_a_group_that_lacks_a_key_is_not_base(tmp_path):
    assert distinct_labels([{"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "2"}, {"a": "1"}]) == [
        "base 1",
        "base 2",
        "2, no b",
        "no b",
    ]


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.text(max_size=3)), max_size=6, unique_by=lambda one: str(sorted(one.items()))
    )
)
def test_what_differs_has_labels_and_files_that_differ(several):
    labels = distinct_labels(several, lambda key, value: value[:1])
    assert len({file_name(label) for label in labels}) == len(several)


@given(st.text(max_size=300))
def test_names_of_files_are_short(text):
    name = file_name(text)
    assert len(name.encode()) <= 60 and not set(name) & set("/\\\0\n")


def test_long_names_of_files_still_differ():
    assert file_name("x" * 80 + "a") != file_name("x" * 80 + "b")


def test_no_picture_takes_the_place_of_another():
    pictures = {"accuracy": "<svg>"}
    with pytest.raises(CirfError, match=r"accuracy\.svg"):
        put(pictures, "accuracy", "<svg>")


def test_runs_of_other_methods_alone_count_once(tmp_path):
    same = [made.run(tmp_path / name, shares, codes=codes(24)) for name, shares in (("few", PLAIN), ("more", MORE))]
    larger = made.run(tmp_path / "larger", PLAIN, codes=codes(24, 8), codebook__size=8)
    (group,) = grouped([*same, larger], ("codebook.size",))
    assert [run.name for run in group.runs] == ["more", "larger"]
    sizes = [(row["size"], row["task"]) for row in lines(analysed("codebook_size", *same, larger), "codebook_size")]
    assert len(sizes) == len(set(sizes)) == 6


def test_a_second_run_of_the_papers_choice_does_not_keep_from_testing(tmp_path):
    same = [made.run(tmp_path / name, shares) for name, shares in (("few", PLAIN), ("more", MORE))]
    raw = made.run(tmp_path / "raw", {"cirf_full": {"sums": 0.1, "coins": 0.1}}, draw=3, codebook__representation="raw")
    found = analysed("representation", *same, raw)
    assert [row["reading"] for row in lines(found, "representation")] == ["the reference", "below"]


def test_pruning_matters_to_pruned_methods_alone(tmp_path):
    def pair(name: str, *methods: str) -> list[Any]:
        shares = {method: {"sums": 0.5, "coins": 0.5} for method in methods}
        return [made.run(tmp_path / f"{name}{size}", shares, codebook__size=size, compression__fast=size / 10) for size in (4, 8)]

    with pytest.raises(MissingInputError, match=r"differ only in codebook\.size"):
        analysed("codebook_size", *pair("pruned", "cirf_fast"))
    assert len(lines(analysed("codebook_size", *pair("plain", "cirf_fast", "cirf_full")), "codebook_size")) == 6
    other = made.run(tmp_path / "raw", {"cirf_fast": {"sums": 0.5}}, codebook__representation="raw", compression__fast=0.9)
    with pytest.raises(MissingInputError):
        analysed("representation", made.run(tmp_path / "chosen", {"cirf_fast": {"sums": 0.5}}), other)


def test_tasks_called_like_columns_take_no_columns_place(tmp_path):
    shares = {"mean": 0.9, "p": 0.2, "source": 0.5, "difference": 0.4}
    chosen = made.run(tmp_path / "chosen", {"cirf_full": shares})
    raw = made.run(tmp_path / "raw", {"cirf_full": shares}, draw=2, codebook__representation="raw")
    found = analysed("representation", chosen, raw)
    (table,) = found.tables
    assert len(table.keys()) == len(set(table.keys()))
    row = lines(found, "representation")[0]
    tasks = chosen.methods["cirf_full"]["tasks"]
    assert row["source"] == "chosen" and row["mean"] == pytest.approx(sum(one["accuracy"] for one in tasks.values()) / 4)
    assert {task: row[f"task:{task}"] for task in shares} == {task: pytest.approx(one["accuracy"]) for task, one in tasks.items()}
