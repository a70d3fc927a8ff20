"""The record of a training in a model's folder: the curves and their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.store.files import load_object


def read_training(folder: Path) -> dict[str, Any] | None:
    """A training for ``report.json``; ``None`` if the folder holds no ``history.json``.

    ``train`` and ``validation`` are ``[[update, loss], ...]`` with the mean loss of a target token, ``numbers`` the
    other numbers of the history (rows, updates, tokens, rates), ``functional_rows`` how far the functional tokens' rows
    moved, ``trials`` the learning rates the model was chosen among (empty where there was one), ``timings`` the numbers
    of ``timings.json`` (seconds, tokens a second), and ``notes`` for the user. For a training by reward the two
    curves are empty, and ``right`` holds ``[[update, share], ...]`` of right answers: ``sampled``, and greedy in ``validation``.
    """
    history = load_object(folder / "history.json")
    if history is None:
        return None
    losses, validation = history.get("losses", ()), history.get("validation", ())
    by_reward = any("reward" in row for row in losses)
    try:
        summary: dict[str, Any] = {
            "train": [] if by_reward else [[row["update"], row["loss"]] for row in losses],
            "validation": [] if by_reward else [[row["update"], row["loss"]] for row in validation],
            "numbers": _scalars(history) | _losses_of_parts(history.get("validation", ())),
            "functional_rows": history.get("functional_rows", []),
            "trials": (load_object(folder / "trials.json") or {}).get("trials", []),
            "timings": _scalars(load_object(folder / "timings.json") or {}),
            "notes": [str(history["curriculum"]["note"])] if "note" in history.get("curriculum", {}) else [],
        }
        if by_reward:
            parts = {"sampled": losses, "validation": validation}
            summary["right"] = {name: [[row["update"], row["right"]] for row in rows] for name, rows in parts.items()}
        return summary
    except (KeyError, TypeError):
        raise CirfError(f"{folder / 'history.json'}: not a training's history; remove {folder} and run again") from None


def _losses_of_parts(validation: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The validation loss of the answer alone, and of the functional tokens alone, before training and after it, where both were
    measured."""
    found: dict[str, float] = {}
    for name in ("answer_loss", "code_loss"):
        known = [row for row in validation if name in row]
        if len(known) > 1 and known[0]["update"] == 0:
            found |= {f"{name}_untrained": known[0][name], name: known[-1][name]}
    return found


def _scalars(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if isinstance(inner, int | float | str)}
