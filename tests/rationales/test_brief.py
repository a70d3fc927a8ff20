"""Rationales in a few words: by the rule, by a model, and where a model says too much or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty import Server, serve

from cirf import recipe
from cirf.errors import CirfError
from cirf.files import RowLog
from cirf.rationales.brief import briefly, briefly_by_model
from cirf.records import Problem, Steps

PROBLEMS = {
    name: Problem(name, "gsm8k", f"How many clips in box {name}?", answer)
    for name, answer in (("a", "72"), ("b", "9"), ("c", "4"))
}
STEPS = [
    Steps("a", 0, "line", ("48/2 = 24 clips were sold in May.", "48+24 = 72 clips were sold in all by her.")),
    Steps("b", 0, "line", ("It is 9.",)),
    Steps("c", 0, "line", ("There are 2 + 2 = 4 clips, which is all that there is to say of it.",)),
]


def test_the_rule_keeps_what_matters_most_on_one_line() -> None:
    found = briefly(STEPS, PROBLEMS, 6)
    assert [brief.by for brief in found] == ["rule"] * 3
    assert found[0].text == "48/2 = 24 48+24 = 72" and found[1].text == "It is 9."
    assert "2 + 2 = 4" in found[2].text and len(found[2].text.split()) == 6
    assert [len(brief.text.split()) for brief in briefly(STEPS, PROBLEMS, 2)] == [2, 2, 2]


def test_a_model_writes_is_cut_and_stood_in_for(tmp_path: Path) -> None:
    said = {"box a": "Half of 48,\n plus 48", "box b": "  ", "box c": "Add 2 and 2 to have 4 and then say so at once"}

    def reply(body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        return next(text for name, text in said.items() if name in asked)

    log = RowLog(tmp_path / "log.jsonl")
    with serve(Server(reply)) as server:
        endpoint = recipe.Endpoint(url=server.url, model="m")
        section = recipe.ResultWriter(endpoints=(endpoint,), retries=2)
        found = briefly_by_model(STEPS, PROBLEMS, 5, section, log, 1)
        again = briefly_by_model(STEPS, PROBLEMS, 5, section, RowLog(tmp_path / "log.jsonl"), 1)
        assert len(server.asked) == 3 + 1  # what was answered is not asked again, what was empty is
        prompt = server.asked[0]["messages"][-1]["content"]
    assert "at most 5 words" in prompt and all(body["temperature"] == 0.2 for body in server.asked)
    assert found == again and [brief.by for brief in found] == ["llm", "rule", "llm, cut"]
    assert found[0].text == "Half of 48, plus 48" and found[1].text == "It is 9." and len(found[2].text.split()) == 5


def test_servers_are_needed_and_must_agree(tmp_path: Path) -> None:
    for endpoints, fault in (((), "name one server"), (("m", "n"), "all must have the same model")):
        section = recipe.ResultWriter(endpoints=tuple(recipe.Endpoint(url="http://x", model=name) for name in endpoints))
        with pytest.raises(CirfError, match=fault):
            briefly_by_model(STEPS, PROBLEMS, 5, section, RowLog(tmp_path / "log.jsonl"), 1)
