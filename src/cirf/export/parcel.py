"""The files to send, of a model's folder or of a data set of traces, as they will be in the repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cirf.errors import CirfError
from cirf.export.weights import check_weights
from cirf.store.files import parse_json
from cirf.store.jsonl import numbered_rows
from cirf.store.paths import without_folders

CARD = "README.md"
TRACES = "sft.jsonl"
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
_PARTS = re.compile(
    r"README\.md|LICEN[CS]E(\.\w+)?|NOTICE(\.\w+)?|config\.json|generation_config\.json|[\w.-]+\.safetensors"
    r"|model\.safetensors\.index\.json|tokenizer\.json|tokenizer_config\.json|tokenizer\.model|special_tokens_map\.json"
    r"|added_tokens\.json|vocab\.json|merges\.txt|chat_template\.jinja|functions\.json|labels\.json|asked_by\.json"
    r"|latent\.json|soft\.json|history\.json|trials\.json|recipe\.yaml|stage\.json"
)
_INNER = ("guide",)


@dataclass(frozen=True, slots=True)
class Piece:
    """A file by its ``name`` in the repository; ``data`` is a local file, or its content."""

    name: str
    data: Path | bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size

    def read(self) -> bytes:
        """Its content."""
        return self.data if isinstance(self.data, bytes) else self.data.read_bytes()


@dataclass(frozen=True, slots=True)
class Parcel:
    """The ``pieces`` that are sent, by name, and the names of other files that are not (``left_out``)."""

    pieces: tuple[Piece, ...]
    left_out: tuple[str, ...] = ()

    @property
    def card(self) -> str:
        """The text of its card."""
        return next(piece.read().decode() for piece in self.pieces if piece.name == CARD)


def of_model(folder: Path, repository: str) -> Parcel:
    """A trained model's folder for publication in ``repository`` (``OWNER/NAME``), which its card then names.

    In its recipe and record, local files and models are named without folders. ``CirfError`` if it is not a finished model with a
    card, or holds pickled weights.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.relative_to(folder).parts]
    _check_inside(folder, found)
    if pickles := [path for path in found if path.suffix.lower() in _PICKLES]:
        name = pickles[0].relative_to(folder)
        raise CirfError(f"{folder}: {name} may run code when it is loaded; keep only safetensors and remove it")
    _check_model(folder)
    if not (folder / CARD).is_file():
        raise CirfError(f"{folder}: no model card ({CARD}); `cirf report RUN` writes the cards of a run's models")
    chosen = {path for path in found if _sent(path.relative_to(folder))}
    pieces = [Piece(path.relative_to(folder).as_posix(), _published(path, repository)) for path in found if path in chosen]
    left = [path.relative_to(folder).as_posix() for path in found if path not in chosen]
    return Parcel(tuple(pieces), tuple(left))


def of_traces(folder: Path, card: str) -> Parcel:
    """The rows that the model in a folder was trained on, with their card. ``CirfError`` if there are none, or one is not a row
    of prompt and completion."""
    path = folder / TRACES
    _check_inside(folder, [path])
    traces(folder)
    return Parcel((Piece(CARD, card.encode()), Piece(TRACES, path)))


def traces(folder: Path) -> list[dict[str, str]]:
    """The rows of a model's training, each ``prompt`` and ``completion``. ``CirfError`` as for `of_traces`."""
    path = folder / TRACES
    if not path.is_file():
        raise CirfError(f"{path}: not there; a run keeps it with each model that it trains")
    rows = []
    for number, row in numbered_rows(path):
        found = {key: row[key] for key in ("prompt", "completion") if isinstance(row.get(key), str)}
        if len(found) < 2:
            raise CirfError(f"{path}: line {number} is not a row of prompt and completion; train the model again")
        rows.append(found)
    if not rows:
        raise CirfError(f"{path}: holds no row; train the model again")
    return rows


def _check_inside(folder: Path, files: Sequence[Path]) -> None:
    """``CirfError`` where a file is a link to one outside of the folder."""
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            name = path.relative_to(folder)
            raise CirfError(
                f"{folder}: {name} is a link to a file outside of the folder; put the file itself there, or remove it"
            )


def _check_model(folder: Path) -> None:
    """``CirfError`` if a folder lacks anything that loading it needs."""
    if folder.parent.name == ".work" or ".work" in folder.resolve().parts:
        raise CirfError(f"{folder}: still in the making; finish the run first")
    for place in (folder, *(folder / name for name in _INNER if (folder / name).is_dir())):
        for names in (("config.json",), ("tokenizer.json", "tokenizer.model", "vocab.json"), ("tokenizer_config.json",)):
            if not any((place / name).is_file() for name in names):
                raise CirfError(f"{place}: no finished model, {' or '.join(names)} is missing; name a model that was trained")
        check_weights(place)


def _sent(name: Path) -> bool:
    inner = name.parts[:-1]
    return (not inner or inner in [(part,) for part in _INNER]) and _PARTS.fullmatch(name.name) is not None


def _published(path: Path, repository: str) -> Path | bytes:
    """A file in the form to send: unchanged, or without local content."""
    if path.name == CARD:
        return for_repository(path.read_text(encoding="utf-8"), repository).encode()
    if path.name == "recipe.yaml":
        from cirf.recipe.load import for_others, load

        return for_others(load(str(path))).encode()
    return _record(path).encode() if path.name in ("stage.json", "functions.json") else path


def for_repository(card: str, repository: str) -> str:
    """A card with the repository in place of MODEL in its commands."""
    head, mark, rest = card.partition("## How to use it")
    use, after, others = rest.partition("\n## ")
    return head + mark + re.sub(r"\bMODEL\b", repository, use) + after + others


def _record(path: Path) -> str:
    """A stage's record, or for functional tokens only the backbone's name, since their segments are data."""
    from cirf.store.files import to_json
    from cirf.store.run_folder import record

    try:
        summary = parse_json(path.read_text(encoding="utf-8"))
        if path.name == "stage.json":
            return record(without_folders(summary))
        return to_json(summary | without_folders({"backbone": summary["backbone"]}))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CirfError(f"{path}: damaged; train the model again") from None
