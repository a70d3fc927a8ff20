"""The saved model is anyone's: without this package, plain ``generate`` gives the answers that the evaluation wrote down."""

from __future__ import annotations

import json
from pathlib import Path

import tinyrun

from cirf.store.jsonl import read_rows

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
sys.modules["cirf"] = None  # an import of it would fail
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, cap, questions = sys.argv[1], int(sys.argv[2]), sys.argv[3]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
for question in json.load(open(questions)):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    made = model.generate(**prompt, max_new_tokens=cap)[0, prompt["input_ids"].shape[1]:].tolist()
    text = tokenizer.decode(made)
    print(json.dumps({"text": text, "tokens": len(made)}))
"""


def test_plain_generate_gives_the_answers_of_the_evaluation(learnt: Path, tmp_path: Path) -> None:
    """For models of prose, see `test_equalities`."""
    rows = read_rows(learnt / "evaluation" / "cirf_full" / "sums.jsonl")
    assert len(rows) == 12 and len({row["output"] for row in rows}) > 3 and sum(not row["truncated"] for row in rows) > 6
    (tmp_path / "questions.json").write_text(json.dumps([row["prompt"] for row in rows]))
    done = tinyrun.python("-c", SCRIPT, learnt / "models" / "cirf_full", f"{24 + 32}", tmp_path / "questions.json", cwd=tmp_path)
    assert done.code == 0, done.err
    said = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"].removesuffix("<|im_end|>") for row in said] == [row["output"] for row in rows]
    assert [row["tokens"] for row in said] == [row["tokens"] for row in rows]


def test_its_tokenizer_opens_the_trace_and_cuts_it_from_the_answer(learnt: Path, finished: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer, prose = map(AutoTokenizer.from_pretrained, (learnt / "models" / "cirf_full", finished / "models" / "direct_sft"))
    rows = [row for row in read_rows(learnt / "evaluation" / "cirf_full" / "sums.jsonl") if row["well_formed"]]
    assert len(rows) > 2
    for row in rows:
        turns = [{"role": "user", "content": row["prompt"]}]
        asked = [each.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) for each in (tokenizer, prose)]
        assert asked[0] == asked[1] + "<cirf>" and "<cirf>" not in asked[1] + row["output"]
        message = tokenizer.parse_response(f"{row['output']}<|im_end|>", prefix=asked[0])
        assert (message["thinking"], message["content"].strip()) == (row["trace"], row["answer"])
        turns.append({"role": "assistant", "content": row["answer"]})
        assert tokenizer.apply_chat_template(turns, tokenize=False) == prose.apply_chat_template(turns, tokenize=False)


def test_the_folder_holds_nothing_that_needs_more_than_transformers(learnt: Path, finished: Path) -> None:
    for folder in (learnt / "models" / "cirf_full", finished / "models" / "direct_sft"):
        config = json.loads((folder / "config.json").read_text())
        assert config["architectures"] == ["LlamaForCausalLM"] and "auto_map" not in config
        assert not list(folder.glob("*.bin")) and not list(folder.glob("*.pt")) and not list(folder.rglob("*.py"))
        assert {path.suffix for path in folder.iterdir()} <= {".json", ".jsonl", ".jinja", ".safetensors", ".md", ".yaml"}
