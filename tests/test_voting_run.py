"""Votes in a whole run: what is drawn, kept, compared with, and written on the page."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml

from cirf.evaluation import engines
from cirf.lm.backbone import load_model
from cirf.lm.decoding import generate as decode
from cirf.recipe.schema import Backbone
from cirf.report.page import percent, tokens
from cirf.store.jsonl import read_rows

OWN = ("--protocol", "own", "--quiet", "--limit", "4")
OWN += ("--set", "evaluate.voting.problems=3", "--set", "evaluate.max_completion_tokens=12")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The number of the first answer and how many, of every draw of votes."""
    found: list[tuple[int, int]] = []
    sample = decode.sample_many

    def counting(*given: Any, **named: Any) -> list[decode.Output]:
        found.append((given[6], given[4]))
        return sample(*given, **named)

    monkeypatch.setattr(decode, "sample_many", counting)
    yield found


def test_the_engine_of_evaluations_draws_the_votes(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, list[int]]] = []

    class Engine:
        """Decodes as vLLM is asked to, with transformers."""

        version = "vLLM"

        def __init__(self, source: Path, tokenizer: Any, section: Backbone) -> None:
            self.model, self.tokenizer = load_model(source, section, training=None), tokenizer

        def generate(
            self, prompts: list[str], cap: int, temperature: float, top_p: float, seed: int, votes: Any = None
        ) -> list[decode.Output]:
            if votes is None:
                return decode.generate(self.model, self.tokenizer, prompts, cap, decode.Decoding(temperature, top_p, seed))
            asked.append((len(set(prompts)), list(votes)))
            how, firsts = decode.Decoding(temperature, top_p, seed), dict(zip(reversed(prompts), reversed(votes), strict=True))
            given = [(prompt, prompts.count(prompt), firsts[prompt]) for prompt in dict.fromkeys(prompts)]
            draws = [decode.sample_many(self.model, self.tokenizer, one, cap, count, how, first) for one, count, first in given]
            return [output for outputs in draws for output in outputs]

    monkeypatch.setattr(engines, "check_vllm", lambda: None)
    monkeypatch.setattr(engines, "engine", lambda *given: contextlib.nullcontext(Engine(*given[:3])))
    found = []
    for name in ("transformers", "vllm"):
        out = tmp_path / name
        sets = ("--set", f"evaluate.engine={name}", "--set", "evaluate.latency_questions=0", "--set", "evaluate.batch_size=2")
        said = tinyrun.cirf("evaluate", finished, "--votes", "1,4", *OWN, *sets, "--out", out)
        assert said.code == 0, said.err
        found.append(read_rows(out / "votes" / "cirf_full" / "sums.jsonl"))
        voting = json.loads((out / "voting" / "cirf_full" / "voting.json").read_text())
        assert voting.get("engine") == (None if name == "transformers" else "vLLM, float32")
    assert found[0] == found[1] and asked == [(2, [0, 1, 2, 3] * 2), (1, [0, 1, 2, 3])]
    assert "vLLM, float32" in (out / "report.html").read_text()


def test_votes_are_drawn_once_whatever_is_done_with_them(finished: Path, tmp_path: Path, calls: list[tuple[int, int]]) -> None:
    out = tmp_path / "out"

    def made(votes: str, *sets: str) -> set[str]:
        before = tinyrun.stages(out)
        more = [part for one in ("evaluate.latency_questions=0", *sets) for part in ("--set", one)]
        said = tinyrun.cirf("evaluate", finished, "--votes", votes, *OWN, *more, "--out", out)
        assert said.code == 0, said.err
        drawn = [len(row["votes"]) for row in read_rows(out / "votes" / "cirf_full" / "sums.jsonl")]
        assert drawn == [max(map(int, votes.split(",")))] * 3
        return {name for name in tinyrun.remade(before, tinyrun.stages(out)) if name.startswith(("vot", "eval"))}

    made("1,2,4")
    assert calls == [(0, 4)] * 3
    four = read_rows(out / "votes" / "cirf_full" / "sums.jsonl")
    assert made("1,4") == {"voting/cirf_full"}
    assert made("2") == {"votes/cirf_full", "voting/cirf_full"} and calls == [(0, 4)] * 3
    two = read_rows(out / "votes" / "cirf_full" / "sums.jsonl")
    assert [row["votes"] for row in two] == [row["votes"][:2] for row in four]
    assert made("6") == {"votes/cirf_full", "voting/cirf_full"} and calls == [(0, 4)] * 3 + [(4, 2)] * 3
    assert [row["votes"][:4] for row in read_rows(out / "votes" / "cirf_full" / "sums.jsonl")] == [row["votes"] for row in four]
    made("2", "evaluate.voting.temperature=1.5")
    assert calls[6:] == [(0, 2)] * 3


