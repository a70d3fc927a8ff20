"""What votes answered and what that took, as the stages wrote it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cirf.analysis.shown import Shown
from cirf.evaluation.vote_times import with_fallback
from cirf.files import load_object

Data = dict[str, Any]


def read_voting(run: Shown, recipe: Mapping[str, Any], methods: Collection[str]) -> Data | None:
    """``voting.json`` of the recipe's voting method, and under ``latency`` its ``timings.json`` without the rows.

    ``latency.votes`` is of the numbers of votes that the curve has, 0 being the one answer they are compared with; with a
    fallback each tells ``with_fallback_mean_s`` too. ``None`` where nobody voted (or a version of long ago wrote the curve), or
    the votes are of or compared with a method that is none of ``methods``, those that are told of: an earlier recipe's, where
    what is done cannot be told. ``latency`` ``None`` where nothing was timed, or other numbers of votes, or votes until another
    agreement was settled. Raises ``CirfError`` for a damaged file.
    """
    name = recipe.get("evaluate", {}).get("voting", {}).get("method", "")
    found = load_object(run.at(f"voting/{name}") / "voting.json")
    if not found or "against" not in found or not {name, found["against"]} - {None} <= set(methods):
        return None
    timed = load_object(run.at(f"voting-latency/{name}") / "timings.json") or {}
    points = {row["votes"]: row for row in timed.get("votes", ())}
    wanted = [row["votes"] for row in found["curve"]] + ([0] if "alone" in found else [])
    settled = timed.get("agreement", found["agreement"])  # without it, as before votes were left, shares are of all votes
    if "discarded" not in timed or not points.keys() >= set(wanted) or settled != found["agreement"]:
        return {**found, "latency": None}
    joint = with_fallback(timed["rows"], found["agreement"]) if found["agreement"] is not None else {}
    votes = [points[count] | ({"with_fallback_mean_s": joint[count]} if count in joint else {}) for count in wanted]
    return {**found, "latency": {key: value for key, value in timed.items() if key not in ("rows", "seconds")} | {"votes": votes}}
