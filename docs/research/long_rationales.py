"""Long rationales cut by function, against traces whose segments are labelled.

    python -m docs.research.long_rationales --data DIR [--codes 6 8 16] [--tolerance 10] [--seeds 3] [--json FILE]

DIR holds ``NAME.jsonl`` with rows ``{"thinking": text, "segments": [{"function": label, "text": text}, ...]}``. Per file:

- boundaries: precision, recall and F1 of each rule's cuts against those between the labelled segments, of texts in plain form
  (`cirf.text.normalise`) without white space. A cut counts if it is within ``--tolerance`` characters, each labelled one once.
  ``chance`` draws as many places as there are labelled ones.
- codes of the labelled segments against their labels: adjusted mutual information and purity of our codebook (Sinkhorn, VQ-VAE)
  and of k-means, on embeddings as they are, minus the mean of their trace, and of a segment's first words, centred; of classes of
  opening words, of the place in the trace, and of shuffled labels. Means over the seeds.
- milliseconds of cutting 100,000 characters. The last line is JSON.

``--json`` writes F1 and adjusted mutual information as the entries ``cuts`` and ``cut-codes`` of ``results/figures.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WIDTH = 576
"""Of a code: that of the smallest backbone."""

WORDS = 4
"""First words of a segment: what `cirf init` embeds of steps cut by function."""


def bare(text: str) -> str:
    """A text without white space."""
    return re.sub(r"\s+", "", text)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row with texts in plain form."""
    from cirf.text.normalise import normalise

    segments = [{**segment, "text": normalise(segment["text"])} for segment in row["segments"]]
    return {"thinking": normalise(row["thinking"]), "segments": segments}


def labelled(row: dict[str, Any]) -> tuple[str, list[int], list[tuple[str, str]]]:
    """The bare trace, where its labelled segments begin, the first left out, and their texts and labels; those not found are left
    out."""
    trace, at, starts, found = bare(row["thinking"]), 0, [], []
    for segment in row["segments"]:
        text = bare(segment["text"])
        place = trace.find(text[:25], at) if text else -1
        if place >= 0:
            starts.append(place)
            found.append((segment["text"], segment["function"]))
            at = place + max(1, len(text) - 3)
    return trace, starts[1:], found


def cuts(parts: Sequence[str]) -> list[int]:
    """Where parts begin in the bare text, the first left out."""
    places, at = [], 0
    for part in parts:
        places.append(at)
        at += len(bare(part))
    return places[1:]


def hits(ours: Sequence[int], theirs: Sequence[int], tolerance: int) -> int:
    """How many cuts of two sorted lists can be paired within a tolerance."""
    i = j = found = 0
    while i < len(ours) and j < len(theirs):
        if abs(ours[i] - theirs[j]) <= tolerance:
            found, i, j = found + 1, i + 1, j + 1
        elif ours[i] < theirs[j]:
            i += 1
        else:
            j += 1
    return found


def rules() -> dict[str, Callable[[str], Sequence[str]]]:
    """Ways to cut a text."""
    from cirf.rationales.segmentation import segment
    from cirf.text.sentences import sentences

    return {
        "function": lambda text: segment(text, "function").segments,
        "auto": lambda text: segment(text, "auto").segments,
        "ordinal": lambda text: segment(text, "ordinal").segments,
        "sentence": sentences,
        "paragraph": lambda text: re.split(r"\n\s*\n", text.strip()),
    }


