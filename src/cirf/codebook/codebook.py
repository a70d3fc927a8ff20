"""The codebook, which names a segment's function: saved and loaded (paper 3.2).

    codebook-64/
      codebook.safetensors   codes [K x d_e], encoder.*, decoder.*, corpus_mean [d_s]
      codebook.json          settings, embedding model, losses, usage, for people to read

A training segment's code is the balanced argmax of eq. 8 (or its nearest code, ``assign: nearest``); a new segment always
gets the nearest code, since balance is a property of a whole set.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cirf.codebook import sinkhorn
from cirf.codebook.centering import Kind, SingleStep, represent
from cirf.codebook.embedding import WORDING
from cirf.codebook.fit import fit
from cirf.codebook.rows import Rows
from cirf.codebook.vqvae import EncodedRows, FeedForward
from cirf.distributed import ALONE, Share
from cirf.errors import CirfError
from cirf.progress import Progress
from cirf.recipe import schema
from cirf.store.files import parse_json, to_json, write_atomic

_TENSORS = "codebook.safetensors"
_FACTS = "codebook.json"
_UNCHANGED = schema.Embeddings().model_dump(include=set(WORDING))


@dataclass(frozen=True, eq=False)
class Codebook:
    """K codes and everything needed to assign a new segment to one.

    ``codes`` float32 [K x d_e] on the CPU; ``settings``: the section it was trained by; ``corpus_mean`` float32 [d_s] and
    ``embedder`` (model id, revision, how steps are worded) are known once ``described``; ``report``: see ``train``.
    """

    codes: Tensor
    encoder: FeedForward
    decoder: FeedForward
    settings: schema.Codebook
    corpus_mean: np.ndarray
    embedder: Mapping[str, str | int | None]
    report: Mapping[str, Any]

    @property
    def size(self) -> int:
        return self.codes.shape[0]

    @property
    def width(self) -> int:
        """d_e: a backbone must have embeddings of this width."""
        return self.codes.shape[1]

    @property
    def representation(self) -> Kind:
        return self.settings.representation

    @property
    def single_step(self) -> SingleStep:
        return self.settings.single_step

    def described(self, corpus_mean: np.ndarray, embedder: Mapping[str, str | int | None]) -> Codebook:
        """This codebook with the corpus mean [d_s] and its embeddings: ``model``, ``revision``, how steps are worded."""
        return dataclasses.replace(self, corpus_mean=np.asarray(corpus_mean, np.float32), embedder=dict(embedder))

    @property
    def _unreported(self) -> set[str]:
        """Keys that do not matter for this codebook, or are newer and have the value that older codebooks imply."""
        return {"size_trials", "chosen"} | ({"reassign"} if self.settings.reassign == "sinkhorn" else set())

    def check(
        self, *, width: int, embedder: Mapping[str, str | int | None], size: int | None = None, representation: str | None = None
    ) -> None:
        """``CirfError`` unless it fits a backbone of this width, this embedding model and these settings."""
        if width != self.width:
            advice = "use it with a backbone of that width, or train a new codebook"
            raise CirfError(f"codebook.reuse: its codes are {self.width} wide, the backbone's embeddings {width}; {advice}")
        if dict(embedder) != dict(self.embedder):
            raise CirfError(
                f"codebook.reuse: it was trained on vectors of {_name(self.embedder)}, the recipe embeds with {_name(embedder)}; "
                f"set {', '.join(f'embeddings.{key}' for key in ('model', 'revision', *WORDING))} to the former"
            )
        if size is not None and size != self.size:
            raise CirfError(f"codebook.reuse: it has {self.size} codes, codebook.size is {size}; set that to {self.size}")
        if representation is not None and representation != self.representation:
            raise CirfError(f"codebook.reuse: codebook.representation is {representation}; set it to {self.representation}")

    def encoded(self, vectors: Rows) -> EncodedRows:
        """x = F_enc(z') [n x d_e] of representations z' [n x d_s], in pieces; ``CirfError`` if they have another width."""
        inputs = self.encoder.first.in_features
        if len(vectors.shape) != 2 or vectors.shape[1] != inputs:
            raise CirfError(f"codebook: it reads vectors of width {inputs}, got {vectors.shape}; use its own embedding model")
        return EncodedRows(self.encoder, vectors)

    def encode(self, vectors: Rows) -> np.ndarray:
        """Nearest code of each representation z' [n x d_s]: int64 [n]."""
        return sinkhorn.nearest(self.encoded(vectors), self.codes).numpy()

    def quantise(self, vectors: np.ndarray, question: np.ndarray | None = None) -> np.ndarray:
        """Codes int64 [m] of the m steps of ONE new rationale, from their bare embeddings z [m x d_s].

        Centres them within the rationale (eq. 5), then takes the nearest codes. ``question`` [d_s], the question's
        embedding, is needed by a codebook of question-centred representations. ``CirfError`` if there is no step, no
        such question, or the codebook is one of noise.
        """
        if not len(vectors):
            raise CirfError("codebook: the rationale has no step; write steps as 'Step 1: ...' or one a line")
        if self.representation == "random":
            raise CirfError("codebook: its codes are of noise, which new rationales do not have; use another representation")
        if self.representation == "question_centered" and question is None:
            raise CirfError("codebook: its representations are centred on the question, which was not given; give it too")
        groups = np.zeros(len(vectors), dtype=np.int64)
        questions = None if question is None else question[None]
        found = represent(vectors, groups, self.representation, self.single_step, 0, questions, corpus_mean=self.corpus_mean)
        return self.encode(found.vectors)

    def save(self, folder: Path, report: Mapping[str, Any] | None = None) -> None:
        """Write the two files into ``folder``, each complete or not at all, with ``report`` instead of its own if given."""
        tensors = {"codes": self.codes, "corpus_mean": torch.from_numpy(self.corpus_mean)}
        for name, network in (("encoder", self.encoder), ("decoder", self.decoder)):
            tensors |= {f"{name}.{key}": value for key, value in network.state_dict().items()}
        facts = {
            "version": 1,
            "size": self.size,
            "width": self.width,
            "embedder": dict(self.embedder),
            "settings": self.settings.model_dump(mode="json", exclude=self._unreported),
            "report": dict(self.report if report is None else report),
        }
        write_atomic(folder / _TENSORS, save({name: tensor.contiguous() for name, tensor in tensors.items()}))
        write_atomic(folder / _FACTS, to_json(facts))

    @classmethod
    def load(cls, folder: Path | str) -> Codebook:
        """Read a saved codebook; ``CirfError`` if the folder holds none or a damaged one."""
        folder = Path(folder)
        try:
            facts = parse_json((folder / _FACTS).read_text(encoding="utf-8"))
            with safe_open(folder / _TENSORS, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            settings = schema.Codebook.model_validate(facts["settings"])
            codes = tensors["codes"]
            return cls(
                codes,
                _network("encoder", tensors),
                _network("decoder", tensors),
                settings,
                tensors["corpus_mean"].numpy(),
                facts["embedder"] | {key: value for key, value in _UNCHANGED.items() if key not in facts["embedder"]},
                facts["report"],
            )
        except (FileNotFoundError, NotADirectoryError):
            raise CirfError(f"{folder}: holds no codebook ({_TENSORS} and {_FACTS}); check codebook.reuse") from None
        except (ValueError, SafetensorError, KeyError, RuntimeError, TypeError) as error:
            raise CirfError(f"{folder}: the codebook is damaged ({type(error).__name__}); make it again") from error


def train(
    vectors: Rows,
    width: int,
    section: schema.Codebook,
    seed: int,
    work: Path,
    progress: Progress,
    device: str = "cpu",
    share: Share = ALONE,
) -> tuple[Codebook, np.ndarray, dict[str, Any]]:
    """Learn K codes of ``width`` from representations z' [M x d_s]: the codebook, the codes [M] of these, a report.

    The codebook is not yet ``described``. The report: ``losses`` (each phase, one entry an epoch, means over segments of sums
    over dimensions), ``segments``, ``usage`` [K], ``used`` (codes carried by any), ``perplexity`` of the usage (K: even),
    ``column_imbalance`` of the last balanced assignment, ``disagreement`` (share of segments whose nearest code is not the
    balanced one). Progress is kept in ``work/scratch``, and processes may ``share`` the work; see ``fit``. ``CirfError`` if the
    width is not ``codebook.dimension``, there are fewer distinct segments than codes, or training diverges.
    """
    if section.dimension != "backbone" and section.dimension != width:
        raise CirfError(f"codebook.dimension is {section.dimension}, the backbone's embeddings are {width} wide; use backbone")
    state = fit(vectors, width, section, seed, work, progress, device, share)
    model = state.model.cpu().requires_grad_(False)
    book = Codebook(
        model.codes.detach().clone(), model.encoder, model.decoder, section, np.zeros(vectors.shape[1], np.float32), {}, {}
    )
    assignment = sinkhorn.assign(book.encoded(vectors), book.codes, section.sinkhorn, share=share)
    codes = (assignment.codes if section.assign == "sinkhorn" else assignment.nearest).numpy()
    report = {
        "losses": state.losses,
        "segments": len(codes),
        **usage(codes, section.codes),
        "column_imbalance": assignment.column_imbalance,
        "disagreement": assignment.disagreement,
    }
    return dataclasses.replace(book, report=report), codes, report


def usage(codes: np.ndarray, size: int) -> dict[str, Any]:
    """How evenly ``codes`` [n] use a codebook of ``size``: ``usage`` [K] counts, ``used`` codes, ``perplexity`` exp(entropy)."""
    counts = np.bincount(codes, minlength=size)
    shares = counts[counts > 0] / max(len(codes), 1)
    perplexity = math.exp(-float((shares * np.log(shares)).sum())) if len(codes) else 0.0
    return {"usage": counts.tolist(), "used": int((counts > 0).sum()), "perplexity": perplexity}


def _network(name: str, tensors: Mapping[str, Tensor]) -> FeedForward:
    hidden, inputs = tensors[f"{name}.first.weight"].shape
    network = FeedForward(inputs, hidden, tensors[f"{name}.second.weight"].shape[0])
    network.load_state_dict({key: tensors[f"{name}.{key}"] for key in network.state_dict()})
    return network.requires_grad_(False)


def _name(embedder: Mapping[str, str | int | None]) -> str:
    revision, how = embedder.get("revision"), {"mask": "masked", "drop": "dropped"}
    changed = [f", {key} {how[value]}" for key in WORDING if (value := embedder.get(key)) in how]
    changed += [f", first {words} words"] if (words := embedder.get("words", "all")) != "all" else []
    return f"{embedder.get('model')}" + (f" at {revision}" if revision else "") + "".join(changed)
