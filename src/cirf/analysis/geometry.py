"""Do functional tokens have different directions: bias share and cosines of their rows in the trained model.

The bias share is ``||mean of w|| / mean of ||w||`` over the K rows ``w``: 1 if all are one vector, about ``1 / sqrt(K)`` for
unrelated directions. With rows of one length it follows from the mean cosine ``c`` of the pairs: ``bias^2 = 1 / K + (1 - 1 / K)
c``. The rows are read from the model's files without loading the rest.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import distinct, model_name
from cirf.analysis.source import Run, Source, published
from cirf.errors import CirfError
from cirf.pictures import table
from cirf.pictures.table import Column, Table
from cirf.recipe.schema import Backbone
from cirf.store.files import parse_json
from cirf.user_code import may_run

_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def functional_rows(folder: Path, size: int, run: Run) -> dict[str, np.ndarray]:
    """The functional tokens' rows [K x d], float32: ``input``, and ``output`` if the model has a separate head. ``folder``: a
    saved model; ``run`` has the settings of its backbone. ``CirfError`` if the model lacks one of the K tokens or its files do
    not match."""
    from cirf.lm.backbone import check_weights, load_tokenizer

    check_weights(folder)
    section = Backbone.model_validate({**run.recipe["backbone"], "revision": None})
    vocabulary = load_tokenizer(folder, section).get_vocab()
    names = [f"<cirf_{code:03d}>" for code in range(size)]
    missing = [name for name in names if name not in vocabulary]
    if missing:
        raise CirfError(f"{folder}: the tokenizer lacks {missing[0]}; the model is of a codebook of another size")
    ids = [vocabulary[name] for name in names]
    found = {}
    for matrix, key in zip(("input", "output"), _keys(folder, section), strict=True):
        if key is not None and (file := _file(folder, key)) is not None:
            found[matrix] = _read(folder / file, key, ids)
    if "input" not in found:
        raise CirfError(f"{folder}: its input embeddings are not in its safetensors files; save the model again")
    return found


def parameters(folder: Path) -> int | None:
    """The number of parameters of a saved model, by its tensors' headers; ``None`` if it has no safetensors."""
    total = 0
    for path in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (not a mapping)
        except SafetensorError:
            raise CirfError(f"{path}: damaged, or no safetensors; `cirf run` makes the model again") from None
    return total or None


def _keys(folder: Path, section: Any) -> tuple[str | None, str | None]:
    """The names of the input matrix and of the head, from the architecture without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from cirf.lm.backbone import load_config

    config = load_config(folder, section)
    with torch.device("meta"):
        build: Any = AutoModelForCausalLM.from_config
        model = build(config, trust_remote_code=may_run(section.trust_remote_code))
    names = {id(module): f"{name}.weight" for name, module in model.named_modules()}
    first, head = names[id(model.get_input_embeddings())], model.get_output_embeddings()
    return first, None if head is None or getattr(config, "tie_word_embeddings", False) else names[id(head)]


def _file(folder: Path, key: str) -> str | None:
    """The file of a tensor; ``None`` if it is in none."""
    if (folder / _INDEX).is_file():
        found: str | None = parse_json((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].get(key)
        return found
    if not (folder / _WHOLE).is_file():
        return None
    with safe_open(folder / _WHOLE, framework="pt") as file:
        return _WHOLE if key in file.keys() else None  # noqa: SIM118 (not a mapping)


def _read(path: Path, key: str, ids: Sequence[int]) -> np.ndarray:
    """Rows of a tensor; only the part of the file from the first to the last of them is read."""
    first = min(ids)
    with safe_open(path, framework="pt") as file:
        part = file.get_slice(key)
        if max(ids) >= part.get_shape()[0]:
            raise CirfError(f"{path}: {key} has fewer rows than the tokenizer has tokens; save the model again")
        block = part[first : max(ids) + 1].float().numpy()
    rows: np.ndarray = block[[place - first for place in ids]]
    return rows


_COLUMNS = (
    Column("source", "Source"),
    Column("backbone", "Backbone"),
    Column("representation", "Representation"),
    Column("initialiser", "Initialiser"),
    Column("reassign", "Reassigned"),
    Column("init", "First rows"),
    Column("size", "K", "number"),
    table.FEW_COLUMN,
    Column("seed", "Seed", "number"),
    Column("matrix", "Rows of"),
    Column("bias", "Bias share", "number"),
    Column("bias_chance", "of unrelated directions", "number"),
    Column("mean_cosine", "Mean cosine", "number"),
    Column("max_cosine", "Largest cosine", "number"),
    Column("cosine", "Cosine to its code", "number"),
    Column("kept", "Pairwise cosines kept, r", "number"),
)


def make(source: Source) -> AnalysisResult:
    """A row a run and matrix, codebook first."""
    rows: list[dict[str, Any]] = []
    for run in distinct(source.runs):
        rows += _rows(run)
    if not rows:
        raise MissingInputError("there is no model with functional tokens; make the stage `models/cirf_full` first")
    notes = [
        *([table.FEW_NOTE] if any(row["few"] for row in rows) else []),
        "All K functional tokens count, also those that no training segment carries; the delimiters do not. `codebook` are the"
        " code vectors before the language model was trained, `input` and `output` rows of the trained model (one matrix where"
        " they are tied).",
        "Cosine to its code, and the correlation of pairwise cosines before and after, are given if the tokens started at them.",
    ]
    if source.paper:
        for row in published("geometry"):  # one setting a row
            values = {key: value for key, value in row.items() if key not in ("by", "value")}
            rows.append(values | {row["by"]: row["value"], "matrix": "not said", "few": ""})
    return AnalysisResult((Table("geometry", "Geometry of the functional tokens' embeddings.", _COLUMNS, rows),), {}, notes)


def measures(rows: np.ndarray) -> dict[str, float | None]:
    """Bias share, mean and largest cosine of two rows [K x d]; ``None`` if undefined. A row of zeros has no direction: it counts
    for the bias share and for no pair."""
    rows = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1)
    mean_norm = float(norms.mean())
    bias = float(np.linalg.norm(rows.mean(axis=0))) / mean_norm if mean_norm else None
    pairs = pairwise_cosines(rows)
    if not len(pairs):
        return {"bias": bias, "mean_cosine": None, "max_cosine": None}
    return {"bias": bias, "mean_cosine": float(pairs.mean()), "max_cosine": float(pairs.max())}


def pairwise_cosines(rows: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of rows [K x d] that are not zero, each pair once: float64 [K (K - 1) / 2]."""
    rows = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1)
    unit = rows[norms > 0] / norms[norms > 0, None]
    found: np.ndarray = np.clip((unit @ unit.T)[np.triu_indices(len(unit), 1)], -1.0, 1.0)
    return found