def boundaries(rows: Sequence[dict[str, Any]], tolerance: int) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 by rule."""
    summary, draw = {}, random.Random(1)
    known = [labelled(row) for row in rows]
    for name, cut in {**rules(), "chance": None}.items():
        right = ours = theirs = 0
        for row, (trace, starts, _) in zip(rows, known, strict=True):
            among = range(1, len(trace))
            places = cuts(cut(row["thinking"])) if cut else sorted(draw.sample(among, min(len(among), len(starts))))
            right += hits(places, starts, tolerance)
            ours, theirs = ours + len(places), theirs + len(starts)
        precision, recall = right / max(1, ours), right / max(1, theirs)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        summary[name] = {"f1": round(f1, 3), "precision": round(precision, 3), "recall": round(recall, 3), "cuts": ours}
    return summary


def codes(rows: Sequence[dict[str, Any]], sizes: Sequence[int], seeds: int) -> dict[str, dict[str, float]]:
    """AMI and purity by way of naming segments."""
    import numpy as np
    from sklearn.cluster import KMeans

    from cirf.assets import resolve
    from cirf.codebook.centering import represent
    from cirf.codebook.codebook import train
    from cirf.codebook.embedding import Embedder, wordings
    from cirf.progress import SILENT
    from cirf.recipe.schema import Codebook, Embeddings
    from cirf.text.discourse import function_of

    found = [labelled(row)[2] for row in rows]
    texts = [text for row in found for text, _ in row]
    labels = [label for row in found for _, label in row]
    groups = np.repeat(np.arange(len(found)), [len(row) for row in found])
    section = Embeddings(words=WORDS)
    embed = Embedder(section, resolve(section.model, SILENT), "cpu")
    kinds = {"raw": embed(texts)}
    for name, read in (("centred", kinds["raw"]), (f"{WORDS} words, centred", embed(wordings(texts, section)))):
        kinds[name] = represent(read, groups, "mean_centered", "corpus_mean", 1).vectors[:]
    named: dict[str, list[list[Any]]] = {"opening words": [[function_of(text) for text in texts]]}
    for size in sizes:
        named[f"place in the trace, K={size}"] = [[min(size - 1, place) for row in found for place in range(len(row))]]
        for kind, points in kinds.items():
            named[f"k-means, {kind}, K={size}"] = [
                KMeans(size, n_init=3, random_state=seed).fit_predict(points).tolist() for seed in range(seeds)
            ]
            named[f"ours, {kind}, K={size}"] = []
            for seed in range(seeds):
                with tempfile.TemporaryDirectory() as work:
                    assigned = train(points, WIDTH, Codebook(size=size), seed, Path(work), SILENT)[1]
                named[f"ours, {kind}, K={size}"].append(assigned.tolist())
    named["shuffled labels"] = [random.Random(seed).sample(labels, len(labels)) for seed in range(seeds)]
    return {name: agreement(labels, ways) for name, ways in named.items()}


def agreement(labels: Sequence[str], ways: Sequence[Sequence[Any]]) -> dict[str, float]:
    """Mean AMI and purity of ways of naming the same segments."""
    from sklearn.metrics import adjusted_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    ami = [adjusted_mutual_info_score(labels, way) for way in ways]
    purity = [contingency_matrix(labels, way).max(axis=0).sum() / len(labels) for way in ways]
    return {"ami": round(float(sum(ami) / len(ami)), 3), "purity": round(float(sum(purity) / len(purity)), 3)}


def milliseconds(rows: Sequence[dict[str, Any]]) -> float:
    """Of cutting 100,000 characters by function."""
    text = "\n\n".join(row["thinking"] for row in rows)[:100_000]
    started = time.process_time()
    rules()["function"](text)
    return round(1000 * (time.process_time() - started) * 100_000 / max(1, len(text)), 1)


def entries(measured: dict[str, Any], command: str) -> dict[str, Any]:
    """F1 by rule and AMI by way of naming, with a value for each file, in the format of ``results/figures.json``."""

    def rows(part: str, key: str) -> list[dict[str, Any]]:
        names = next(iter(measured.values()))[part]
        return [{"label": name, key: {file: made[part][name][key] for file, made in measured.items()}} for name in names]

    parts = {"cuts": rows("boundaries", "f1"), "cut-codes": rows("codes", "ami")}
    return {name: {"command": command, "rows": found} for name, found in parts.items()}


def main() -> None:
    """Measure each file, print tables and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--codes", type=int, nargs="*", default=[6, 8, 16])
    parser.add_argument("--tolerance", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    summary = {}
    for path in sorted(asked.data.glob("*.jsonl")):
        rows = [plain(row) for row in map(json.loads, path.read_text().splitlines()) if row["segments"]]
        made: dict[str, Any] = {"traces": len(rows), "boundaries": boundaries(rows, asked.tolerance)}
        made["codes"] = codes(rows, asked.codes, asked.seeds) if asked.codes else {}
        made["milliseconds"] = milliseconds(rows)
        print(f"{path.stem}: {len(rows)} traces, 100,000 characters cut in {made['milliseconds']} ms")
        for name, values in {**made["boundaries"], **made["codes"]}.items():
            print(f"  {name:28}" + "".join(f"{key:>10} {value:<6}" for key, value in values.items()))
        summary[path.stem] = made
    if asked.json is not None:
        sizes = " ".join(map(str, asked.codes))
        command = f"python -m docs.research.long_rationales --data DIR --codes {sizes} --seeds {asked.seeds} --json FILE"
        asked.json.write_text(json.dumps(entries(summary, command), indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
