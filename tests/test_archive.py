"""An archive: the numbers of a run without its texts, weights and vectors, in two files."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas
import pytest
import tinyrun
from docs.research import near, pictures, result_tables
from docs.research.figure_specs import FIGURE_TABLES, figures, rows, several
from docs.research.result_specs import TABLES
from docs.research.result_tables import BLOCK, Line, Table, Trained, accuracy, less, rate, render, text, tokens, tokens_share

from cirf.analysis.backbones import TrainedBackbone, points_of
from cirf.analysis.source import Run
from cirf.errors import CirfError
from cirf.export.archive import find, write
from cirf.report.data.collect import collect
from cirf.statistics import compare, mcnemar
from cirf.store.files import write_atomic, write_rows
from cirf.store.jsonl import read_rows
from cirf.store.paths import without_folders
from cirf.store.run_folder import record


@pytest.fixture(scope="module")
def archived(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished run's archive; copy it to change it."""
    out = tmp_path_factory.mktemp("archived") / "results"
    said = tinyrun.cirf("archive", finished, "--out", out)
    assert said.code == 0, said.err
    assert "1 run, 0.0" in said.out
    return out


def test_no_text_of_the_data_or_the_models_and_no_place_is_in_it(
    archived: Path, finished: Path, workshop: tinyrun.Workshop
) -> None:
    assert {path.name for path in archived.iterdir()} == {"answers.parquet", "measured.json"}
    assert sum(path.stat().st_size for path in archived.iterdir()) < 50_000
    answers = pandas.read_parquet(archived / "answers.parquet")
    held = answers.to_json() + (archived / "measured.json").read_text(encoding="utf-8")
    for row in [*read_rows(workshop.train), *read_rows(workshop.test)]:
        assert row["question"] not in held
        assert not any(step in held for step in row["rationale"].splitlines())
    outputs = {row["output"] for file in finished.glob("evaluation/*/*.jsonl") for row in read_rows(file)}
    assert not any(output in held for output in outputs if len(output) > 10)
    assert str(workshop.train.parent) not in held


def test_its_answers_are_a_table_with_a_row_an_answer(archived: Path, finished: Path) -> None:
    answers = pandas.read_parquet(archived / "answers.parquet")
    report = json.loads((finished / "report.json").read_text())
    summary = answers.groupby("method")
    for column, key in (("correct", "accuracy"), ("tokens", "tokens"), ("truncated", "truncated"), ("unparsed", "unparsed")):
        assert summary[column].mean().to_dict() == pytest.approx({name: row[key] for name, row in report["methods"].items()})
    parsed = {
        (path.parent.name, path.stem, row["id"]): row["parsed"]
        for path in finished.glob("evaluation/*/*.jsonl")
        for row in read_rows(path)
    }
    keys = {(row.method, row.task, row.id): row.answer_key for row in answers.itertuples()}
    assert {place for place, answer in parsed.items() if not answer} == {place for place, key in keys.items() if pandas.isna(key)}
    for one, key in keys.items():
        for other in keys:
            if one[1:] == other[1:] and parsed[one] and parsed[other]:
                assert (key == keys[other]) == (parsed[one] == parsed[other])
    seconds = summary["seconds"].mean().to_dict()
    assert seconds == pytest.approx({name: row["latency_mean_s"] for name, row in report["methods"].items()}, rel=1e-4)
    codes = summary["codes"].agg(lambda found: sum(map(len, found)))
    assert codes["cirf_full"] == report["codebook"]["written"] > 0 == codes["cot"]
    assert set(answers["run"]) == {"run"}


