"""The public benchmark data: the files of a data folder, with licence, home page and known hashes.

A file comes from the hub, through the task that reads it; from addresses at a commit, unchanged or converted; or, if there is no
checkable address, it is brought by the user.

The converters take the downloaded files in the catalogue's order and the data folder, and give rows of ``question``,
``rationale``, ``answer`` and, where there is one, ``id``: of training questions, those rationales that end in the right answer.
Missing content raises ``KeyError`` or ``ValueError``.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from cirf import tasks
from cirf.errors import CirfError
from cirf.store.files import parse_json
from cirf.store.jsonl import read_rows
from cirf.tasks.loading.questions import question_key
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.task import HubPart
from cirf.text.numerals import evaluate, number_text

Row = Mapping[str, str]


def gsm8k_steps(paths: Sequence[Path], folder: Path) -> Iterator[Row]:
    """One JSONL file with ``response_rationale`` (a step a key, in order), ``response_ans`` and ``gold``; a line a step."""
    for row in read_rows(paths[0]):
        answer = parse_answer("number", str(row["response_ans"]))
        if answer is not None and answer == parse_answer("number", str(row["gold"])):
            steps = (f"Step {index}: {text}" for index, text in enumerate(row["response_rationale"].values(), 1))
            yield {"question": row["question"], "rationale": "\n".join(steps), "answer": answer}


def commonsense_options(paths: Sequence[Path], folder: Path) -> Iterator[Row]:
    """A JSONL file of questions, then JSON lists of texts in its order: ``... So the answer is (c) lamp.``"""
    for row, text in zip(read_rows(paths[0]), _texts(paths[1:]), strict=True):
        rationale, _, ending = text.partition("So the answer is")
        letter = re.match(r"\s*\(([a-e])\)", ending)
        place = "abcde".index(letter[1]) if letter else len(row["choices"])
        if place < len(row["choices"]) and row["choices"][place] == row["answer"]:
            yield {"question": row["question"], "rationale": rationale.strip(), "answer": chr(65 + place), "id": row["id"]}


def svamp_expressions(paths: Sequence[Path], folder: Path) -> Iterator[Row]:
    """A JSON list that holds the questions (``input``), then JSON lists of texts in its order: ``... The answer is (7 - 4).``"""
    problems = _svamp_training(folder)
    for asked, text in zip(_load_list(paths[0]), _texts(paths[1:]), strict=True):
        problem = problems.get(question_key(asked["input"]))
        rationale, stated, ending = text.partition("The answer is")
        if problem is None or not stated:
            continue
        value = _value(ending.strip().partition("\n")[0].removesuffix("."))
        if value is not None and value == Fraction(str(problem["Answer"])):
            yield _svamp_row(problem, rationale.strip())


def svamp_sentences(paths: Sequence[Path], folder: Path) -> Iterator[Row]:
    """One JSON list with ``input`` and ``gen_label``: ``Rationale: ... Hence the answer is 7. Answer: 7``."""
    problems = _svamp_training(folder)
    for row in _load_list(paths[0]):
        problem = problems.get(question_key(row["input"]))
        rationale, stated = _stated(row["gen_label"])
        if problem is not None and stated is not None and stated == Fraction(str(problem["Answer"])):
            yield _svamp_row(problem, rationale)


def _svamp_training(folder: Path) -> dict[str, dict[str, Any]]:
    """The training rows of SVAMP by question. Its authors' test questions have published rationales too."""
    return {question_key(f"{row['Body']} {row['Question']}"): row for row in read_rows(folder / "svamp" / "train.jsonl")}


def _svamp_row(problem: Mapping[str, Any], rationale: str) -> Row:
    return {
        "question": f"{problem['Body']} {problem['Question']}",
        "rationale": rationale,
        "answer": number_text(Fraction(str(problem["Answer"]))),
        "id": problem["ID"],
    }


_ENDING = re.compile(r"(?:Hence )?(?:the|The) answer is|Answer:")


def _stated(text: str) -> tuple[str, Fraction | None]:
    """The text before the answer is stated, and that answer: the last number before a full stop, or a number and nothing else.
    An answer with a unit (``12 feet.``) does not count: the files of the published results had no such rows."""
    text = text.strip().removeprefix("Rationale:")
    ending = _ENDING.search(text)
    if ending is None:
        return text.strip(), None
    last = text[ending.start() :].rpartition("Answer:")[2].removeprefix(ending[0]).strip()
    found = re.findall(r"(?<![0-9.])(-?[0-9][0-9,]*)\.", last) or re.findall(r"^-?[0-9][0-9,]*$", last)
    return text[: ending.start()].strip(" ,\n"), Fraction(found[-1].replace(",", "")) if found else None


