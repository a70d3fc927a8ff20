"""``data get`` and ``data list``: public benchmark data.

Data are fetched into a folder that recipes read. ``sources.json`` in the folder records each file's source and hash. An unchanged
file is not fetched again, nor is one that the user brought. Unfinished downloads are kept in ``.downloads`` and resumed.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cirf import __version__, tasks
from cirf.assets import data_folder
from cirf.assets.benchmarks import Address, DataFile, catalogue, select
from cirf.assets.fetch import Meter, hub_endpoint, reachable
from cirf.assets.hub import without_bars
from cirf.assets.resolve import exclusive
from cirf.errors import CirfError
from cirf.progress import Progress, for_terminal
from cirf.store.files import hash_file, load_object, to_json, whole_file, write_atomic
from cirf.store.jsonl import read_rows
from cirf.tasks.loading.sources import hub_rows

SOURCES = "sources.json"
_FORMAT = 1  # format version; a file of an earlier one is fetched again
_DOWNLOADS = ".downloads"
_KB = 1000


@dataclass(frozen=True)
class FetchedFile:
    """A file of the folder and what became of it: fetched now, before (``there``), ``brought`` by the user, or ``missing``."""

    file: DataFile
    state: Literal["fetched", "there", "brought", "missing"]
    rows: int = 0
    sha256: str = ""
    sources: tuple[Mapping[str, Any], ...] = ()
    """The exact sources with their SHA-256 and whether it was pinned."""
    reason: str = ""
    """Why it is missing."""
    offline: bool = False
    """Whether it is because a server did not answer, for it or for its sources."""


def get_task(
    files: Sequence[DataFile], folder: Path, progress: Progress, say: Callable[[FetchedFile], None]
) -> tuple[list[FetchedFile], list[FetchedFile]]:
    """Bring the files into ``folder``; ``say`` is called with each result. A failure does not stop the others; those missing are
    the second list."""
    got: list[FetchedFile] = []
    missing: list[FetchedFile] = []
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / ".lock", f"another process fetches into {folder}", progress):
        for file in files:
            try:
                got.append(_one(file, folder, progress))
                say(got[-1])
            except CirfError as error:
                offline = isinstance(error, UnreachableError) or any(
                    one.offline and one.file.path in file.after for one in missing
                )
                missing.append(FetchedFile(file, "missing", reason=str(error), offline=offline))
                say(missing[-1])
        if not missing:
            shutil.rmtree(folder / _DOWNLOADS, ignore_errors=True)
    return got, missing


def state(file: DataFile, folder: Path) -> str:
    """``fetched``, ``brought``, ``not fetched``, or ``by hand`` if it is missing and cannot be fetched."""
    if (folder / file.path).is_file():
        return "fetched" if file.path in _sources(folder) else "brought"
    return "by hand" if file.by_hand else "not fetched"


def _one(file: DataFile, folder: Path, progress: Progress) -> FetchedFile:
    path = folder / file.path
    known = _sources(folder).get(file.path)
    if path.is_file():
        found = hash_file(path)
        if known is None:
            return FetchedFile(file, "brought", len(read_rows(path)), found)
        if (known["sha256"], known["asked"], known["format"]) == (found, file.origin, _FORMAT):
            return FetchedFile(file, "there", known["rows"], found, tuple(known["origin"]))
    if file.by_hand:
        raise CirfError("it has no checked address; bring it or rows of your own, or leave it out of rationales.files")
    for other in file.after:
        if not (folder / other).is_file():
            raise CirfError(f"{other}, which it is made from, is missing")
    origin = _from_hub(file, path, progress) if file.part is not None else _from_addresses(file, path, folder, progress)
    got = FetchedFile(file, "fetched", len(read_rows(path)), hash_file(path), tuple(origin))
    kept = {"sha256": got.sha256, "rows": got.rows, "asked": file.origin, "origin": origin, "format": _FORMAT}
    about = {"licence": file.licence, "home": file.home}
    write_atomic(folder / SOURCES, to_json(_sources(folder) | {file.path: kept | about}))
    return got


def _sources(folder: Path) -> dict[str, dict[str, Any]]:
    return load_object(folder / SOURCES) or {}


def _from_hub(file: DataFile, path: Path, progress: Progress) -> list[dict[str, Any]]:
    task = tasks.get(file.group)
    assert task.hub is not None and file.part is not None
    endpoint, offline = hub_endpoint()
    if offline:
        raise UnreachableError("HF_HUB_OFFLINE is set")
    if not reachable(f"{endpoint}/api/datasets/{task.hub.id}"):
        raise UnreachableError(f"no answer from {endpoint}")
    import datasets

    datasets.disable_progress_bars()  # they would overlap ours
    with without_bars(), progress.task(f"fetching {file.path}", total=None, unit=""):
        _write(path, hub_rows(task, file.part))
    return [{"source": file.origin[0], "sha256": None, "pinned": False}]


def _from_addresses(file: DataFile, path: Path, folder: Path, progress: Progress) -> list[dict[str, Any]]:
    names = [folder / _DOWNLOADS / _name(address) for address in file.addresses]
    origin = []
    done = 0
    with progress.task(f"fetching {file.path}", total=None, unit="kB") as advance:
        meter = Meter(advance, _KB)
        for address, target in zip(file.addresses, names, strict=True):
            found = download(address.url, target, address.sha256, meter.after(done))
            origin.append({"source": address.url, "sha256": found, "pinned": address.sha256 is not None})
            done += target.stat().st_size
    if file.convert is None:
        read_rows(names[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(names[0], path)
        return origin
    try:
        _write(path, file.convert(names, folder))
    except (KeyError, ValueError, TypeError, AttributeError, CirfError) as error:
        for target in names:
            target.unlink()
        raise CirfError(f"the content of {file.addresses[0].url} cannot be read ({type(error).__name__}: {error})") from None
    return origin


def _name(address: Address) -> str:
    """A unique name for a download: files of several repositories have the same name."""
    return f"{hashlib.sha256(address.url.encode()).hexdigest()[:12]}-{address.url.rpartition('/')[2]}"


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as JSONL; for a picture only that there is one."""
    with whole_file(path) as out:
        for row in rows:
            out.write(f"{json.dumps(row, ensure_ascii=False, default=lambda _: None)}\n".encode())


