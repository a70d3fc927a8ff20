"""A run's ``sft.jsonl`` in stock TRL: it trains on the very ids that our trainer does. Skipped where TRL is not installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun

from cirf.lm.backbone import load_tokenizer
from cirf.lm.batches import Row, collate, tokenise
from cirf.lm.prompt import end_token, prompt_text
from cirf.methods import get
from cirf.recipe_io import load
from cirf.stages.context import Context
from cirf.store import RunFolder

HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed (pip install trl)")
@pytest.mark.parametrize("name", ["cirf_full", "direct_sft"])
def test_trl_trains_on_what_we_train_on(finished: Path, tmp_path: Path, name: str) -> None:
    context = Context(load(str(finished / "recipe.yaml")), RunFolder(finished))
    method, folder = get(name, context.recipe), finished / "models" / name
    tokenizer = load_tokenizer(folder)
    rows = [
        Row(prompt_text(tokenizer, method.training_prompt(example, context.tasks[example.problem.task])), method.target(example))
        for example in context.examples(method)[0]
    ]
    added = [token for text, token in tokenizer.get_added_vocab().items() if "cirf" in text]
    features, dropped = tokenise(rows, tokenizer, 10**6, added)
    assert len(features) == 36 and not dropped and len(added) == (6 if method.functional else 0)

    end = tokenizer.convert_ids_to_tokens(end_token(tokenizer))
    script = [
        sys.executable,
        str(HERE / "training_with_trl.py"),
        str(folder),
        str(folder / "sft.jsonl"),
        end,
        str(tmp_path / "out"),
    ]
    environment = tinyrun.ENVIRONMENT | {"HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    labels = collate(features, 0)["labels"].tolist()
    for feature, learned, taught in zip(features, labels, told["taught"], strict=True):
        assert taught == {"ids": list(feature.ids), "labels": learned[: len(feature.ids)]}
    assert len(told["losses"]) == 3 and told["losses"][-1] < told["losses"][0]