def test_votes_of_a_run_are_those_of_its_recipe(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["evaluate"]["voting"] |= {"method": "direct_sft"}
    recipe["evaluate"] |= {"latency_questions": 0, "max_new_tokens": 4}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))

    def voter(*arguments: str) -> str:
        out = tmp_path / "-".join(["out", *arguments])
        said = tinyrun.cirf("evaluate", run, "--votes", "2", *OWN, *arguments, "--out", out, "--json")
        assert said.code == 0, said.err
        return str(json.loads(said.out)["voting"]["method"])

    assert voter() == "direct_sft"
    assert voter("--method", "cot") == "cot"


def test_the_same_numbers_of_votes_are_the_same_command(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    for numbers in ("1,3", "3,1,3"):
        keys = ("--method", "direct_sft", "--limit", "2", "--set", "evaluate.latency_questions=0")
        assert tinyrun.cirf("evaluate", run, "--votes", numbers, *keys, "--quiet").code == 0
    assert len(list(run.glob("evaluations/*"))) == 1


def test_what_votes_answer_is_printed(finished: Path, tmp_path: Path) -> None:
    keys = (*OWN, "--set", "evaluate.latency_questions=0", "--out", tmp_path / "out")
    said = tinyrun.cirf("evaluate", finished, "--votes", "1,2", *keys)
    assert said.code == 0, said.err
    found = json.loads((tmp_path / "out" / "voting" / "cirf_full" / "voting.json").read_text())
    one, _ = found["curve"]
    lines = said.out.splitlines()
    assert any(line.startswith(f"cirf_full: {one['accuracy']:.1%} (") and "cot, one answer: " in line for line in lines)


def test_votes_of_a_method_that_is_not_reported_are_not_reported(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    keys = (*OWN, "--set", "evaluate.latency_questions=0", "--out", out)
    assert tinyrun.cirf("evaluate", finished, "--votes", "2", *keys).code == 0
    recipe = yaml.safe_load((out / "recipe.yaml").read_text())
    recipe |= {"methods": ["cirf_full", "direct_sft"], "models": dict.fromkeys(("cirf_full", "direct_sft"), "/gone")}
    (out / "recipe.yaml").write_text(yaml.safe_dump(recipe))  # the cost of its answers is unknown
    said = tinyrun.cirf("report", out, "--json")
    assert said.code == 0, said.err
    report = json.loads(said.out)
    assert list(report["methods"]) == ["cirf_full", "direct_sft"] and report["voting"] is None


def test_votes_must_be_of_a_method_that_is_there(finished: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (("--votes", "0"), "--votes 0"),
        (("--votes", "2", "--set", "evaluate.voting.method=sft_cot"), "evaluate.voting.method"),
    ):
        assert said in tinyrun.cirf("evaluate", finished, *arguments, "--protocol", "own", "--out", tmp_path / "out").error()


@pytest.mark.slow
def test_the_page_shows_what_the_stages_found(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (
        "evaluate",
        finished,
        "--votes",
        "1,2,4",
        *OWN,
        "--set",
        "evaluate.latency_questions=0",
        "--out",
        out,
        "--json",
    )
    said = tinyrun.cirf(*arguments)
    assert said.code == 0, said.err
    report = json.loads(said.out)
    kept = tinyrun.artefacts(out)
    assert json.loads(tinyrun.cirf(*arguments).out) == report and tinyrun.artefacts(out) == kept
    found = json.loads((out / "voting" / "cirf_full" / "voting.json").read_text())
    assert found["against"] == "cot"
    rows = read_rows(out / "evaluation" / "cot" / "sums.jsonl")[:3]
    assert found["alone"]["accuracy"] == sum(row["correct"] for row in rows) / 3 and found["alone"]["n"] == 3
    table = _table((out / "report.html").read_text(), "Votes")
    for cells, point in zip(table, [*found["curve"], found["alone"] | {"votes": 0}], strict=True):
        low, high = point["interval"]
        assert cells["Votes"] == (str(point["votes"]) if point["votes"] else "CoT, untrainedone answer")
        assert cells["Accuracy"] == percent(point["accuracy"]) and cells["Questions"] == str(point["n"])
        assert cells["95 % interval"] == f"{100 * low:.1f} to {percent(high)}"
        assert (cells["Unparsed"], cells["Truncated"]) == (percent(point["unparsed"]), percent(point["truncated"]))
        assert cells["Tokens"] == tokens(point["tokens"])
    assert "Accuracy by number of votes" in (out / "report.html").read_text()


def _table(page: str, label: str) -> list[dict[str, str]]:
    """The rows of a table, by column."""
    from xml.etree import ElementTree

    start = page.index("<table", page.index(f'aria-label="{label}"'))
    tree = ElementTree.fromstring(page[start : page.index("</table>", start)].replace("<br>", "") + "</table>")
    head = ["".join(cell.itertext()) for cell in tree.iter("th") if cell.get("scope") is None]
    body = tree.find("tbody")
    assert body is not None
    return [dict(zip(head, ["".join(cell.itertext()).strip() for cell in row], strict=True)) for row in body]