_CHUNK = 2**16
_PATIENCE = 20.0  # seconds without a byte
TRIES = 4
WAIT = 1.0  # seconds before the second try, twice as long before each further one
_BUSY = (429, 500, 502, 503, 504)


class UnreachableError(CirfError):
    """The server did not answer at all."""


class _CutError(Exception):
    """The download ended early, and may be resumed."""


def download(url: str, target: Path, sha256: str | None, show: Callable[[float], None]) -> str:
    """Fetch ``url`` into ``target``; its SHA-256.

    ``show`` is called with the bytes so far. A partial file is kept as ``target.part``, by a failed call too, and
    the next one asks for the rest. Raises ``UnreachableError`` if the server does not answer, and ``CirfError`` if it does not
    give the file or gives another than ``sha256`` says (which is removed).
    """
    if target.exists() and sha256 in (None, found := hash_file(target)):
        return found
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    _fetch(url, part, show)
    found = hash_file(part)
    if sha256 not in (None, found):
        part.unlink()
        raise CirfError(f"{url} is refused: it has SHA-256 {found} where {sha256} is published; it was removed")
    os.replace(part, target)
    return found


def _fetch(url: str, part: Path, show: Callable[[float], None]) -> None:
    if not reachable(url):
        raise UnreachableError(f"no answer from {urllib.parse.urlsplit(url).netloc}")
    for left in reversed(range(TRIES)):
        try:
            _go_on(url, part, show)
            return
        except _CutError as reason:
            if not left:
                raise CirfError(f"{url}: {reason}; the partial download is kept") from None
            time.sleep(WAIT * 2 ** (TRIES - 1 - left))


def _go_on(url: str, part: Path, show: Callable[[float], None]) -> None:
    """Request the missing part of ``part`` and append it; from the start if the server has no partial downloads."""
    begun = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"cirf/{__version__}"} | ({"Range": f"bytes={begun}-"} if begun else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_PATIENCE) as answer:
            goes_on = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
            if begun and answer.status == 206 and not goes_on:
                part.unlink()
                raise _CutError("the server gave another part of the file than requested")
            there = begun if goes_on else 0
            length = answer.headers.get("Content-Length")
            end = None if length is None else there + int(length)
            with open(part, "ab" if goes_on else "wb") as out:
                while chunk := answer.read(_CHUNK):
                    out.write(chunk)
                    there += len(chunk)
                    show(there)
                out.flush()
                os.fsync(out.fileno())
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the partial file is not a beginning of the file, or already all of it
            part.unlink()
            raise _CutError("the server does not resume the partial download") from None
        if error.code in _BUSY:
            raise _CutError(f"the server is busy (HTTP {error.code})") from None
        raise CirfError(f"{url}: the server refuses it (HTTP {error.code} {error.reason})") from None
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _CutError(f"the connection broke ({getattr(error, 'reason', error) or type(error).__name__})") from None
    if end is not None and there < end:
        raise _CutError(f"the connection broke after {there:,} of {end:,} bytes")


