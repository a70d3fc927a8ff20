"""Rows of a data set on the hub (`cirf.store.hub_names`): read once at a commit, and kept as JSON lines in the data folder.

    DATA/hub/openai/gsm8k/refs/main                            the commit that `main` was last
    DATA/hub/openai/gsm8k/COMMIT/gsm8k.main.train.jsonl        its rows

No code of a data set runs: `datasets` reads its files of JSON, CSV, Parquet and the like.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, time
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cirf.assets.fetch import hub_endpoint, reachable
from cirf.assets.hub import quiet, without_bars
from cirf.assets.resolve import data_folder
from cirf.errors import CirfError
from cirf.progress import for_terminal
from cirf.store.files import whole_file, write_atomic
from cirf.store.hub_names import HubName, parse

_COMMIT = re.compile(r"[0-9a-f]{40}")
_AT_ONCE = 1000  # rows


def pinned(name: str) -> str:
    """The name of a hub's data set with the commit in place of its revision: what the hub has now, asked once per process, or had
    last if it does not answer. ``CirfError`` if neither is known."""
    return str(_pinned(parse(name)))


def hub_file(name: str) -> Path:
    """The file that keeps the rows of a data set, fetched if it is not there; ``CirfError`` where the hub does not give them."""
    read = _pinned(parse(name))
    parts = [read.id.rpartition("/")[2], *([quote(read.config, safe="")] if read.config else []), quote(read.split, safe="")]
    path = _folder(read.id) / str(read.revision) / f"{'.'.join(parts)}.jsonl"
    if not path.is_file():
        _fetch(read, path)
    return path


def _fetch(name: HubName, path: Path) -> None:
    with without_bars(), for_terminal().task(f"fetching {name.id}", total=None) as advance:
        labels, batches = _load(name)
        with whole_file(path) as out:
            for batch in batches:
                for row in batch:
                    made = {key: _plain(_label(labels.get(key), value)) for key, value in row.items() if value is not None}
                    out.write(f"{json.dumps(made, ensure_ascii=False)}\n".encode())
                advance(len(batch))


def _folder(name: str) -> Path:
    return data_folder() / "hub" / name


def _pinned(name: HubName) -> HubName:
    if name.revision and _COMMIT.fullmatch(name.revision):
        return name
    return replace(name, revision=_commit(name, _folder(name.id) / "refs" / quote(name.revision or "main", safe="")))


@lru_cache
def _commit(name: HubName, kept: Path) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    endpoint, offline = hub_endpoint()
    if not offline and reachable(f"{endpoint}/api/datasets/{name.id}"):
        quiet()
        try:
            found = str(HfApi(endpoint=endpoint).dataset_info(name.id, revision=name.revision).sha)
            write_atomic(kept, found)
            return found
        except HfHubHTTPError as error:
            if error.response.status_code < 500:
                raise CirfError(
                    f"{name}: the hub refuses it ({type(error).__name__}); check the id and the revision, and for a data set "
                    "that is not public your token (`hf auth login`)"
                ) from None
    if kept.is_file():
        return kept.read_text().strip()
    raise _unreachable(name)


def _unreachable(name: HubName) -> CirfError:
    folder = _folder(name.id)
    return CirfError(
        f"{name}: the hub cannot be reached and these rows are not in {folder}; run `cirf check {name}` where there is a network "
        "and bring that folder, or name a file with the rows"
    )


def _load(name: HubName) -> tuple[dict[str, list[str]], Iterator[list[dict[str, Any]]]]:
    """The names of the labels by column, and the rows in batches."""
    endpoint, offline = hub_endpoint()
    if offline or not reachable(f"{endpoint}/api/datasets/{name.id}"):
        raise _unreachable(name)
    import datasets  # takes 1.5 s, so only when rows are fetched

    datasets.disable_progress_bars()  # they would overlap ours
    try:
        found = datasets.load_dataset(f"hf://datasets/{name.id}", name.config, split=name.split, revision=name.revision)
    except Exception as error:  # the hub, the network and the cache fail in dozens of ways; all end here the same
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split())[:300].rstrip(".") or type(cause).__name__
        raise CirfError(
            f"{name}: cannot be read from the hub ({reason}); configuration and split are named as hub:{name.id}:CONFIG:SPLIT"
        ) from None
    found = found.remove_columns([key for key, each in found.features.items() if _is_medium(each)])
    labels = {key: each.names for key, each in found.features.items() if isinstance(each, datasets.ClassLabel)}
    return labels, (batch.to_pylist() for batch in found.with_format("arrow").iter(_AT_ONCE))


def _is_medium(feature: Any) -> bool:
    """Whether a column holds pictures, sounds or other files, which no row of text needs."""
    return isinstance(getattr(feature, "decode", None), bool)


def _label(names: list[str] | None, value: Any) -> Any:
    """A label's name in place of its number; -1 stands for none."""
    return value if names is None else names[value] if 0 <= value < len(names) else None


def _plain(value: Any) -> Any:
    """A value as JSON has it: no bytes, no infinite numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, date | time):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)
