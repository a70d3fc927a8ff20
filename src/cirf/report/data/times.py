"""The times of a run: the time of each method, and the setup of the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cirf.errors import CirfError
from cirf.stats.tests import spread
from cirf.store.files import load_object
from cirf.store.view import Shown

Data = dict[str, Any]

_LATENCY = {
    "latency_n": "n",
    "latency_mean_s": "mean_s",
    "latency_interval": "mean_s_interval",
    "latency_p50_s": "p50_s",
    "latency_p95_s": "p95_s",
    "latency_tokens": "tokens",
    "first_token_s": "first_token_s",
    "decode_s": "decode_s",
    "decode_tokens_per_s": "decode_tokens_per_s",
}
_MEMORY = ("weights_bytes", "growth_bytes", "peak_bytes")


def read_times(run: Shown, stage: str) -> Data:
    """``timings.json`` of ``latency`` without its rows; empty where there is none.

    Raises ``CirfError`` for a damaged file.
    """
    path = run.at(stage) / "timings.json"
    found = load_object(path) or {}
    if found and not isinstance(found.get("methods"), dict):
        raise CirfError(f"{path}: holds no times of methods; remove the folder {path.parent} to measure again")
    return {key: value for key, value in found.items() if key not in ("rows", "seconds")}


def facts(times: Mapping[str, Any]) -> Data:
    """The setup of a measurement, without the methods; empty if nothing was measured."""
    return {key: value for key, value in times.items() if key != "methods"}


def latency_of(times: Mapping[str, Any], method: str) -> Data:
    """A method's numbers over all tasks; ``None`` each where it was not timed."""
    found = times.get("methods", {}).get(method, {})
    return _named(found.get("overall", {})) | {key: found.get(key) for key in _MEMORY}


def task_latency_of(times: Mapping[str, Any], method: str, task: str) -> Data:
    """A method's numbers on one task; ``None`` each where it was not timed."""
    return _named(times.get("methods", {}).get(method, {}).get("tasks", {}).get(task, {}))


def _named(summary: Mapping[str, Any]) -> Data:
    runs = summary.get("runs_s")
    return {ours: summary.get(theirs) for ours, theirs in _LATENCY.items()} | {"latency_sd_s": spread(runs) if runs else None}


def setting(facts: Mapping[str, Any]) -> str:
    """Engine, device, threads and number format in words, as shown with every figure and table of times."""
    if not facts:
        return ""
    threads = facts.get("threads")
    parts = [facts.get("engine"), facts.get("device"), f"{threads} thread{'s' if threads != 1 else ''}" if threads else None]
    return ", ".join(str(part) for part in (*parts, facts.get("dtype")) if part)


def holding(facts: Mapping[str, Any]) -> str:
    """How the models were held while they took turns, in words."""
    loads = facts.get("loads") or []
    if not loads:
        return ""
    if all(load["models"] == 1 for load in loads):
        details = "One model answers for all methods"
    elif all(load["together"] for load in loads):
        details = f"All {loads[0]['models']} models were in memory at once"
    else:
        details = f"The {loads[0]['models']} models did not fit into memory together and were loaded in turn, several rounds"
    details += f"; the measurement was resumed {len(loads) - 1}\N{MULTIPLICATION SIGN}" if len(loads) > 1 else ""
    others = facts.get("discarded")
    return details + (f"; {others:,} answers timed before on another engine or machine were timed again" if others else "")
