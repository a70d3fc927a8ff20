"""``push``: a finished model, or the rows that it was trained on, to a repository of a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cirf.codebook.functions import find_model, functions_of
from cirf.errors import CirfError
from cirf.export.parcel import CARD, of_model, of_traces, traces
from cirf.export.secrets import check_private
from cirf.export.upload import check_name, own_token, upload
from cirf.progress import for_terminal
from cirf.store.integrity import check_model


def push(path: Path, repository: str, as_traces: bool, public: bool, dry_run: bool, as_json: bool) -> None:
    """Send a model's folder (of a run: its CIRF model) to ``repository``, ``OWNER/NAME``, and print what was sent and where.

    ``as_traces``: the rows that it was trained on, as a data set, instead of the model. ``dry_run``: print what would be sent,
    and the card. ``CirfError`` for an unfinished model, or private content.
    """
    check_name(repository)
    folder = find_model(path)
    parcel = of_traces(folder, _card(folder, repository)) if as_traces else of_model(folder, repository)
    check_private(parcel, folder, own_token())
    if not as_traces:
        check_model(folder.resolve(), for_terminal(as_json))
    kind, seen = "dataset" if as_traces else "model", "public" if public else "private"
    summary: dict[str, Any] = {
        "repository": repository,
        "kind": kind,
        "visibility": seen,
        "files": [{"name": piece.name, "bytes": piece.size} for piece in parcel.pieces],
        "bytes": sum(piece.size for piece in parcel.pieces),
        "left_out": list(parcel.left_out),
        "pushed": not dry_run,
    }
    if not as_json:
        _print_files(summary)
    if dry_run:
        if as_json:
            print(json.dumps(summary | {"card": parcel.card}, indent=2, ensure_ascii=False))
        else:
            print(f"\n{CARD}:\n\n{parcel.card}")
            print(f"nothing was sent; without --dry-run it goes to the {seen} {kind} {repository}")
        return
    what = f"{folder.resolve().name}, {'its training rows' if as_traces else 'trained'} by cirf"
    summary["url"] = upload(parcel, repository, "dataset" if as_traces else "model", public, what)
    print(json.dumps(summary, indent=2, ensure_ascii=False) if as_json else f"{seen} {kind} {repository}: {summary['url']}")


def _print_files(summary: dict[str, Any]) -> None:
    width = max(len(row["name"]) for row in summary["files"])
    for row in summary["files"]:
        print(f"{row['name']:{width}} {row['bytes']:>15,}")
    print(f"{len(summary['files'])} files, {summary['bytes'] / 1e6:,.1f} MB")
    if summary["left_out"]:
        print(f"left out: {', '.join(summary['left_out'])}")


def _card(folder: Path, repository: str) -> str:
    """The card of the rows in a model's folder. ``CirfError`` if the rows alone do not make such a model, or there is no
    recipe."""
    from cirf.lm.backbone import load_tokenizer
    from cirf.lm.prompt import end_token
    from cirf.methods.saved import vectors_of
    from cirf.recipe.load import load
    from cirf.report.cards.traces import traces_card

    if vectors_of(folder):
        raise CirfError(f"{folder}: thinks in vectors, which rows of text do not teach; push the traces of another model")
    rows = traces(folder)
    if not (folder / "recipe.yaml").is_file():
        raise CirfError(f"{folder}: no recipe.yaml, so the source of its rows is unknown; push from the run's own folder")
    recipe = load(str(folder / "recipe.yaml"))
    untrusted = recipe.backbone.model_copy(update={"trust_remote_code": False})  # the folder may be from elsewhere
    tokenizer = load_tokenizer(folder, untrusted)
    end = tokenizer.convert_ids_to_tokens(end_token(tokenizer))
    return traces_card(
        repository, folder.resolve().name, recipe.model_dump(mode="json"), rows, str(end), functions_of(folder) or None
    )
