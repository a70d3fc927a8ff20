"""Where functional tokens begin: at the words of the steps that they stand for (`vocabulary.init: words`)."""

from __future__ import annotations

from pathlib import Path

import tinyrun
import torch

from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.prompt import encode
from cirf.recipe.schema import Backbone
from cirf.store.jsonl import read_rows


def test_a_token_begins_at_the_mean_of_its_steps_words_less_that_of_all_steps(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {
        "vocabulary__init": "words",
        "vocabulary__alpha": 0.5,
        "finetune__learning_rate": 1e-12,
        "finetune__weight_decay": 0.0,
    }
    made = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], evaluate__latency_questions=0, **keys)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--until", "models/cirf_full")
    assert said.code == 0, said.err
    run, section = tmp_path / "run", Backbone(dtype="float32", device="cpu")
    backbone, tokenizer = workshop.backbone, load_tokenizer(workshop.backbone, section)
    words = load_model(backbone, section, training=None).get_input_embeddings().weight.detach()
    training = {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}
    traces = {(row["problem"], row["sample"]): row["codes"] for row in read_rows(run / "traces" / "traces.jsonl")}
    steps: dict[int, list[torch.Tensor]] = {}
    for row in read_rows(run / "segments" / "segments.jsonl"):
        if row["problem"] in training:
            for code, segment in zip(traces[row["problem"], row["sample"]], row["segments"], strict=True):
                steps.setdefault(code, []).append(words[encode(tokenizer, segment)].mean(dim=0))
    middle = torch.stack([vector for some in steps.values() for vector in some]).mean(dim=0)
    folder = run / "models" / "cirf_full"
    rows = load_model(folder, section, training=None).get_input_embeddings().weight.detach()
    saved = load_tokenizer(folder, section)
    assert len(steps) > 1
    for code, some in steps.items():
        wanted = torch.nn.functional.normalize(torch.stack(some).mean(dim=0) - middle, dim=0) * 0.5
        torch.testing.assert_close(rows[saved.convert_tokens_to_ids(f"<cirf_{code:03d}>")], wanted, atol=1e-4, rtol=1e-3)
