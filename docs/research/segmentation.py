"""Compare rules of segmentation on files of rationales, each with a codebook of its own.

    python -m docs.research.segmentation --data DIR [--files gsm8k.gpt-5.1 ...] [--rows 300] [--codes 32] [--out FOLDER]

DIR is a folder of mirrored data sets with ``rationales/TASK.TEACHER.jsonl``. For every file and rule the table shows the share of
rationales that can be cut, steps a row, words a step, and the usage of a codebook trained on equally many rows. It also shows how
much the codes reveal of their question (``cirf.analysis.clustering``). An interrupted call resumes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RULES = ("ordinal", "line", "sentence", "auto")


def _recipe(data: Path, file: str, rule: str, rows: int, codes: int, seed: int) -> Any:
    from cirf.recipe.schema import Backbone, Codebook, Problems, Rationales, Recipe, Segments, TaskEntry

    return Recipe(
        name=f"{file}-{rule}",
        seed=seed,
        methods=("cirf_full",),
        backbone=Backbone(model="bundled:smollm2-135m-instruct"),
        problems=Problems(tasks=(TaskEntry(task=file.split(".")[0], rows=rows, test=1),), data=str(data), validation=0.0),
        rationales=Rationales(source="files", files=(file,)),
        segments=Segments(by=rule),
        codebook=Codebook(size=codes),
    )


def measure(data: Path, file: str, rule: str, rows: int, codes: int, seed: int, out: Path) -> dict[str, Any]:
    """Segment one file by one rule, train a codebook on it, and measure both."""
    from cirf.analysis.clustering import clustering
    from cirf.errors import CirfError
    from cirf.run import execute
    from cirf.stages.context import Context
    from cirf.store.run_folder import RunFolder

    context = Context(_recipe(data, file, rule, rows, codes, seed), RunFolder(out / f"{file}-{rule}"))
    summary: dict[str, Any] = {"file": file, "rule": rule}
    try:
        execute(context, "segments")
    except CirfError as error:
        return summary | {"kept": 0.0, "why": str(error)}
    report = json.loads((context.folder.folder("segments") / "report.json").read_text())
    steps = context.steps()
    segments = [text for row in steps for text in row.segments]
    summary |= {
        "rationales": report["rows"],
        "kept": round(report["kept"] / report["rows"], 4),
        "rules": report["rules"],
        "steps": report["steps"]["mean"],
        "one_step": round(sum(len(row.segments) == 1 for row in steps) / len(steps), 3),
        "words": round(sum(len(text.split()) for text in segments) / len(segments), 1),
        "rows": len(steps),
    }
    try:
        execute(context, "codebook")
    except CirfError as error:
        return summary | {"why": str(error)}
    coded = [row["codes"] for row in context.rows(f"codebook-{codes}", "codes.jsonl")]
    measured = dataclasses.asdict(clustering(coded, codes))
    return summary | {name: round(value, 3) for name, value in measured.items()}


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    columns = ("kept", "steps", "one_step", "words", "used", "perplexity", "ami", "purity", "collapsed", "unique")
    yield f"{'file':34} {'rule':9}" + "".join(f"{name:>11}" for name in columns)
    for row in rows:
        values = "".join(f"{row[name]:>11.3f}" if name in row else f"{'':>11}" for name in columns)
        yield f"{row['file']:34} {row['rule']:9}{values}" + (f"  {row['why']}" if "why" in row else "")


def main() -> None:
    """Measure, print a table and a line of JSON."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", nargs="*", help="names of rationale files; default: all of DIR/rationales")
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=RULES)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--codes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/segmentation"))
    asked = parser.parse_args()
    files = asked.files or sorted(path.stem for path in (asked.data / "rationales").glob("*.jsonl"))
    rows = [
        measure(asked.data, file, rule, asked.rows, asked.codes, asked.seed, asked.out) for file in files for rule in asked.rules
    ]
    print("\n".join(_lines(rows)))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
