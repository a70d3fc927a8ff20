"""Sentence embeddings of segments (paper eq. 4).

    ["48/2 = 24 clips", "48+24 = 72 clips"]  ->  float32 [2 x 384]

Equal texts are embedded once; ``wording`` gives the text of a segment. The distinct texts, the longest first, are cut into
chunks of fixed size, and a finished chunk is a file; which texts share a forward pass therefore never depends on where an
earlier run stopped, nor on how many processes share the chunks. No more than a chunk is in memory.

The text of a step for the embedding model holds what the step does, with as little of its content as the recipe says.

A rationale of a question with the choices ``bank`` and ``mall``, with ``choices: mask`` and ``closing: drop``::

    A. Bank: a bank is guarded, so it fits.   ->  it: a it is guarded, so it fits.
    B. Mall: a mall is open to all.           ->  it: a it is open to all.
    The bank has more to guard.               ->  The it has more to guard.
    Therefore, the answer is A.                   (not read: a line of the last step that closes the rationale)

A single letter is a choice's, except an ``A`` before a word in small letters, which is an article. The changed text is used for
embeddings alone; segments, results and training rows stay unchanged.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save

from cirf.assets.hub import transformers_quiet
from cirf.codebook.rows import Joined, Picked, Rows, open_rows
from cirf.distributed import ALONE, Share
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.store.files import hash_json, write_atomic
from cirf.store.paths import refuse_special
from cirf.text.step_marks import closing_start

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WORDING = ("numbers", "choices", "closing", "words")
"""The keys of ``embeddings`` that decide it; by default the text is unchanged."""

_NUMBER = re.compile(r"[$€£]?\d+(?:[.,]\d+)*%?")
_PLACEHOLDER = "it"
_LETTER = r"\((?:{letters})\)|\b(?:{letters})\b(?!['’-])(?!(?<=A) [a-z])[.):]?"  # "A bank": an article


def wordings(segments: Sequence[str], section: schema.Embeddings, choices: Sequence[str] | None = None) -> list[str]:
    """The texts to embed for the steps of one rationale, in their order, of a question with these ``choices``."""
    texts = [
        wording(text if index + 1 < len(segments) else _unclosed(text, section), section, choices)
        for index, text in enumerate(segments)
    ]
    return texts if section.words == "all" else [" ".join(text.split()[: section.words]) for text in texts]


def wording(text: str, section: schema.Embeddings, choices: Sequence[str] | None = None) -> str:
    """The text to embed for a question, or a whole step that is not the last: numbers as ``N`` and choices as ``it``, where the
    section says so."""
    if choices and section.choices == "mask":
        text = _unnamed(text, choices)
    return text if section.numbers == "keep" else _NUMBER.sub("N", text)


def _unclosed(text: str, section: schema.Embeddings) -> str:
    """A last step without its closing statement; whole where it is nothing else."""
    return text if section.closing == "keep" else text[: closing_start(text)].rstrip() or text


def _unnamed(text: str, choices: Sequence[str]) -> str:
    letters = "|".join(ascii_uppercase[: len(choices)])
    marked = re.compile(_LETTER.format(letters=letters))
    names = sorted(filter(None, map(str.strip, choices)), key=len, reverse=True)
    named = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w|\.\d)", re.IGNORECASE) if names else None
    found = marked.sub(_PLACEHOLDER, text)
    found = named.sub(_PLACEHOLDER, found) if named else found
    return re.sub(rf"\b{_PLACEHOLDER}\b(?:[ ,\"']+{_PLACEHOLDER}\b)+", _PLACEHOLDER, found)


CHUNK = 512
"""Texts a file of finished work."""


class Embedder:
    """A sentence embedding model in memory; ``embedder(texts)`` gives float32 [n x d_s]."""

    def __init__(self, section: schema.Embeddings, source: Path | str, device: str, progress: Progress = SILENT) -> None:
        """Load the model of ``source``, a folder or else a hub id, of which ``section.revision`` is taken.

        Weights are float32 on a CPU and keep their own number format elsewhere (an 8B model need not fit twice).
        ``CirfError`` if there is none that sentence-transformers can read.
        """
        self._section = section
        self.model = load_encoder(section, _located(section, source, progress), device)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts, unchanged and in their order: float32 [n x d_s]. ``CirfError`` if one is not finite."""
        vectors = self.model.encode(list(texts), batch_size=self._section.batch_size, show_progress_bar=False)
        found = np.asarray(vectors, dtype=np.float32).reshape(len(texts), -1)
        bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(bad):
            text = texts[int(bad[0])][:60]
            raise CirfError(f"embeddings.model {self._section.model}: the vector of {text!r} is not finite; use another model")
        return found


