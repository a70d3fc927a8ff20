"""Train on a few hundred rows as a user would: `cirf init`, `cirf run`, and the accuracy that results.

    python -m docs.research.few_rows --data DIR --out DIR [--kinds choice,numbers] [--rows 100,300] [--seeds 1,2] [--model ID]
        [--methods cirf_full,terse] [--archive DIR]

``--data`` is a mirror folder of published rows. The script writes user files of four kinds from them: ``choice`` (worked problems
with five options), ``numbers``, ``yesno`` (with reasons) and ``text`` (the answer is a phrase). `cirf init` writes each recipe,
which is run unchanged, except for a test file of 200 other questions and one more method: ``terse``, results without functional
tokens. Finished runs are only read. ``--archive`` writes the archive of all runs, from which the page's table is made.

The table shows, for each method, the share of well-formed, truncated and right answers, and the paired test of the functional
method against direct answers. The last line is JSON: ``ours`` is the functional method's mean accuracy over the runs, ``peer``
that of direct answers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from cirf.commands.analyze import open_run_of
from cirf.export import archive

Rows = list[dict[str, Any]]

TESTED = 200
"""Questions of the test file."""

_NOTE = re.compile(r"<<[^>]*>>")


def _read(path: Path) -> Rows:
    with path.open(encoding="utf-8") as lines:  # `splitlines` would also cut at U+2028, which GSM8K's questions have
        return [json.loads(line) for line in lines]


def choice(data: Path, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Problems of two to four steps with five evenly spaced numbers as options. The right one has each rank equally often, so
    the options alone do not reveal it."""
    for row in _read(data / "gsm8k" / "train.jsonl"):
        solution, _, answer = row["answer"].partition("####")
        steps = [line for line in _NOTE.sub("", solution).strip().split("\n") if line.strip()]
        if not re.fullmatch(r"\d+", answer.strip()) or int(answer) < 5 or not 2 <= len(steps) <= 4:
            continue
        right, rank = int(answer), chance.randrange(5)
        apart = chance.choice([step for step in (1, 2, 5, 10, 20, 50, 100) if 5 * step <= right])
        options = [right + apart * (place - rank) for place in range(5)]
        chance.shuffle(options)
        letter = "ABCDE"[options.index(right)]
        rationale = "\n".join([*steps, f"Answer: {letter}"])
        yield {"question": row["question"], "choices": [*map(str, options)], "rationale": rationale, "answer": letter}


def numbers(data: Path, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Word problems with a teacher's steps."""
    for name in ("gsm8k.gpt-5.1", "multiarith.gpt-4o-mini", "svamp.palm"):
        for row in _read(data / "rationales" / f"{name}.jsonl"):
            yield {key: row[key] for key in ("question", "rationale", "answer")}


def yesno(data: Path, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Questions of fact with the facts that answer them."""
    for name in ("train", "dev"):
        for row in _read(data / "strategyqa" / f"{name}.jsonl"):
            answer = "yes" if row["answer"] else "no"
            rationale = " ".join([*row["facts"], f"So the answer is {answer}."])
            yield {"question": row["question"], "rationale": rationale, "answer": answer}


def text(data: Path, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Questions that list their options; the answer is the text of an option."""
    written = {row["question"]: row["rationale"] for row in _read(data / "rationales" / "commonsense_qa.palm.jsonl")}
    for row in _read(data / "commonsense_qa" / "train.jsonl"):
        options = row["choices"]["text"]
        answer = options["ABCDE".index(row["answerKey"])]
        if row["question"] in written and len(answer.split()) <= 3:
            asked = f"{row['question']} Choose from: {', '.join(options)}."
            yield {"question": asked, "rationale": written[row["question"]], "answer": answer}


KINDS: dict[str, Callable[[Path, random.Random], Iterator[dict[str, Any]]]] = {
    "choice": choice,
    "numbers": numbers,
    "yesno": yesno,
    "text": text,
}


def write_files(data: Path, out: Path, kind: str, sizes: list[int]) -> dict[int, Path]:
    """Write a training file of each size, where smaller ones are subsets of larger ones, and ``KIND-test.jsonl``."""
    chance = random.Random(f"few rows {kind}")
    rows = list({row["question"]: row for row in KINDS[kind](data, chance)}.values())
    chance.shuffle(rows)
    made = {size: out / f"{kind}-{size}.jsonl" for size in sizes}
    parts = {out / f"{kind}-test.jsonl": rows[:TESTED]} | {path: rows[TESTED : TESTED + size] for size, path in made.items()}
    for path, part in parts.items():
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part), encoding="utf-8")
    return made