_WIDTH = 52
_FEW = 4  # files of a group that are named one by one


def get(names: Sequence[str], out: Path | None, quiet: bool, as_json: bool, files: Sequence[DataFile] | None = None) -> None:
    """Fetch the files of these names and print a line each; ``CirfError`` at the end if any is missing. ``files`` is the
    catalogue to choose from."""
    if not names:
        raise CirfError("data get: name benchmarks or rationale files, or all (see `cirf data list`)")
    folder = (out or data_folder()).resolve()
    chosen = select(names, catalogue() if files is None else files)
    got, missing = get_task(chosen, folder, for_terminal(quiet), lambda one: None if as_json else print(_line(one), flush=True))
    if as_json:
        made = {"folder": str(folder), "files": [_row(each) for each in got], "missing": [_row(each) for each in missing]}
        print(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        print(f"folder: {folder}{'' if out is None else f' (give it to recipes with --data {out})'}")
    if missing:
        raise CirfError(_sentence(missing, folder))


def listing(out: Path | None, as_json: bool) -> None:
    folder = (out or data_folder()).resolve()
    rows = [{"file": file.path, "state": state(file, folder), "licence": file.licence, "home": file.home} for file in catalogue()]
    if as_json:
        print(json.dumps({"folder": str(folder), "files": rows}, indent=2, ensure_ascii=False))
        return
    for row in rows:
        print(f"{row['file'].ljust(_WIDTH)}  {row['state'].ljust(11)}  {row['licence'].ljust(15)}  {row['home']}")
    print(f"folder: {folder}")


def _line(found: FetchedFile) -> str:
    file = found.file
    if found.state == "missing":
        return f"{file.path}: missing: {found.reason}"
    words = {"fetched": "fetched", "there": "there already", "brought": "there, brought by hand"}[found.state]
    rows = f"{found.rows:,} row{'' if found.rows == 1 else 's'}"
    if file.rows_sha256 == found.sha256:
        hashed = "the rows of the published results"
    elif file.rows_sha256 is not None:
        hashed = f"not the rows of the published results (SHA-256 {found.sha256})"
    elif found.sources and all(each["pinned"] for each in found.sources):
        hashed = "SHA-256 as pinned"
    else:
        hashed = f"SHA-256 {found.sha256} (not pinned)"
    return f"{file.path}: {words}, {rows}, licence {file.licence}, from {file.home}; {hashed}"


def _row(found: FetchedFile) -> dict[str, Any]:
    about = {"file": found.file.path, "licence": found.file.licence, "home": found.file.home}
    if found.state == "missing":
        return about | {"reason": found.reason}
    as_published = None if found.file.rows_sha256 is None else found.sha256 == found.file.rows_sha256
    details = {"state": found.state, "rows": found.rows, "sha256": found.sha256, "sources": list(found.sources)}
    return about | details | {"rows_of_published_results": as_published}


def _sentence(missing: Sequence[FetchedFile], folder: Path) -> str:
    groups: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        groups.setdefault((each.file.group, each.file.home), []).append(each.file.path)
    sources = [
        f"{', '.join(paths) if len(paths) <= _FEW else f'{len(paths)} files of {group}/ (see `cirf data list`)'} from {home}"
        for (group, home), paths in groups.items()
    ]
    count = f"{len(missing)} file{'s are' if len(missing) > 1 else ' is'} missing"
    offline = any(each.offline for each in missing) and all(each.offline or each.file.by_hand for each in missing)
    why = f"no network, {count}" if offline else count
    again = "" if all(each.file.by_hand for each in missing) else "run the command again, or "
    return f"{why}: {again}bring {'; '.join(sources)} to {folder}, in the form described in docs/how-to/benchmark-data.md"