def _rows(run: Run) -> list[dict[str, Any]]:
    folder = _model(run)
    if folder is None or not run.key("codebook.size"):
        return []
    size = int(run.key("codebook.size"))
    about = {
        "source": run.source,
        "backbone": model_name(run),
        **{name: run.key(f"codebook.{name}") for name in ("representation", "initialiser")},
        "reassign": run.key("codebook.reassign") or "sinkhorn",
        "init": run.key("vocabulary.init"),
        "size": size,
        "few": table.few_mark(sum(map(len, run.training_codes.values())), size) if run.training_codes else None,
        "seed": run.key("seed"),
        "bias_chance": 1 / math.sqrt(size),
    }
    path = run.file(run.codebook, "codebook.safetensors")
    codes = None if path is None else load_file(path)["codes"]  # [K x d_e], float32
    found = functional_rows(folder, size, run)
    rows = [] if codes is None else [about | {"matrix": "codebook"} | measures(codes)]
    for matrix, after in found.items():
        row = about | {"matrix": matrix} | measures(after)
        if codes is not None and codes.shape == after.shape and run.key("vocabulary.init") == "codebook":
            row |= _kept(codes, after)
        rows.append(row)
    return rows


def _model(run: Run) -> Path | None:
    """The folder of the first functional method's model, trained here or taken."""
    taken = run.recipe.get("models", {})
    for name in FUNCTIONAL:
        folder = Path(taken[name]) if name in taken else run.shown.at(f"models/{name}")
        if (folder / "config.json").is_file():
            return folder
    return None


def _kept(before: np.ndarray, after: np.ndarray) -> dict[str, float | None]:
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    if not lengths.all():
        return {}
    cosine = float(((before * after).sum(axis=1, dtype=np.float64) / lengths).mean())
    first, last = pairwise_cosines(before), pairwise_cosines(after)
    spread = len(first) > 1 and first.std() > 0 and last.std() > 0
    return {"cosine": cosine, "kept": float(np.corrcoef(first, last)[0, 1]) if spread else None}


ANALYSIS = Analysis(
    "geometry",
    "Geometry of the functional tokens",
    "How much the fine-tuned embeddings of the functional tokens have in common, and what training did to the codes' directions.",
    "a trained model with functional tokens; to compare, a sweep over representation, initialiser or K",
    make,
    "Table geometry",
)