def cirf(*arguments: str | Path, into: Path | None = None) -> None:
    """Run the command as a user would; its output goes to ``into``."""
    done = subprocess.run([sys.executable, "-m", "cirf", *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"cirf {' '.join(map(str, arguments))}: exit code {done.returncode}")
    if into is not None:
        into.write_text(done.stdout, encoding="utf-8")


def run(file: Path, test: Path, model: str, seed: int, methods: str, out: Path) -> dict[str, Any]:
    """The report of a run of the recipe that `cirf init` writes. Runs it unless it is finished."""
    if not (out / "report.json").is_file():
        recipe = out.with_name(f"{out.name}.yaml")
        if not recipe.is_file():  # the batches that fit depend on free memory: a new recipe may lose a begun training
            cirf("init", file, "--model", model, into=recipe)
        sets = [
            f"seed={seed}",
            f"problems.tasks.0.test_file={test}",
            f"problems.tasks.0.test={TESTED}",
            "evaluate.latency_questions=0",
        ]
        sets += [f"methods=[{methods}]"]
        cirf("run", recipe, "--out", out, *(part for each in sets for part in ("--set", each)))
    loaded: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return loaded


def main() -> None:
    """Make the files, run, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", default="100,300,1000")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--model", default="bundled:smollm2-135m-instruct")
    parser.add_argument("--methods", default="cirf_full,terse,direct_sft,sft_cot")
    parser.add_argument("--archive", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes, called = [int(size) for size in options.rows.split(",")], options.model.rpartition(":")[2].rpartition("/")[2]
    print("kind rows seed method: right (95 %), well-formed, truncated, tokens, updates | majority | against direct_sft")
    ours, peer, runs = [], [], {}
    for kind in options.kinds.split(","):
        for size, file in write_files(options.data, options.out, kind, sizes).items():
            for seed in options.seeds.split(","):
                test = options.out / f"{kind}-test.jsonl"
                folder = options.out / f"{called}-{kind}-{size}-{seed}"
                report = run(file, test, options.model, int(seed), options.methods, folder)
                runs[f"{called}/{kind}-{size}/{seed}"] = folder
                rows, pair = report["methods"], report["comparisons"].get("direct_sft", {})
                golds = [row["answer"] for row in _read(test)]
                most = max(map(golds.count, set(golds))) / len(golds)
                for name, row in rows.items():
                    form = "-" if row.get("well_formed") is None else f"{row['well_formed']:.1%}"
                    low, high = row["interval"]
                    made = report["training"].get(name, {}).get("numbers", {}).get("updates", 0)
                    beside = f"{100 * pair['difference']:+.1f} (p = {pair['p']:.3f})" if name == "cirf_full" and pair else ""
                    print(
                        f"{kind} {size} {seed} {name}: {row['accuracy']:.1%} ({100 * low:.1f}-{100 * high:.1f}), {form}, "
                        f"{row['truncated']:.1%}, {row['tokens']:.1f}, {made} | {most:.1%} | {beside}",
                        flush=True,
                    )
                ours.append(rows["cirf_full"]["accuracy"])
                peer.append(rows["direct_sft"]["accuracy"])
    if options.archive is not None:
        archive.write([open_run_of(folder, name=name) for name, folder in runs.items()], options.archive)
    summary = {"benchmark": "few_rows", "ours": fmean(ours), "peer": fmean(peer), "ratio": fmean(ours) / max(fmean(peer), 1e-9)}
    print(json.dumps(summary | {"unit": "accuracy", "n": len(ours)}))


if __name__ == "__main__":
    main()
