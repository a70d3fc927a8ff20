"""A run from a stranger: to look at it runs none of the Python that came with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tinyrun
import yaml

LOOKS = (
    ["status"],
    ["status", "--verify"],
    ["show"],
    ["report"],
    ["analyze"],
    ["archive", "--out", "archive"],
    ["push", "--to", "me/theirs", "--dry-run"],
)


@pytest.fixture
def theirs(finished: Path, tmp_path: Path) -> Path:
    """A finished run whose recipe names a method of its own besides."""
    run = shutil.copytree(finished, tmp_path / "theirs")
    (run / "notes.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).write_text('!')\nMETHOD = None\n")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["methods"].append(str(run / "notes.py"))
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return run


def test_looking_runs_nothing_that_came_with_a_run(theirs: Path, tmp_path: Path) -> None:
    for command, *options in LOOKS:
        said = tinyrun.cirf(command, theirs, *(tmp_path / one if one == "archive" else one for one in options))
        assert not (tmp_path / "ran").exists(), command
        assert "Traceback" not in said.err, said.err
    summary = " ".join(tinyrun.cirf("status", theirs).out.split())
    assert "notes.py: Python code named by this run; if you trust it, add --trust-remote-code" in summary


def test_who_trusts_a_run_has_its_code_run(theirs: Path, tmp_path: Path) -> None:
    said = tinyrun.cirf("status", theirs, "--trust-remote-code")
    assert (tmp_path / "ran").exists() and "defines no METHOD" in said.out


NESTED = b"[" * 5000
INSIDE = b"[" * 400 + b"]" * 400  # which Python reads, and cannot write with indents


@pytest.mark.parametrize("text", [NESTED, b'{"a": ' + INSIDE + b"}", b"\xff\xfe\x00"], ids=["endless", "deep", "binary"])
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("models/cirf_full/functions.json", ["ask", "How many?"]),
        ("models/cirf_full/sft.jsonl", ["ask", "How many?"]),
        ("models/cirf_full/functions.json", ["codes"]),
        ("codebook-4/codebook.json", ["codes", "One and one is two."]),
        ("codebook-4/codebook.json", ["report"]),
        ("evaluation/cot/scores.json", ["show"]),
        ("evaluation/cot/timings.json", ["status"]),
        ("evaluation/cot/stage.json", ["status"]),
        ("evaluation/cot/stage.json", ["report"]),
        ("models/cirf_full/model.safetensors", ["analyze"]),
        ("codebook-4/codebook.safetensors", ["analyze"]),
        ("models/cirf_full/history.json", ["analyze"]),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_no_file_of_a_run_ends_a_command_in_a_traceback(
    finished: Path, tmp_path: Path, file: str, command: list[str], text: bytes
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / file).chmod(0o644)
    (run / file).write_bytes(text)
    said = tinyrun.cirf(command[0], run, *command[1:])
    assert "Traceback" not in said.err, said.err
    assert said.code in (0, 1) or said.error()


def test_no_text_of_a_run_commands_the_terminal(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    path = run / "evaluation/cot/sums.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["prompt"], row["output"], row["parsed"] = "\x1b[2Jquestion\x9b1m", "\x1b]0;title\x07", "\x1b[8m\u202e4"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    functions = json.loads((run / "models/cirf_full/functions.json").read_text())
    for code in functions["codes"].values():
        code["examples"] = ["\x1b[2Jstep"]
    (run / "models/cirf_full/functions.json").write_text(json.dumps(functions))
    shown = tinyrun.cirf("show", run, "--method", "cot").out + tinyrun.cirf("codes", run).out
    assert r"\x1b[2Jquestion\x9b1m" in shown and r"\x1b[2Jstep" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