def test_an_answer_of_several_runs_has_its_own_seconds(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    answers, times = run / "evaluation" / "cot" / "sums.jsonl", run / "latency" / "timings.json"
    rows = read_rows(answers)
    write_rows(answers, [row | {"run": number} for number in range(2) for row in rows])
    timed = [
        {"method": "cot", "task": "sums", "id": rows[0]["id"], "run": number, "seconds": 1.0 + number} for number in range(2)
    ]
    write_atomic(times, json.dumps({"rows": timed}))
    write([Run(run, lambda: json.loads((finished / "report.json").read_text()))], tmp_path / "archive")
    found = pandas.read_parquet(tmp_path / "archive" / "answers.parquet")
    assert sorted(found[found.method == "cot"].seconds.dropna()) == [1.0, 2.0]


def test_its_report_has_the_run_s_numbers(archived: Path, finished: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(archived, tmp_path / "copy")
    assert tinyrun.cirf("report", copy).code == 0
    ours, theirs = (json.loads((folder / "report.json").read_text()) for folder in (copy, finished))
    for summary in (*ours["training"].values(), *theirs["training"].values()):
        del summary["settings"]  # they name files, of which the archive keeps the names alone
        summary["train"] = [[update, round(loss, 4)] for update, loss in summary["train"]]
    for part in ("methods", "comparisons", "training", "latency", "data", "environment", "verdict"):
        assert ours[part] == theirs[part], part
    label = next(row["label"] for row in theirs["codebook"]["codes"] if row["count"])
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert "cirf_full" in page and "direct_sft" in page and label in page


def test_the_documentation_has_pictures_of_archives(archived: Path, tmp_path: Path) -> None:
    pictures.main([str(archived), str(tmp_path / "picture.svg"), "--without", "direct_sft"])
    svg = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert svg.startswith('<svg style="background:#fff"')
    assert "CIRF: " in svg and "Direct, fine-tuned: " not in svg


def test_analyses_of_answers_are_those_of_the_run(archived: Path, finished: Path, tmp_path: Path) -> None:
    summary = []
    of_answers = ("pareto", "pairs", "difficulty")
    for name, folder, asked in (("run", archived, ()), ("finished", finished, of_answers)):
        said = tinyrun.cirf("analyze", shutil.copytree(folder, tmp_path / name), *asked, "--json")
        assert said.code == 0, said.err
        summary.append(without_folders(json.loads(said.out)))
    ours, theirs = summary
    assert "an archive has no codes" in ours["left_out"]["clustering"]
    for name in of_answers:
        assert ours["analyses"][name]["tables"] == theirs["analyses"][name]["tables"]


def test_it_keeps_trials_the_size_of_the_backbone_and_which_rationales_it_learned(
    workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"finetune__adaptation": "lora", "finetune__learning_rates": [0.001, 0.002]}
    keys["finetune__trial_epochs"] = 0.5
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], **keys)
    run, out = tmp_path / "run", tmp_path / "archive"
    said = tinyrun.cirf("run", recipe, "--out", run, "--until", "evaluation")
    assert said.code == 0, said.err
    assert tinyrun.cirf("archive", run, "--out", out).code == 0
    kept = find(out)
    assert kept is not None
    ours, theirs = (
        points_of(TrainedBackbone("tiny", [one]), "in", ["cirf_full"]) for one in (kept, Run(run, lambda: collect(run)))
    )
    assert ours[0]["parameters"] == theirs[0]["parameters"] > 1000
    trials = json.loads((run / "models" / "cirf_full" / "trials.json").read_text())["trials"]
    assert kept.trials == {"cirf_full": {str(one["learning_rate"]): one["validation_loss"] for one in trials}}
    assert near.rationales(out) == near.rationales(run)


def test_passages_that_questions_share_are_left_out(finished: Path, tmp_path: Path) -> None:
    data = json.loads((finished / "report.json").read_text())
    pair = {"test": "a", "train": "b", "share": 1.0, "words": "box 0 gets 8 apples"}
    data["data"]["reports"]["problems"]["overlap"]["tasks"]["sums"]["examples"] = [pair]
    write([Run(finished, lambda: data)], tmp_path)
    kept = find(tmp_path)
    assert kept is not None
    overlap = kept.data["data"]["reports"]["problems"]["overlap"]
    assert overlap["words"] == 13 and overlap["tasks"]["sums"]["examples"] == [{**pair, "words": ""}]


