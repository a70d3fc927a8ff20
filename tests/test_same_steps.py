"""Steps that say the same and have different codes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from benchmarks import same_steps

from cirf.files import write_rows


def test_the_same_step_with_two_codes_costs_its_entropy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "problems" / "validation.jsonl", [{"id": "held"}])
    rows = {
        "a": (["Add 3 and 4.", "So 1,200.5"], [1, 2]),
        "b": (["add 30 and 4.", "So 1,200.5"], [0, 2]),
        "held": (["So 1,200.5"], [7]),
    }
    segments = [{"problem": name, "sample": 0, "segments": steps} for name, (steps, _) in rows.items()]
    segments.append({"problem": "a", "sample": 1, "segments": ["Add 5 and 6."]})  # of the same question, with a code of its own
    write_rows(tmp_path / "segments" / "segments.jsonl", segments)
    codes = [{"problem": name, "sample": 0, "codes": held} for name, (_, held) in rows.items()]
    codes.insert(0, {"problem": "a", "sample": 1, "codes": [1]})
    write_rows(tmp_path / "codebook-8" / "codes.jsonl", codes)
    same_steps.main([str(tmp_path), "--size", "8"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["same"] == {"steps": 5, "twins": 2, "several": 0, "nats": 0.0}
    assert [told["masked"][key] for key in ("steps", "twins", "several")] == [5, 5, 3]
    assert told["masked"]["nats"] == pytest.approx((2 * math.log(3 / 2) + math.log(3)) / 5)
    assert same_steps.masked("Is 4.") != same_steps.masked("is 4")
