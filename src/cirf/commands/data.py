"""``data get`` and ``data list``: public benchmark data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cirf.assets import data_folder
from cirf.assets.benchmarks import DataFile, catalogue, select
from cirf.assets.fetch_data import Got, Missing, state
from cirf.assets.fetch_data import get as fetch
from cirf.errors import CirfError
from cirf.progress import for_terminal

_WIDTH = 52
_FEW = 4  # files of a group that are named one by one


def get(names: Sequence[str], out: Path | None, quiet: bool, as_json: bool, files: Sequence[DataFile] | None = None) -> None:
    """Fetch the files of these names and print a line each; ``CirfError`` at the end if any is missing.

    ``files`` is the catalogue to choose from.
    """
    if not names:
        raise CirfError("data get: name benchmarks or rationale files, or all (see `cirf data list`)")
    folder = (out or data_folder()).resolve()
    chosen = select(names, catalogue() if files is None else files)
    got, missing = fetch(
        chosen, folder, for_terminal(quiet), lambda summary: None if as_json else print(_line(summary), flush=True)
    )
    if as_json:
        made = {"folder": str(folder), "files": [_row(each) for each in got], "missing": [_row(each) for each in missing]}
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        print(f"folder: {folder}{'' if out is None else f' (give it to recipes with --data {out})'}")
    if missing:
        raise CirfError(_sentence(missing, folder))


def listing(out: Path | None, as_json: bool) -> None:
    """Every file with its licence and home, and whether it is in the folder."""
    folder = (out or data_folder()).resolve()
    rows = [{"file": file.path, "state": state(file, folder), "licence": file.licence, "home": file.home} for file in catalogue()]
    if as_json:
        print(json.dumps({"folder": str(folder), "files": rows}, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['file'].ljust(_WIDTH)}  {row['state'].ljust(11)}  {row['licence'].ljust(15)}  {row['home']}")
    print(f"folder: {folder}")


def _line(summary: Got | Missing) -> str:
    if isinstance(summary, Missing):
        return f"{summary.file.path}: missing: {summary.reason}"
    words = {"fetched": "fetched", "there": "there already", "brought": "there, brought by hand"}[summary.state]
    rows = f"{summary.rows:,} row{'' if summary.rows == 1 else 's'}"
    return f"{summary.file.path}: {words}, {rows}, licence {summary.file.licence}, from {summary.file.home}; {_hashes(summary)}"


def _hashes(got: Got) -> str:
    if got.file.rows_sha256 is not None:
        if got.sha256 == got.file.rows_sha256:
            return "the rows of the published results"
        return f"not the rows of the published results (SHA-256 {got.sha256})"
    if got.origin and all(each["pinned"] for each in got.origin):
        return "SHA-256 as pinned"
    return f"SHA-256 {got.sha256} (not pinned)"


def _row(summary: Got | Missing) -> dict[str, Any]:
    about = {"file": summary.file.path, "licence": summary.file.licence, "home": summary.file.home}
    if isinstance(summary, Missing):
        return about | {"reason": summary.reason}
    as_published = None if summary.file.rows_sha256 is None else summary.sha256 == summary.file.rows_sha256
    return about | {
        "state": summary.state,
        "rows": summary.rows,
        "sha256": summary.sha256,
        "sources": list(summary.origin),
        "rows_of_published_results": as_published,
    }


def _sentence(missing: Sequence[Missing], folder: Path) -> str:
    """The missing files, with their sources and target."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        groups.setdefault((each.file.group, each.file.home), []).append(each.file.path)
    summary = [
        f"{', '.join(paths) if len(paths) <= _FEW else f'{len(paths)} files of {group}/ (see `cirf data list`)'} from {home}"
        for (group, home), paths in groups.items()
    ]
    count = f"{len(missing)} file{'s are' if len(missing) > 1 else ' is'} missing"
    offline = any(each.offline for each in missing) and all(each.offline or each.file.by_hand for each in missing)
    why = f"no network, {count}" if offline else count
    again = "" if all(each.file.by_hand for each in missing) else "run the command again, or "
    return f"{why}: {again}bring {'; '.join(summary)} to {folder}, in the form described in docs/how-to/benchmark-data.md"