def embed(
    texts: Sequence[str],
    section: schema.Embeddings,
    source: Path | str,
    device: str,
    work: Path,
    progress: Progress,
    share: Share = ALONE,
) -> Rows:
    """Embed M texts (eq. 4): float32 [M x d_s], row i being the vector of ``texts[i]``; read from ``work`` on access.

    ``source`` is where the model that ``section.model`` names is: a folder or a hub id. ``work`` is a scratch folder of this call
    alone. It holds finished chunks, and the same call after a kill continues from them with the same bytes as an uninterrupted
    run. The model is not loaded if all chunks are there. Where several processes ``share`` the chunks, all must call this, and
    all get every row. ``CirfError`` for a source without a model, no texts, or vectors not finite.
    """
    if not texts:
        raise CirfError("embeddings: there are no segments to embed; see the dropped rows of the segments stage")
    place: dict[str, int] = {}
    rows = np.array([place.setdefault(text, len(place)) for text in texts])
    distinct = list(place)
    if len(distinct) > CHUNK:  # of similar length in a chunk, too, for little padding (a single chunk is sorted by the model)
        order = sorted(range(len(distinct)), key=lambda number: -len(distinct[number]))
        distinct, rows = [distinct[number] for number in order], np.argsort(order)[rows]
    chunks = [distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK)]
    how = {"model": section.model, "revision": section.revision, "max_length": section.max_length, "batch": section.batch_size}
    keys = [hash_json({"how": how, "texts": chunk}) for chunk in chunks]
    paths = [work / f"chunk-{number:06d}.safetensors" for number in range(len(chunks))]

    def unfinished() -> list[int]:
        return [number for number in range(len(chunks)) if not _finished(paths[number], keys[number])]

    left = share.settled(unfinished)
    mine = share.mine(left)
    if mine:
        embedder = Embedder(section, source, device, progress)
        done = len(distinct) - sum(len(chunks[number]) for number in mine)
        with progress.task("embedding", total=len(distinct), unit="segments", done=done) as advance:
            for number in mine:
                made = embedder(chunks[number])
                write_atomic(paths[number], save({"vectors": made}, metadata={"key": keys[number]}))
                advance(len(chunks[number]))
    share.settled(lambda: None)  # every process reads what all have made
    return Picked(Joined([open_rows(path)[0]["vectors"] for path in paths]), rows)


def embed_once(texts: Sequence[str], section: schema.Embeddings, source: Path | str, device: str) -> np.ndarray:
    """Embed a few texts without keeping them: float32 [n x d_s]. ``CirfError`` as ``embed``."""
    return Embedder(section, source, device)(texts)


def _finished(path: Path, key: str) -> bool:
    """Whether a chunk is complete and of these texts and this model."""
    try:
        rows, facts = open_rows(path)
    except (FileNotFoundError, CirfError):
        return False
    return facts.get("key") == key and "vectors" in rows


def _located(section: schema.Embeddings, source: Path | str, progress: Progress) -> Path:
    """The folder of a model: the source itself, or the hub's download of that id."""
    if isinstance(source, Path) or Path(source).exists() or source[:1] in "./~":
        return Path(source)
    from cirf.assets.hub import snapshot

    try:
        return snapshot(source, section.revision, progress)
    except CirfError as error:
        raise CirfError(f"embeddings.model {error}") from None


def load_encoder(section: schema.Embeddings, folder: Path, device: str) -> SentenceTransformer:
    if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
        raise CirfError(f"embeddings.model {section.model}: no sentence embedding model in {folder}; check the name or path")
    refuse_special(folder)
    with _quiet():
        from sentence_transformers import SentenceTransformer

        from cirf.cpu.packed import pack
        from cirf.lm.backbone import no_pickles

        try:
            with no_pickles(f"embeddings.model {section.model}"):
                model = SentenceTransformer(
                    str(folder),
                    device=device,
                    local_files_only=True,
                    model_kwargs={"dtype": "float32" if device == "cpu" else "auto", "use_safetensors": True},
                )
        except CirfError:
            raise
        except Exception as error:  # nothing narrower, as of a language model (`cirf.lm.backbone.explained`)
            reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
            raise CirfError(f"embeddings.model {section.model}: cannot load a model from {folder} ({reason})") from error
    if section.max_length is not None:
        limit = model.max_seq_length
        model.max_seq_length = section.max_length if limit is None else min(section.max_length, limit)
    pack(model)
    return model.eval()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and log messages of the libraries; errors are still raised."""
    log = logging.getLogger("sentence_transformers")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with transformers_quiet():
            yield
    finally:
        log.setLevel(before)