def _load_list(path: Path) -> list[Any]:
    found = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise ValueError("no JSON list")
    return found


def _texts(paths: Sequence[Path]) -> Iterator[str]:
    """Sampled texts, each up to where the model continues with its own question."""
    for path in paths:
        yield from (text.partition("\n\nQ:")[0] for text in _load_list(path))


_TERM = re.compile(r"(?<![0-9)])(?<![0-9)]\s)-?[0-9]+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\S")


def _value(expression: str) -> Fraction | None:
    """The value of ``(7 - 4) * 2``; ``None`` for other text."""
    return evaluate(_TERM.findall(expression))


RAW = "https://raw.githubusercontent.com"
RATIONALES = "rationales"
ALL = "all"


@dataclass(frozen=True)
class Address:
    """A file on a server and its SHA-256; ``None`` if none is published."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class DataFile:
    """A file of the data folder.

    ``path`` is its place there, ``home`` its home page. ``part`` is a piece of its task's hub data set;
    ``addresses`` are the downloads that it is made from, by ``convert``, or the only one unchanged. Without either the user
    brings the file. ``after`` names files of the folder that ``convert`` reads. ``rows_sha256`` is the SHA-256 of the file that
    the results in the documentation were measured with.
    """

    path: str
    licence: str
    home: str
    part: HubPart | None = None
    addresses: tuple[Address, ...] = ()
    convert: Callable[[Sequence[Path], Path], Iterator[Mapping[str, Any]]] | None = None
    after: tuple[str, ...] = ()
    rows_sha256: str | None = None

    @property
    def group(self) -> str:
        return self.path.partition("/")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Its names on the command line, without an ending: alone or with its group. A rationale file needs no folder."""
        whole = self.path.removesuffix(".jsonl")
        return (self.group, whole, *([Path(whole).name] if self.group == RATIONALES else []))

    @property
    def origin(self) -> list[str]:
        """The exact sources of its rows."""
        if self.part is not None:
            hub = tasks.get(self.group).hub
            assert hub is not None
            return [f"{hub.id} at {hub.revision or 'main'}"]
        return [address.url for address in self.addresses]

    @property
    def by_hand(self) -> bool:
        return self.part is None and not self.addresses


def _github(repo: str, commit: str, path: str, sha256: str | None = None) -> Address:
    return Address(f"{RAW}/{repo}/{commit}/{path}", sha256)


_GSM8K = ("openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c")
_GSM8K_FILES = {
    "train": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "test": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
}
_HUB_ROWS = {
    "svamp/train.jsonl": "44c13bc92beb8e87ccbc4f9569870b8d96e3264d85d79b7042d8bbaa77250558",
    "multiarith/train.jsonl": "0ff482154a620f49660ee59a93b009ac49f4c6270558beb03637cdef9b80a4f2",
    "commonsense_qa/train.jsonl": "82751584277cacfa2dcc75a16a10fe00f6bfa1fbedfea5e043783cb1587fccc5",
}
"""`DataFile.rows_sha256` of files from the hub; of the others the published results have samples."""
_STEPS = ("Marvelrex/SR_GSM8K", "2afefc8134b062cd7a057801268926b0b06b117d")
_CQA = ("maxh119Z/distilling-step-by-step1", "5b76a471c46c61f45114eab6621ffdff12d676b6")
_SVAMP_PALM = ("nicolay-r/distil-tuning-llm", "68789831a51dc9902792f6b9001ad15600ddee6a")
_SVAMP_LLAMA = ("cnalty/distilling-step-by-step-rag", "1a3053c0b6587fd4f2fa02edad115c41bdf7eeda")
_SVAMP_QUESTIONS = _github(*_SVAMP_LLAMA, "datasets/svamp/svamp_train_llama3.json")
_GPT_4O_MINI = ("multiarith", "coin_flip", "commonsense_qa")

