"""What functional tokens are good for (`docs.research.uses`), on made answers, and answers recorded from a tiny run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinyrun
import torch
from docs.research import beam, carried, recorded, uses
from docs.research.recorded import Places, kinds

from cirf.store.files import write_rows

RESULTS = Path(__file__).parents[1] / "results"


def test_auroc_counts_pairs() -> None:
    right = np.array([True, False, True, False])
    assert uses.auroc(right, np.array([4.0, 1.0, 3.0, 2.0])) == 1
    assert uses.auroc(right, np.array([2.0, 1.0, 1.0, 3.0])) == pytest.approx(1.5 / 4)  # one pair won, one equal, two lost
    assert np.isnan(uses.auroc(np.array([True, True]), np.array([1.0, 2.0])))


def test_auroc_within_a_benchmark_forgets_which_is_easy() -> None:
    right = np.array([True, True, False, True, False, False])
    score, group = np.array([2.0, 2.0, 2.0, 1.0, 1.0, 1.0]), np.array(["easy"] * 3 + ["hard"] * 3)
    assert uses.auroc(right, score) > 0.6 and uses.within(right, score, group) == 0.5


def test_an_unusual_transition_scores_low() -> None:
    known = [[1, 2, 3]] * 9 + [[3, 2, 1]]
    usual, unusual = uses.bigrams([[1, 2, 3], [2, 1, 3]], known)
    assert usual > -0.5 and unusual < -2
    own = uses.bigrams([[1, 2], [1, 2], [5, 6]], None)  # a trace does not vouch for itself
    assert own[0] == own[1] > own[2]


def test_kinds_of_tokens() -> None:
    assert kinds([7, 1, 8, 1, 2, 1, 0], ["<f>", "4", "<g>", "5", "</cirf>", "5", "<end>"], [7, 8], 2) == "frfrmae"
    assert kinds([1, 3, 1, 4, 1, 0], ["4", "\n", "5", "####", "5", "<end>"], [], None) == "rmrmae"


def answer(item: int, right: bool, method: str, functional: float, other: float, **more: Any) -> dict[str, Any]:
    """A row: two functional tokens, two of results, one of the answer and the end."""
    plain = method == "terse"
    letters = "mrmrme" if plain else "frfrmae"
    logp = [functional if letter in "fm" else other for letter in letters[:-1]]
    output = "4\n5\n#### 5" if plain else "<cirf_001>4<cirf_002>5</cirf>5"
    row = {
        "method": method,
        "way": "greedy",
        "id": str(item),
        "correct": right,
        "parsed": "5",
        "output": output,
        "tokens": len(letters),
    }
    return row | {"kinds": letters, "logp": logp, "entropy": [-value for value in (*logp, 0.0)]} | more


@pytest.mark.slow
def test_confidence_of_functional_tokens_that_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance, rows = np.random.default_rng(1), []
    for item in range(120):
        right = item % 3 == 0
        noise = -float(chance.random())
        rows.append(answer(item, right, "cirf_full", -0.1 if right else -0.2, noise))
        rows.append(answer(item, right, "terse", noise, noise))
    write_rows(tmp_path / "rows.jsonl", rows)
    uses.main(["confidence", str(tmp_path / "rows.jsonl")])
    *lines, document = capsys.readouterr().out.splitlines()
    summary = json.loads(document)
    assert summary["n"] == 120 and summary["right"] == {"cirf_full": pytest.approx(1 / 3), "terse": pytest.approx(1 / 3)}
    assert summary["auroc"]["cirf_full: functional, mean"] == [1, 1, 1]
    value, low, high = summary["auroc"]["cirf_full: answer"]
    assert low < 0.5 < high and low < value < high
    gap, low, _ = summary["differences"]["cirf_full functional, mean - cirf_full answer"]
    assert gap == pytest.approx(1 - value) and low > 0.2
    assert summary["differences"]["cirf_full all, fitted - cirf_full plain, fitted"][1] > 0.2
    assert "terse: line breaks, mean" in summary["auroc"] and "terse: transitions" not in summary["auroc"]
    assert lines[0] == "n = 120, right: cirf_full 33.3%, terse 33.3%"


def test_votes_by_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def vote(item: int, way: str, given: str, code: int, sure: float, method: str = "cirf_full") -> dict[str, Any]:
        made = answer(item, given == "5", method, sure, sure, way=way, parsed=given)
        return made | {"output": f"<cirf_00{code}>{given}</cirf>{given}"}

    rows = [vote(0, "all", given, 1, -1.0) for given in ("4", "4", "5")]  # passes, majority wrong
    rows += [vote(0, "plan", given, code, sure) for given, code, sure in (("4", 1, -2.0), ("5", 2, -0.1), ("6", 3, -1.0))]
    rows += [vote(0, "all", "4", 1, -1.0, "terse")] * 3
    write_rows(tmp_path / "rows.jsonl", rows)
    uses.main(["votes", str(tmp_path / "rows.jsonl")])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    every, plan, terse = (summary["table"][name] for name in ("cirf_full all", "cirf_full plan", "terse all"))
    assert (every["pass@k"], every["majority"], every["plans"], every["answers"]) == (1, 0, 1, 2)
    assert (plan["pass@k"], plan["best"], plan["plans"], plan["answers"], plan["tokens"]) == (1, 1, 3, 3, 21)
    assert (terse["pass@k"], terse["one"]) == (0, 0)
    assert summary["differences"]["cirf_full plan - terse all, pass@k"]["difference"] == 1
    recorded.main(["pack", "--out", str(tmp_path / "rows.parquet"), str(tmp_path / "rows.jsonl")])
    packed = uses.sampled(recorded.read(tmp_path / "rows.parquet"))
    assert packed["table"] == summary["table"] and packed["n"] == 1  # without the texts


def test_only_functional_tokens_carry_the_rationale_to_the_answer() -> None:
    batch = carried.batch_of([([5, 6, 7, 8, 9, 10, 11], 2, 4, 5), ([5, 6, 7, 8, 9], 1, 2, 3)], padding=0)
    seen = batch["attention_mask"][:, 0] == 0
    assert seen[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0, 0],  # the question
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],  # the rationale
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],  # the functional token
        [1, 1, 0, 0, 1, 1, 0],  # the answer
        [1, 1, 0, 0, 1, 1, 1],
    ]
    assert seen[1, 4].int().tolist() == [1, 0, 1, 1, 1, 0, 0]
    assert batch["labels"].tolist() == [[-100] * 5 + [10, 11], [-100, -100, -100, 8, 9, -100, -100]]


def test_a_cascade_keeps_to_its_tokens() -> None:
    chance = np.random.default_rng(2)
    right = np.array([chance.random(400) < 0.5, chance.random(400) < 0.8])
    tokens = np.array([np.full(400, 10.0), np.full(400, 100.0)])
    items, knows = [f"sums/{place}" for place in range(400)], right[0] + 0.01 * chance.random(400)
    made, spent = uses.halves(items, right, tokens, knows)
    assert right[1].mean() - 0.05 < made.mean() and made.mean() > right[0].mean() + 0.25
    assert 35 < spent.mean() < 55  # half of prose, chosen on other questions
    blind, _ = uses.halves(items, right, tokens, chance.random(400))
    assert blind.mean() < made.mean() - 0.05
    assert uses.route(right, tokens, knows, -np.inf)[1].mean() == 10  # none is asked for prose
    assert uses.route(right, tokens, knows, np.inf)[1].mean() == 110


def test_prose_is_asked_where_results_are_improbable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance, rows = np.random.default_rng(3), []
    for item in range(200):
        right, sure = item % 4 > 0, -float(chance.random())
        rows.append(answer(item, right, "terse", sure, -0.1 if right else -0.5))
        rows.append(answer(item, item % 8 in (0, 2, 6), "sft_cot", sure, sure) | {"tokens": 60})
    write_rows(tmp_path / "rows.jsonl", rows)
    uses.main(["route", str(tmp_path / "rows.jsonl"), "--fast", "terse"])
    *lines, document = capsys.readouterr().out.splitlines()
    summary, plain = json.loads(document), len("mrmrme")
    assert summary["n"] == 200 and summary["right"] == [0.75, 0.375] and summary["tokens"] == [plain, 60]
    by = summary["by"]["results, sum"]
    assert by["auroc"] == 1 and by["asked"] == pytest.approx(0.25, abs=0.02)  # of the wrong ones half are right in prose
    assert by["right"] == pytest.approx(0.875, abs=0.02) and by["tokens"] == pytest.approx(plain + 60 * by["asked"])
    assert by["difference"]["difference"] == pytest.approx(by["right"] - 0.375)
    assert summary["by"]["line breaks, mean"]["right"] < by["right"] - 0.05
    assert lines[0] == "n = 200; terse 75.0%, 6.0 tokens; sft_cot 37.5%, 60.0 tokens; either right 87.5%"


def test_trainings_that_agree_are_asked_no_further() -> None:
    keys = np.array([[1, 1, 1, 1, np.nan], [1, 2, 2, 2, np.nan], [3, 1, 2, 3, 3]])
    right = keys == 1
    right[:, 2] = keys[:, 2] == 2
    tokens = np.array([[10.0] * 5, [20.0] * 5, [40.0] * 5])
    made, spent, apart = uses.agreed(keys, right, tokens, (0, 1, 2))
    assert made.tolist() == [True, True, True, True, False]
    assert spent.tolist() == [30, 70, 70, 70, 70]
    assert apart.tolist() == [False, False, False, True, True]  # no answer agrees with none
    assert uses.agreed(keys, right, tokens, (2, 0, 1))[1].tolist() == [70, 50, 70, 70, 70]


def test_agreement_from_archives(capsys: pytest.CaptureFixture[str]) -> None:
    """Votes of three trainings against prose, on the shipped archives."""
    archives = [str(RESULTS / f"compare{seed}-qwen2.5-0.5b") for seed in ("", "-seed2", "-seed3")]
    tasks = ["gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa"]
    uses.main(["agreement", *archives, "--tasks", *tasks])
    *lines, document = capsys.readouterr().out.splitlines()
    summary = json.loads(document)
    assert len(lines) == 5 and summary["n"] == 580
    single, alone, both, half = summary["ways"].values()
    assert single["right"] == pytest.approx(sum(summary["single"]) / 3) and alone["right"] > max(summary["single"])
    assert alone["share of tokens"] < half["share of tokens"] < 0.5 < both["share of tokens"]
    differences = [round(100 * way["difference"]["difference"], 1) for way in (single, alone, both, half)]
    assert differences == [-1.8, 2.3, 5.2, 3.6]  # as docs/what-functional-tokens-are-good-for.md has them


def test_a_trace_without_results_is_the_least_sure() -> None:
    rows = [answer(item, True, "terse", -0.1, sure) for item, sure in enumerate((-0.1, -0.9))]
    rows.append(rows[0] | {"kinds": "ae", "logp": [-0.01], "entropy": [0.0, 0.0]})
    found = uses.scores(rows, None)["results, sum"]
    assert found[2] == found.min() < found[0]


def test_a_surer_signal_gains_more() -> None:
    right = np.array([[True] * 60 + [False] * 40, [True] * 30 + [False] * 30 + [True] * 40])
    found = uses.gains(right, np.array([[10.0] * 100, [100.0] * 100]))
    assert found[0.5] == pytest.approx(0.6 * 0.6 + 0.4 * 0.7 - 0.7, abs=0.03)  # 40 % asked at random: 0.7 of them right
    assert list(found.values()) == sorted(found.values())
    assert found[1.0] == pytest.approx(0.3, abs=0.01)  # exactly the wrong ones are asked


def test_operations_that_a_token_could_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "traces").mkdir()
    results = ["2*6=12", "3 * 4=12", "12-9=3", "7"]
    write_rows(tmp_path / "traces" / "traces.jsonl", [{"codes": [3, 3, 1, 1], "results": results, "answer": "3"}])
    texts = [
        ("<cirf_003>5*5=25<cirf_001>25-5=20</cirf>20", True),
        ("<cirf_003>5*5=25<cirf_001>25+5=30</cirf>30", True),  # another operation than the token's
        ("<cirf_003>2*3-1=5</cirf>5", True),  # two operations
        ("<cirf_001>8-5=2<cirf_003>heads</cirf>2", False),
    ]
    rows = [{"id": str(place), "output": text, "correct": right} for place, (text, right) in enumerate(texts)]
    write_rows(tmp_path / "evaluation" / "cirf_full" / "sums.jsonl", rows)
    uses.main(["operations", str(tmp_path)])
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["n"], summary["steps"], summary["one operation"], summary["the token's"]) == (4, 6, 5 / 6, 4 / 6)
    assert summary["difference"]["difference"] == -0.5 and summary["difference"]["losses"] == 2


def test_places_of_the_plan_alone_are_sampled() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0]])  # the likeliest: a functional token, an ordinary one
    for way, left in (("all", [3, 3]), ("plan", [3, 1]), ("rest", [1, 3])):
        made = Places([way] * 2, plan=[0], breaks=[].__contains__)(torch.zeros(2, 4, dtype=torch.long), scores)
        assert torch.isfinite(made).sum(dim=1).tolist() == left
        assert made.argmax(dim=1).tolist() == [0, 1]
    plain = Places(["plan"] * 2, plan=[], breaks=[9].__contains__)
    assert torch.isfinite(plain(torch.tensor([[5, 5], [5, 5]]), scores)).all()  # a first token begins a line
    made = plain(torch.tensor([[5, 5, 9], [5, 5, 1]]), scores)
    assert torch.isfinite(made).sum(dim=1).tolist() == [3, 1]
    plain.select([1])
    assert torch.isfinite(plain(torch.tensor([[5, 5, 1, 9]]), scores[:1])).all()


def test_recorded_answers_are_those_of_the_model(finished: Path, tmp_path: Path) -> None:
    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.prompt import encode, prompt_text
    from cirf.recipe.load import load

    questions = tinyrun.write_jsonl(tmp_path / "other.jsonl", tinyrun.sums(5, seed=9))
    out, given = tmp_path / "rows.jsonl", [str(finished), "--questions", str(questions), "--methods", "cirf_full"]
    recorded.main([*given, "--out", str(out)])
    rows = recorded.read(out)
    assert len(rows) == 5
    recipe = load(str(finished / "recipe.yaml"), [])
    tokenizer = load_tokenizer(finished / "models" / "cirf_full", recipe.backbone)
    model = load_model(finished / "models" / "cirf_full", recipe.backbone)
    for row, asked in zip(rows, tinyrun.sums(5, seed=9), strict=True):
        prompt, ids = encode(tokenizer, prompt_text(tokenizer, asked["question"])), encode(tokenizer, row["output"])
        with torch.inference_mode():
            logs = model(torch.tensor([prompt + ids])).logits[0].float().log_softmax(-1)
        wanted = [float(logs[len(prompt) + place - 1, token]) for place, token in enumerate(ids)]
        assert row["logp"][: len(ids)] == pytest.approx(wanted[: len(row["logp"])], abs=2e-3)
        assert len(row["kinds"]) == row["tokens"] == len(row["entropy"])
    out.write_bytes(out.read_bytes()[:-40])  # killed while it wrote
    recorded.main([*given, "--out", str(out)])
    assert [(row["id"], row["output"]) for row in recorded.read(out)] == [(row["id"], row["output"]) for row in rows]

    recorded.main([*given, "--out", str(tmp_path / "votes.jsonl"), "--votes", "3", "--most", "1"])
    votes = recorded.read(tmp_path / "votes.jsonl")
    assert [vote["way"] for vote in votes] == ["all"] * 3 + ["plan"] * 3 + ["rest"] * 3


def test_beams_over_functional_tokens_find_the_likeliest_trace() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(26)
    shape: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=8, initializer_range=0.8, **shape))
    prompt, plan, stops, cap = [5, 6], [1, 2, 3, 4], [0], 6

    def paths(ids: tuple[int, ...], score: float) -> list[tuple[tuple[int, ...], float]]:
        """Every trace with its log-probability: each token of the plan where one is the most likely, else the most likely."""
        if len(ids) == cap or ids[-1:] == (0,):
            return [(ids, score)]
        with torch.inference_mode():
            logs = model(torch.tensor([[*prompt, *ids]])).logits[0, -1].log_softmax(-1)
        top = int(logs.argmax())
        return [way for token in (plan if top in plan else [top]) for way in paths((*ids, token), score + float(logs[token]))]

    every = paths((), 0.0)
    assert len(every) > 20
    best, score = max(every, key=lambda path: path[1])
    beams, _ = beam.search(model, prompt, plan, stops, width=1000, cap=cap)
    assert len(beams) == len(every) and beams[0].ids == best and beams[0].score == pytest.approx(score, abs=1e-4)
    (greedy,), spent = beam.search(model, prompt, plan, stops, width=1, cap=cap)
    written = model.generate(torch.tensor([prompt]), max_new_tokens=cap, do_sample=False, eos_token_id=0, pad_token_id=0)
    assert list(greedy.ids) == written[0, 2:].tolist() and spent == len(greedy.ids)
