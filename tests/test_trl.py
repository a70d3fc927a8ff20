"""Stock TRL on what a run has made: a ``sft.jsonl``, on the very ids that our trainer learns, and questions with our reward.
Skipped where TRL is not installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun

from cirf.lm.backbone import load_tokenizer
from cirf.lm.decoding.generate import output_of
from cirf.lm.prompt import end_token, prompt_text
from cirf.lm.training.batches import Row, collate, tokenise
from cirf.methods import get
from cirf.recipe.load import load
from cirf.stages.context import Context
from cirf.store.run_folder import RunFolder

HERE = Path(__file__).parent


@pytest.mark.engine
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
    summary = json.loads(done.stdout.splitlines()[-1])
    labels = collate(features, 0)["labels"].tolist()
    for feature, learned, taught in zip(features, labels, summary["taught"], strict=True):
        assert taught == {"ids": list(feature.ids), "labels": learned[: len(feature.ids)]}
    assert len(summary["losses"]) == 3 and summary["losses"][-1] < summary["losses"][0]


REWARDED = """
import json, sys
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer
from cirf.stages.rewards import for_trl
model, rows, reward = for_trl(sys.argv[1], "longer")
seen = []
def watched(prompts, completion_ids, **columns):
    seen.append([prompts, completion_ids, reward(completion_ids=completion_ids, **columns)])
    return seen[-1][-1]
settings = GRPOConfig(
    output_dir=sys.argv[2], num_generations=4, per_device_train_batch_size=8, max_completion_length=12, loss_type="dr_grpo",
    scale_rewards="none", beta=0.0, learning_rate=0.01, max_steps=2, logging_steps=1, report_to="none", use_cpu=True,
    bf16=False, save_strategy="no", disable_tqdm=True,
)
trainer = GRPOTrainer(model, watched, args=settings, train_dataset=Dataset.from_list(rows))
trainer.train()
logged = [entry for entry in trainer.state.log_history if "reward" in entry]
print(json.dumps({"rows": rows, "seen": seen, "rewards": [entry["reward"] for entry in logged]}))
"""


@pytest.mark.engine
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed (pip install trl)")
def test_trl_is_rewarded_as_we_are(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "long.py").write_text("def REWARD(answer):\n    return len(answer['output']) - answer['truncated']\n")
    variants = {"longer": {"method": "cirf_full", "reward": {"right": 0.0, "function": str(tmp_path / "long.py")}}}
    recipe = workshop.recipe(tmp_path / "run" / "recipe.yaml", methods=["longer"], variants=variants)
    environment = tinyrun.ENVIRONMENT | {"HF_HOME": str(tmp_path / "home")}
    script = [sys.executable, "-c", REWARDED, str(recipe.parent), str(tmp_path / "out")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    tokenizer = load_tokenizer(finished / "models/cirf_full")
    assert len(summary["rows"]) == 36 and all(row["prompt"].endswith("<cirf>") for row in summary["rows"])
    assert len(summary["seen"]) == 2 == len(summary["rewards"])
    for prompts, ids, rewards in summary["seen"]:
        assert set(prompts) <= {row["prompt"] for row in summary["rows"]}
        outputs = [output_of(tokenizer, row, [end_token(tokenizer)]) for row in ids]
        assert rewards == [len(output.text) - output.truncated for output in outputs]