_RATIONALES = (
    DataFile(
        "rationales/gsm8k.gpt-5.1.jsonl",
        "mit",
        f"https://github.com/{_STEPS[0]}",
        addresses=(_github(*_STEPS, "grade_school_math/filtered_gpt5_rationales/filtered_step.jsonl"),),
        convert=gsm8k_steps,
        rows_sha256="218bf8119bdf2e18e91ad6c85a4f71dd4a5a2f2ec62f9c2a1003f427c1328fda",
    ),
    DataFile(
        "rationales/svamp.palm.jsonl",
        "apache-2.0",
        f"https://github.com/{_SVAMP_PALM[0]}",
        addresses=(
            _SVAMP_QUESTIONS,
            *(_github(*_SVAMP_PALM, f"datasets/svamp/llm-old/train_CoT_{number}.json") for number in range(2)),
        ),
        convert=svamp_expressions,
        after=("svamp/train.jsonl",),
        rows_sha256="ac27d83bfae133ebd6ac389ee66f5d78378285851d9bd72d18aab2c28840d7c0",
    ),
    DataFile(
        "rationales/svamp.llama3-chatqa.jsonl",
        "apache-2.0",
        f"https://github.com/{_SVAMP_LLAMA[0]}",
        addresses=(_SVAMP_QUESTIONS,),
        convert=svamp_sentences,
        after=("svamp/train.jsonl",),
        rows_sha256="89c5a8a8f2212cfd14ffa0f2ab3b2256f9713452fadeaf0e0394f4fc64551624",
    ),
    DataFile(
        "rationales/commonsense_qa.palm.jsonl",
        "apache-2.0",
        f"https://github.com/{_CQA[0]}",
        addresses=(
            _github(*_CQA, "datasets/cqa/cqa_train.json"),
            *(_github(*_CQA, f"datasets/cqa/llm/train_CoT_{number}.json") for number in range(10)),
        ),
        convert=commonsense_options,
        rows_sha256="a0e9cb53d82824b0d9f9310f34d8c04ce95dc3da90825f2fd73468abbd464cde",
    ),
    *(DataFile(f"rationales/{name}.gpt-4o-mini.jsonl", "mit", "https://github.com/YinhanHe123/SemCoT") for name in _GPT_4O_MINI),
)


@cache
def catalogue() -> tuple[DataFile, ...]:
    """Every public data file: the benchmarks', then the rationales."""
    return (*(file for name in benchmarks() for file in _benchmark(name)), *_RATIONALES)


@cache
def benchmarks() -> tuple[str, ...]:
    return tuple(name for name in tasks.names() if tasks.get(name).hub is not None)


def _benchmark(name: str) -> Iterator[DataFile]:
    task = tasks.get(name)
    assert task.hub is not None
    for split in task.hub.splits:
        for part in task.hub.parts(split):
            path = f"{name}/{part.stem}.jsonl"
            if name == "gsm8k":  # its repository has the hub's columns, and widely published hashes
                address = _github(*_GSM8K, f"grade_school_math/data/{split}.jsonl", _GSM8K_FILES[split])
                yield DataFile(path, task.licence, f"https://github.com/{_GSM8K[0]}", addresses=(address,))
            else:
                home = f"https://huggingface.co/datasets/{task.hub.id}"
                yield DataFile(path, task.licence, home, part=part, rows_sha256=_HUB_ROWS.get(path))


def select(names: Iterable[str], files: Sequence[DataFile]) -> list[DataFile]:
    """The files of these names, in the catalogue's order, with those that they are made from. A name is a benchmark's,
    ``rationales``, ``all``, or one file's, with or without its ending. ``CirfError`` names the nearest for an unknown name."""
    chosen: set[str] = set()
    for name in names:
        found = {file.path for file in files if name == ALL or name.removesuffix(".jsonl") in file.names}
        if not found:
            raise CirfError(f"{name}: {_unknown(name, files)}")
        chosen |= found
    chosen |= {path for file in files if file.path in chosen for path in file.after}
    return [file for file in files if file.path in chosen]


def _unknown(name: str, files: Sequence[DataFile]) -> str:
    groups = list(dict.fromkeys(file.group for file in files))
    known = [*groups, *(Path(file.path).stem for file in files if file.group == RATIONALES)]
    near = difflib.get_close_matches(name, known, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(groups)} and {ALL}"
    return f"no such benchmark or rationale file; {hint} (`cirf data list` shows every file)"
