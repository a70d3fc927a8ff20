"""Everything a whole run needs, tiny and made on the spot: a language model, an embedding model, rows, a recipe, the command."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nursery
import pytest
import yaml

HERE = Path(__file__).parent
TOUCHED_BY_A_CLOCK = ("timings.json", "report.html", "report.json")

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")])),
}
"""Of the processes that tests start: one thread, this checkout's package."""


def builders() -> Any:
    """The module with builders of tiny language models (shared with the tests of the language model)."""
    spec = importlib.util.spec_from_file_location("cirf_lm_tiny", HERE / "lm" / "tiny.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faulty() -> Any:
    """The module of servers that fail, `tests/rationales/faulty.py`."""
    path = Path(__file__).with_name("rationales") / "faulty.py"
    spec = importlib.util.spec_from_file_location("cirf_faulty_server", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_backbone(folder: Path, kind: str = "llama", tied: bool = True, seed: int = 0, scale: float = 1.0) -> Path:
    """A causal language model of width 32 with a byte-level tokenizer and a chat template."""
    tiny = builders()
    tiny.build_model(kind, tied, seed=seed, scale=scale).save_pretrained(folder)
    tiny.build_tokenizer().save_pretrained(folder)
    return folder


def teach_to_end(folder: Path) -> Path:
    """Teach a backbone to answer 7 to everything and then to end, in a second: one that knows nothing fills every answer up to
    its cap."""
    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.prompt import prompt_text
    from cirf.lm.training.batches import Row
    from cirf.lm.training.finetune import finetune
    from cirf.lm.training.spec import TrainingSpec
    from cirf.recipe.schema import Backbone, Finetune

    section = Backbone(dtype="float32", device="cpu")
    model, tokenizer = load_model(folder, section, training="full"), load_tokenizer(folder, section)
    rows = [Row(prompt_text(tokenizer, row["question"]), "7") for row in sums(8, seed=5)]
    settings = Finetune(adaptation="full", epochs=6, batch_size=2, gradient_accumulation_steps=1, learning_rate=1e-2, bf16=False)
    with tempfile.TemporaryDirectory() as work:
        taught, _, _ = finetune(model, tokenizer, rows, [], TrainingSpec(settings, "direct_sft", [], Path(work), 0))
    taught.save_pretrained(folder)
    return folder


def write_embedder(folder: Path, seed: int = 0) -> Path:
    """A one-layer BERT of width 16 with a tokenizer of its own and mean pooling, saved by sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [row["rationale"] for row in sums(40)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["[PAD]"], initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(texts, trainer)
    plain = folder.with_name(f"{folder.name}-bert")
    names = {"pad_token": "[PAD]", "model_max_length": 64}
    PreTrainedTokenizerFast(tokenizer_object=core, **names).save_pretrained(plain)  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=320,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
        )
        BertModel(config).save_pretrained(plain)
    SentenceTransformer(str(plain), device="cpu").save(str(folder), create_model_card=False)  # a plain BERT gets mean pooling
    return folder


def sums(count: int, seed: int = 0, steps: int = 3) -> list[dict[str, str]]:
    """Different questions about sums, each with its answer and a numbered rationale of ``steps`` steps."""
    draw = random.Random(seed)
    things = ("apples", "coins", "pears", "books", "stones")
    rows = []
    for place in range(count):
        numbers = [draw.randint(2, 9) for _ in range(steps + 1)]
        thing, total, lines = things[place % len(things)], numbers[0], []
        for step, number in enumerate(numbers[1:], 1):
            lines.append(f"Step {step}: There are {total} + {number} = {total + number} {thing} in box {place}.")
            total += number
        asked = " and ".join(str(number) for number in numbers)
        question = f"Box {place} gets {asked} {thing}. How many {thing} are in it?"
        rows.append({"question": question, "answer": str(total), "rationale": "\n".join(lines)})
    return rows


def reply(body: Mapping[str, Any]) -> str:
    """What a server writes of a question of `sums`: its rationale, which is wrong now and then, or the results of its steps."""
    text = body["messages"][0]["content"]
    if '"results"' in text:
        return json.dumps({"results": re.findall(r"= (\d+)", text.partition("Steps:")[2])})
    numbers = [int(number) for number in re.findall(r"\d+", text.partition("gets")[2])]
    total, lines = numbers[0], []
    for step, number in enumerate(numbers[1:], 1):
        lines.append(f"**Step {step}**: {total} + {number} = {total + number}.")
        total += number
    if len(lines) == 3 and numbers[0] == 5:
        return "Step 1: That is a guess.\nThe answer is 1000."
    return "\n".join([*lines, f"The answer is {total}."])


@contextlib.contextmanager
def files_no_longer_than(limit: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a disk that is full. Not for a fixture: the report of a test
    that passed would come too early, and may be such a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class _Sheet:
    """In place of a figure and of all that is drawn into it: takes everything and keeps nothing."""

    def __call__(self, *_: Any, **__: Any) -> _Sheet:
        return self

    def __getattr__(self, _: str) -> _Sheet:
        return self

    def __getitem__(self, _: int) -> _Sheet:
        return self

    def __add__(self, _: Any) -> _Sheet:
        return self

    def get_xlim(self) -> tuple[float, float]:
        return 1.0, 10.0


@contextlib.contextmanager
def _blank(width: float, height: float, salt: str) -> Iterator[tuple[_Sheet, list[str]]]:
    """In place of `cirf.pictures.canvas.canvas`: an empty picture with its description."""
    out: list[str] = []
    yield _Sheet(), out
    words = out[0].replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    out[0] = f'<svg role="img" aria-label="{words}"></svg>'


@contextlib.contextmanager
def sketched() -> Iterator[None]:
    """Pictures of this process keep their descriptions and are empty: nothing is laid out, named or written as SVG."""
    from matplotlib.figure import Figure

    from cirf.analysis import tradeoff
    from cirf.pictures import canvas
    from cirf.report import plots

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, file, **how: file.write('<svg width="1pt" height="1pt"></svg>'))
        patch.setattr(canvas, "settle", lambda figure: None)
        for module in (plots, tradeoff):  # those of a report
            patch.setattr(module, "canvas", _blank)
        patch.setattr(tradeoff, "place_names", lambda *given: None)
        yield


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def recipe(backbone: Path, embedder: Path, train: Path, test: Path | None = None, **keys: Any) -> dict[str, Any]:
    """A recipe of seconds as a plain dict; ``keys`` are dotted paths with ``__`` for the dots, such as ``codebook__size=8``."""
    task: dict[str, Any] = {"task": "jsonl", "name": "sums", "train_file": str(train)}
    if test is not None:
        task["test_file"] = str(test)
    made: dict[str, Any] = {
        "name": "tiny",
        "methods": ["cirf_full", "direct_sft", "cot"],
        "backbone": {"model": str(backbone), "dtype": "float32", "device": "cpu", "threads": 1},
        "problems": {"tasks": [task], "validation": 0.1},
        "embeddings": {"model": str(embedder)},
        "codebook": {"size": 4, "hidden": 16, "autoencoder_epochs": 2, "vq_epochs": 2, "batch_size": 32, "learning_rate": 0.01},
        "results": {"working": "drop"},
        "vocabulary": {"alpha": "mean"},
        "finetune": {
            "adaptation": "full",
            "epochs": 1.0,
            "batch_size": 8,
            "gradient_accumulation_steps": 1,
            "learning_rate": 0.01,
            "warmup_steps": 2,
            "bf16": False,
            "max_length": 256,
            "min_well_formed": 0,
            "new_token_lr_multiplier": 1.0,
        },
        "evaluate": {
            "batch_size": 16,
            "max_new_tokens": 8,
            "max_trace_tokens": 24,
            "max_completion_tokens": 12,
            "latency_questions": 1,
            "latency_warmup": 0,
            "check_questions": 0,
        },
    }
    for name, value in keys.items():
        place = made
        *path, last = name.split("__")
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return made


def write_recipe(path: Path, made: Mapping[str, Any]) -> Path:
    """The recipe as a YAML file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fast = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    path.write_text(yaml.dump(dict(made), Dumper=fast, sort_keys=False), encoding="utf-8")
    return path


LEARNT = {
    "problems__validation": 0.0,
    "finetune__epochs": 60.0,
    "finetune__batch_size": 12,
    "finetune__learning_rate": 0.008,
}
"""Keys of a recipe by which a tiny model of traces learns 12 questions."""


@dataclass(frozen=True)
class Workshop:
    """A tiny language model, a tiny embedding model, 40 training rows and 8 test rows, and recipes of them."""

    backbone: Path
    embedder: Path
    train: Path
    test: Path

    def recipe(self, path: Path, **keys: Any) -> Path:
        """A recipe file; ``keys`` as in ``tinyrun.recipe``, or ``train`` and ``test`` for other files of rows."""
        train, test = keys.pop("train", self.train), keys.pop("test", self.test)
        return write_recipe(path, recipe(self.backbone, self.embedder, train, test, **keys))


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    def error(self) -> str:
        """The one line of a command that ended with a mistake of the user's."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("cirf: ")]
        assert len(lines) == 1 and self.err.endswith(f"{lines[0]}\n"), self.err
        return lines[0]


def cirf(*arguments: str | Path) -> Said:
    """The command line in this process."""
    from cirf.cli import main
    from cirf.user_code import look_only

    gc.collect()
    gc.freeze()  # what is left need not be gone through whenever the command collects garbage
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["cirf", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
        look_only(trust=True)  # as before: the command says it for the rest of its process
    return Said(code, out.getvalue(), err.getvalue())


def command(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Said:
    """The command line in a process of its own, from the start: all is imported with this environment."""
    started = [sys.executable, "-m", "cirf", *map(str, arguments)]
    environment = ENVIRONMENT | dict(env or {})
    done = subprocess.run(started, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def forked(*arguments: str | Path, cwd: Path | None = None) -> Said:
    """The command line in a process of its own that begins with the libraries imported."""
    return python("-m", "cirf", *arguments, cwd=cwd)


def python(*arguments: str | Path, cwd: Path | None = None) -> Said:
    """``python ARGUMENTS`` in a process of its own, forked where the libraries are loaded already (see `nursery`)."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        with nursery.python(*arguments, env=ENVIRONMENT, out=out, err=err, cwd=cwd) as child:
            code = child.wait(400)
        return Said(code, out.read_text(), err.read_text())


def artefacts(folder: Path) -> dict[str, bytes]:
    """Every file of a run that no clock touched, and no empty folder or stray file is forgotten."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in TOUCHED_BY_A_CLOCK:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def stages(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every finished stage's record: another pair means that the stage was made again."""
    found = {}
    for path in sorted(folder.rglob("stage.json")):
        if ".work" not in path.parts:
            state = path.stat()
            found[path.parent.relative_to(folder).as_posix()] = (state.st_ino, state.st_mtime_ns)
    return found


def remade(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> set[str]:
    """The stages that are new, or were made again."""
    return {name for name, state in after.items() if before.get(name) != state}


POSITIONS = 34
"""Of a tiny classifier."""


def write_classifier(folder: Path, kind: str, **labels: Any) -> Path:
    """A token classifier of width 16, ``xlm-roberta`` or ``bert``, with a tokenizer of its kind trained on the spot."""
    import torch
    import transformers as t
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    texts = [row["rationale"] for row in sums(40)]
    names = ("<s>", "<pad>", "</s>", "<unk>") if kind == "xlm-roberta" else ("[CLS]", "[PAD]", "[SEP]", "[UNK]")
    start, pad, end, unknown = names
    if kind == "xlm-roberta":
        core = Tokenizer(models.Unigram())
        core.normalizer = normalizers.NFKC()
        core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        core.decoder = decoders.Metaspace()
        trainer: Any = trainers.UnigramTrainer(vocab_size=90, special_tokens=list(names), unk_token=unknown, show_progress=False)
    else:
        core = Tokenizer(models.WordPiece(unk_token=unknown))
        core.normalizer = normalizers.BertNormalizer(lowercase=False)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=list(names), show_progress=False)
    core.train_from_iterator(texts, trainer)
    ends = [(name, core.token_to_id(name)) for name in (start, end)]
    core.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=ends)
    tokenizer = t.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, cls_token=start, sep_token=end, pad_token=pad, unk_token=unknown, model_max_length=POSITIONS
    )
    size: dict[str, Any] = {"vocab_size": 90, "hidden_size": 16, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 2, "intermediate_size": 32}
    config: Any
    if kind == "xlm-roberta":  # counts positions from the padding's id on
        config = t.XLMRobertaConfig(**size, max_position_embeddings=POSITIONS + 2, pad_token_id=1, type_vocab_size=1, **labels)
    else:
        config = t.BertConfig(**size, max_position_embeddings=POSITIONS, pad_token_id=1, **labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = t.AutoModelForTokenClassification.from_config(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():  # far from one half
        model.classifier.weight.mul_(100)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