def test_methods_trained_apart_meet_in_one_run(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    for stage in ("models/direct_sft", "evaluation/direct_sft"):  # as where another machine trained it
        shutil.rmtree(run / stage)
        shutil.copytree(finished / stage, run / stage)
    before = tinyrun.stages(run)
    assert tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml"), "--out", run).code == 0
    assert not tinyrun.remade(before, tinyrun.stages(run))


def test_what_is_no_archive_and_what_is_nothing_yet_is_refused(
    archived: Path, finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    write_atomic(full / "notes.txt", "mine")
    for folder in (full, finished):
        assert "not empty, and no archive" in tinyrun.cirf("archive", finished, "--out", folder).error()
    assert "not a run's folder" in tinyrun.cirf("archive", full, "--out", tmp_path / "new").error()
    recipe = workshop.recipe(tmp_path / "recipe.yaml")
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "begun", "--until", "problems").code == 0
    assert "nothing was evaluated yet" in tinyrun.cirf("archive", tmp_path / "begun", "--out", tmp_path / "new").error()
    assert "already an archive" in tinyrun.cirf("archive", archived, "--out", tmp_path / "new").error()
    assert not (tmp_path / "new").exists()
    copy = shutil.copytree(archived, tmp_path / "copy")
    assert "give a run of the archive" in tinyrun.cirf("report", copy / "other").error()
    measured = json.loads((copy / "measured.json").read_text())
    (point,) = measured["points"]
    about = measured["runs"][point["run"]]
    for odd in (
        {"points": []},
        {"runs": {point["run"]: []}},
        {"runs": {point["run"]: about | {"report": {}}}},
        {"runs": {point["run"]: about | {"report": about["report"] | {"methods": {"cot": []}}}}},
        {"points": [point | {"run": "../x"}], "runs": {"../x": about}},
    ):
        (copy / "measured.json").write_text(json.dumps(measured | odd))
        for command in ("report", "analyze"):
            assert "a damaged archive" in tinyrun.cirf(command, copy).error()
    named = {"runs": {point["run"]: about | {"report": about["report"] | {"left_out": ["\x1b[2Jevaluation"]}}}}
    (copy / "measured.json").write_text(json.dumps(measured | named))
    assert r": \x1b[2Jevaluation" in tinyrun.cirf("report", copy).out
    (copy / "measured.json").write_text(json.dumps(measured))
    for content in (b"PAR1", None):
        (copy / "answers.parquet").unlink()
        if content is not None:
            (copy / "answers.parquet").write_bytes(content)
        with pytest.raises(CirfError, match="a damaged archive"):
            find(copy)
    assert "not a run's folder" in tinyrun.cirf("status", copy).error()


@pytest.mark.parametrize("name", ["../../../victim.jsonl", "/victim.jsonl", "a/../../victim.jsonl"])
def test_a_record_that_names_files_outside_of_its_stage_is_refused(finished: Path, tmp_path: Path, name: str) -> None:
    run, victim = shutil.copytree(finished, tmp_path / "run"), tmp_path / "victim.jsonl"
    victim.write_text('{"mine": 1}\n')
    path = run / "evaluation" / "cirf_full" / "stage.json"
    summary = json.loads(path.read_text())
    summary["files"] |= {name: "0" * 64}
    path.write_text(record(summary))
    said = tinyrun.cirf("archive", run, "--out", tmp_path / "out" / "deep" / "archive")
    assert said.code == 2 and "stage.json: missing or changed" in said.err
    assert victim.read_text() == '{"mine": 1}\n'


@pytest.mark.parametrize(
    "command",
    [
        ["status"], ["show"], ["evaluate"], ["probe"], ["codes"], ["ask", "How many?"], ["label", "1=adds"],
        ["export", "--gguf", "file"], ["push", "--to", "me/it"],
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_needs_the_run_says_that_an_archive_is_none_and_what_reads_it(archived: Path, command: list[str]) -> None:
    for place in (archived, archived / "run"):
        if place != archived and command[0] in ("evaluate", "probe"):
            continue  # no folder, so it may be a hub id
        said = tinyrun.cirf(command[0], place, *command[1:]).error()
        assert f"{place}: an archive of measured numbers (answers.parquet, measured.json), without questions" in said
        assert f"`cirf report {place}` and `cirf analyze {archived}` read it" in said


# The tables of the pages of results are what the archives say

HERE = result_tables.ROOT
TASKS = ("sums",)
PAGE = "# Numbers\n\n<!-- table: one -->\n<!-- end -->\n\nThe end.\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of two archives in a folder of its own, one question of which only the first asked."""
    monkeypatch.setattr(result_tables, "ROOT", tmp_path)
    for run, right in {"first": (1, 1, 0, 1), "second": (1, 0, 0)}.items():
        for method, flip in {"ours": 0, "theirs": 1}.items():
            rows = [
                {"id": f"q{place}", "correct": bool(one ^ flip), "tokens": 10 * (1 + flip), "unparsed": not one}
                for place, one in enumerate(right)
            ]
            write_rows(tmp_path / "results" / run / "evaluation" / method / "sums.jsonl", rows)
    ours, theirs = Trained("ours", ("first",)), Trained("theirs", ("first",))
    both = Trained("ours", ("first", "second"))
    lines = [Line("ours", ours, texts=("a word",)), Line("both seeds", both, texts=(lambda: "counted",)), Line("theirs", theirs)]
    columns = {
        "right": accuracy(TASKS),
        "above": less(TASKS, theirs),
        "tokens": tokens(TASKS),
        "share": tokens_share(TASKS, theirs),
        "unparsed": rate(TASKS, "unparsed"),
        "note": text(),
    }
    return Table("one", "method", columns, lines, "n = {all}.")


def test_a_table_is_what_the_rows_say(table: Table) -> None:
    head, rule, *lines, blank, caption = render(table, {"all": TASKS}).splitlines()
    assert head == "| method | right | above | tokens | share | unparsed | note |" and rule.count("---") == 7
    assert lines == [
        "| ours | 75.0 [30.1, 95.4] | +50.0 [-34.7, 100.0] | 10.0 | 0.500 | 25 | a word |",
        "| both seeds | 54.2 [14.4, 89.2] | +16.7 [-60.1, 80.1] | 10.0 | 0.500 | 43 | counted |",
        "| theirs | 25.0 [4.6, 69.9] |  | 20.0 | 1.000 | 25 |  |",
    ]
    assert (blank, caption) == ("", "n = 4.")
    assert render(dataclasses.replace(table, caption=""), {}).endswith(f"{lines[-1]}\n")


def test_a_page_that_differs_is_named_and_mended(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.research.result_specs.TABLES", (table,))
    monkeypatch.setattr("docs.research.result_specs.GROUPS", {"all": TASKS})
    page = tmp_path / "docs" / "numbers.md"
    page.parent.mkdir()
    page.write_text(PAGE, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"differ from the archives in docs/numbers\.md"):
        result_tables.main(["--check"])
    assert page.read_text(encoding="utf-8") == PAGE
    result_tables.main([])
    made = page.read_text(encoding="utf-8")
    assert made.startswith("# Numbers\n\n<!-- table: one -->\n| method") and "| ours | 75.0" in made
    assert made.endswith("\n<!-- end -->\n\nThe end.\n")
    result_tables.main(["--check"])
    assert capsys.readouterr().out.splitlines() == ["changed: docs/numbers.md", "all tables are up to date"]
    page.write_text(PAGE.replace("one", "other"), encoding="utf-8")
    with pytest.raises(CirfError, match="no table is called other"):
        result_tables.main([])


@pytest.mark.slow
@pytest.mark.skipif(not (HERE / "results").is_dir(), reason="the archives are in the repository alone")
def test_the_pages_hold_what_the_archives_say() -> None:
    result_tables.main(["--check"])


needs_figures = pytest.mark.skipif(not (HERE / "results").is_dir(), reason="the figures are in the repository alone")


@needs_figures
def test_figures_without_answers_are_all_shown_and_say_what_printed_them() -> None:
    specs = "".join(path.read_text(encoding="utf-8") for path in SPECS)
    assert not [name for name in figures() if not re.search(rf"""["']{name}["']""", specs)]
    assert not [name for name, entry in figures().items() if not ("command" in entry or "setup" in entry)]
    pages = {name: block for page in result_tables.pages() for block, name in shown(page)}
    for table in FIGURE_TABLES:
        assert render(table, {}) in pages[table.name], table.name


SPECS = [HERE / "docs" / "research" / name for name in ("result_specs.py", "figure_specs.py")]
MEASURED = re.compile(r"\d\.\d|\b(?<!/)\d+ of (?:its |the |them|\d)|\[-?\d|\d %|p = \d")
SETTINGS = re.compile(
    r"[Qq]wen2\.5|[01]\.5[bB]|p < 0\.05|95 %|at least 0\.85 of|weight(?:ed)? 0\.1"
    r"|after 60 % of the updates|among 32 has 3\.47|84\.4 against 76\.2 %|the paper has 68\.4 %"
)
"""Settings, thresholds and figures of the paper, which stay words."""


@needs_figures
@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_no_result_is_typed_into_a_sentence(spec: Path) -> None:
    tree = ast.parse(spec.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
    words = [SETTINGS.sub("", re.sub(r"\{[^{}]*\}", "", one)) for one in found if isinstance(one, str)]
    typed = [one for one in words if MEASURED.search(one)]
    assert not typed, "read these figures from an archive or from results/figures.json"


def shown(page: Path) -> list[tuple[str, str]]:
    """The tables of a page and their names."""
    return [(found[0], found[2]) for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@needs_figures
@pytest.mark.parametrize("count", ["right", "well_formed", "truncated", "correct", "multiarith", "wrong"])
def test_a_count_is_at_most_the_number_that_it_is_of(count: str) -> None:
    of = {"multiarith": "n_multiarith", "wrong": "states"}.get(count, "n")
    found = [(row[count], row[of]) for name in figures() for row in rows(name) if count in row]
    assert found
    for counted, n in found:
        assert not isinstance(counted, dict) or counted.keys() == n.keys()
        counts = several(counted)
        most = several(n) if isinstance(n, dict | list) else [n] * len(counts)
        assert all(isinstance(one, int) and 0 <= one <= limit for one, limit in zip(counts, most, strict=True))


def discordant(net: int, n: int, interval: list[float]) -> list[int]:
    """The numbers of discordant questions with which a difference has this interval, rounded as it was printed."""
    found = []
    for many in range(abs(net), n + 1, 2):
        wins = (many + net) // 2
        first, second = ({str(place): float(place in won) for place in range(n)} for won in (range(wins), range(wins, many)))
        if [round(100 * end, 1) for end in compare(first, second).interval] == interval:
            found.append(many)
    return found


def differences() -> list[tuple[int, int, list[float], bool | None]]:
    """Printed paired differences: questions won less lost, all questions, the interval, and whether it was significant."""
    (first, *others), settings = rows("left-open"), rows("settings")
    found = [(row["right"] - first["right"], row["n"], row["interval"], row.get("significant", False)) for row in others]
    for row in settings:
        for one in (one for one in row.get("differences", []) if "interval" in one):
            task = one["task"]
            net = row["right"][task] - settings[one["to"]]["right"][task]
            found.append((net, row["n"][task], one["interval"], None))
    told = [
        row
        for name in figures()
        for row in rows(name)
        if "interval" in row and ("more" in row or isinstance(row.get("right"), list))
    ]
    for row in told:
        net = row["more"] if "more" in row else row["right"][0] - row["right"][1]
        found.append((net, row["n"], row["interval"], None))
    return found


@needs_figures
def test_a_printed_difference_is_one_that_the_counts_allow() -> None:
    for net, n, interval, significant in differences():
        possible = discordant(net, n, interval)
        assert possible, (net, n, interval)
        if significant is not None:
            assert {mcnemar((many + net) // 2, (many - net) // 2) < 0.05 for many in possible} == {significant}


def test_every_table_is_on_one_page() -> None:
    found = Counter(name for page in result_tables.pages() for _, name, _ in BLOCK.findall(page.read_text(encoding="utf-8")))
    assert found == Counter(table.name for table in TABLES)
