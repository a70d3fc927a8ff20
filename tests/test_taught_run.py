"""A run whose rationales and results a language model writes, behind an endpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import nursery
import pytest
import tinyrun

from cirf.store.jsonl import read_rows


def recipe(workshop: tinyrun.Workshop, path: Path, url: str, **keys: Any) -> Path:
    bare = tinyrun.write_jsonl(
        path.with_name("questions.jsonl"),
        [{key: row[key] for key in ("question", "answer")} for row in read_rows(workshop.train)],
    )
    endpoint = {"url": url, "model": "m"}
    made = {
        "methods": ["cirf_full"],
        "evaluate__latency_questions": 0,
        "rationales__source": "teacher",
        "rationales__teacher__endpoints": [endpoint],
        "results__by": "llm",
        "results__writer__endpoints": [endpoint],
        "train": bare,
    }
    return workshop.recipe(path, **(made | keys))


def test_a_run_with_nothing_but_questions_and_an_endpoint(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.endpoints.fleet._FIRST_PAUSE", 0.005)
    faulty = tinyrun.faulty()
    with faulty.serve(faulty.Server(tinyrun.reply, share=0.2, faults=("429", "500", "invalid JSON"))) as server:
        path = recipe(workshop, tmp_path / "recipe.yaml", server.url)
        said = tinyrun.cirf("run", path, "--out", tmp_path / "run", "--dry-run")
        assert said.code == 0 and "40 questions go to 1 model;" in said.out and not server.asked
        said = tinyrun.cirf("run", path, "--out", tmp_path / "run")
        assert said.code == 0, said.err
        summary = json.loads((tmp_path / "run" / "teacher" / "report.json").read_text())["models"]["m"]
        assert summary["answers"] == 40 and 0.5 < summary["right"] < 1 and 2 < summary["steps_mean"] < 3
        rationales = read_rows(tmp_path / "run" / "rationales" / "rationales.jsonl")
        assert len(rationales) == round(40 * summary["usable"]) and {row["source"] for row in rationales} == {"m"}
        assert all(len(row["prompt"]) == 16 for row in rationales)
        results = read_rows(tmp_path / "run" / "results" / "results.jsonl")
        assert all(row["by"] == "llm" and len(row["results"]) == 3 and all(row["results"]) for row in results)
        report = json.loads((tmp_path / "run" / "results" / "report.json").read_text())
        assert report["agreement_with_rule"] == 1.0 and report["share_fallen_back"] == 0 and report["mean_tokens"] > 0
        asked = len(server.asked)
        # Another way of counting what will do is no reason to ask again.
        more = recipe(workshop, tmp_path / "other.yaml", server.url, rationales__check="keep")
        said = tinyrun.cirf("run", more, "--out", tmp_path / "run", "--until", "rationales")
        assert said.code == 0, said.err
        assert len(server.asked) == asked
    said = tinyrun.cirf("run", path, "--out", tmp_path / "run", "--dry-run")
    assert said.code == 0 and "cirf_full:" in said.out, said.err
    said = tinyrun.cirf("check", path)
    assert "--until segments" in said.error()


def test_a_client_killed_while_asking_asks_nothing_twice_that_was_kept(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    faulty = tinyrun.faulty()

    def slow(body: dict[str, Any]) -> str:
        time.sleep(0.15)
        return tinyrun.reply(body)

    log = tmp_path / "run" / "asked" / "rationales.jsonl"
    with faulty.serve(faulty.Server(slow)) as server:
        endpoint = {"url": server.url, "model": "m", "concurrency": 2}
        path = recipe(workshop, tmp_path / "recipe.yaml", server.url, rationales__teacher__endpoints=[endpoint])
        command: list[str | Path] = ["run", path, "--out", tmp_path / "run", "--until", "teacher", "--quiet"]
        said = tmp_path / "said"
        with nursery.python("-m", "cirf", *command, env=tinyrun.ENVIRONMENT, out=said, err=said) as process:
            while not log.exists() or log.read_bytes().count(b"\n") < 12:
                assert process.poll() is None, said.read_text()
                time.sleep(0.02)
        kept = log.read_bytes().count(b"\n")
        again = tinyrun.cirf(*command)
        assert again.code == 0, again.err
    assert 12 <= kept < 40
    rows = read_rows(tmp_path / "run" / "teacher" / "answers.jsonl")
    assert len({row["problem"] for row in rows}) == len(rows) == 40
    assert 40 <= len(server.asked) <= 42, "at most what was under way is asked again"


def test_a_model_in_this_process_teaches(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {
        "rationales__teacher__endpoints": [{"url": "local", "model": str(workshop.backbone)}],
        "rationales__teacher__max_tokens": 12,
    }
    path = recipe(workshop, tmp_path / "recipe.yaml", "http://localhost:9/v1", **keys)
    said = tinyrun.cirf("run", path, "--out", tmp_path / "run", "--until", "teacher")
    assert said.code == 0, said.err
    rows = read_rows(tmp_path / "run" / "teacher" / "answers.jsonl")
    assert len(rows) == 40 and all(row["tokens"] <= 12 for row in rows)
    log = tmp_path / "run" / "asked" / "rationales.jsonl"
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:13]))
    import shutil

    shutil.rmtree(tmp_path / "run" / "teacher")
    assert tinyrun.cirf("run", path, "--out", tmp_path / "run", "--until", "teacher").code == 0
    assert read_rows(tmp_path / "run" / "teacher" / "answers.jsonl") == rows


def test_what_a_recipe_would_send_and_where_is_reported_before_it_is_sent(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_API_KEY", "secret")
    url = "https://teacher.example/v1"
    endpoint = {"url": url, "model": "m", "api_key_env": "THEIR_API_KEY"}
    path = recipe(workshop, tmp_path / "recipe.yaml", url, rationales__teacher__endpoints=[endpoint])
    said = tinyrun.cirf("run", path, "--out", tmp_path / "run", "--dry-run")
    assert said.code == 0 and f"{url}: requests for m, with the API key in THEIR_API_KEY" in said.out, said.err
    endpoint["api_key_env"] = "AWS_SECRET_ACCESS_KEY"
    path = recipe(workshop, tmp_path / "recipe.yaml", url, rationales__teacher__endpoints=[endpoint])
    for more in ([], ["--dry-run"]):
        said = tinyrun.cirf("run", path, "--out", tmp_path / "run", *more)
        assert "AWS_SECRET_ACCESS_KEY, which is not named like an API key" in said.error()
    assert not (tmp_path / "run" / "problems").exists()
    assert tinyrun.cirf("run", path, "--out", tmp_path / "run", "--dry-run", "--allow-env", "AWS_SECRET_ACCESS_KEY").code == 0
