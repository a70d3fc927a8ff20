"""The documentation: its generated pages are what the code says, its commands and recipes are ones that there are, its words are
plain."""

from __future__ import annotations

import ast
import importlib
import json
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import pytest
import tinyrun
import typer.main
from benchmarks import prose, reference
from tables import each_row

import cirf
from cirf import methods
from cirf.cli import app
from cirf.recipe.keys import locate, rows, rows_of
from cirf.recipe.schema import Override, Recipe
from cirf.recipe.sweep import Sweep
from cirf.recipe.yaml import parse

ROOT = Path(__file__).resolve().parents[1]
PAGES = prose.pages()
TEMPLATES = sorted((ROOT / "src").rglob("*.j2"))
WRITTEN = [page for page in PAGES if page.name not in reference.PAGES and page.name != "licences.md"]
FENCE = re.compile(r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and why its commands are not run (empty: they are)."""

    page: str
    language: str
    text: str
    not_run: str


def blocks(language: str) -> list[Block]:
    """The blocks of that language on the pages that people wrote."""
    found = [(page, match) for page in WRITTEN for match in FENCE.finditer(page.read_text(encoding="utf-8"))]
    made = [
        Block(page.relative_to(ROOT).as_posix(), match["language"], match["text"], match["why"] or "") for page, match in found
    ]
    return [block for block in made if block.language == language]


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each `cirf` command in a block, without comments and without what the shell does with the output."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if re.match(r"(\w+=\S+ +)*cirf [a-z]", line):
            words = shlex.split(line, comments=True)
            words = words[words.index("cirf") + 1 :]
            yield words[: words.index(">")] if ">" in words else words


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    page = ROOT / "docs" / "reference" / name
    assert page.read_text(encoding="utf-8") == reference.PAGES[name](), "run `make reference`"


@each_row("page", PAGES)
def test_a_page_is_in_plain_words(page: Path) -> None:
    measured = prose.read(page.read_text(encoding="utf-8"))
    assert not measured.banned
    assert measured.sentence_length <= 20
    long = page not in WRITTEN or page.parent.name == "research" or page.name == "preset-sources.md"  # tables of what is measured
    assert long or measured.words <= 900


def test_the_readme_is_short() -> None:
    measured = prose.read((ROOT / "README.md").read_text(encoding="utf-8"))
    assert measured.words <= 900
    assert measured.numbers <= 30


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "research").glob("*.md")), ids=lambda page: page.name)
def test_every_table_of_a_research_page_is_filled_by_a_script(page: Path) -> None:
    text, tables = re.subn(r"<!-- table: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert tables and not re.findall(r"^\|.*\|\n\|[ :|-]+\|$", text, re.MULTILINE)
    assert "by hand" not in text


def test_cirf_methods_knows_every_name_in_a_table_of_results() -> None:
    tables = [
        found
        for page in PAGES
        for found in re.findall(r"<!-- table: .*?<!-- end -->", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    named = {name for table in tables for name in re.findall(r"^\| `([a-z]\w+)`", table, re.MULTILINE)}
    listed = {line.split()[0] for line in tinyrun.cirf("methods").out.splitlines() if line.strip()}
    assert len(named) > 30
    assert not named - listed
    assert tinyrun.cirf("methods", "single").out.startswith("single  cirf_full with {codes: single}, in compare-")


def test_the_table_of_the_readme_has_the_numbers_of_the_results() -> None:
    def rows(page: str) -> dict[str, list[str]]:
        """Numbers with one decimal by method, without intervals."""
        lines = re.findall(r"^\| `(\w+)`(?!,)(.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        return {name: re.findall(r"(?<=\| )\d+\.\d", rest) for name, rest in lines}

    shown, measured = rows("README.md"), rows("docs/results.md")
    assert len(shown) == 6 and all(len(numbers) == 3 for numbers in shown.values())
    assert shown == {name: measured[name] for name in shown}


NAMED = re.compile(
    r"`((?:benchmarks|docs|examples|recipes|src|sweeps|tests)/[\w./-]+|[\w/-]+/\w+\.py)`|\b((?:benchmarks|docs\.research)\.[a-z]\w*)"
)
PLACES = [ROOT / place for place in (".", "src", "src/cirf", "src/cirf/methods")]


@each_row("page", [*WRITTEN, ROOT / "CONTRIBUTING.md"])
def test_the_source_files_that_a_page_names_exist(page: Path) -> None:
    named = [path or module.replace(".", "/") + ".py" for path, module in NAMED.findall(page.read_text(encoding="utf-8"))]
    assert not [path for path in named if not any((place / path).exists() for place in PLACES)]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_is_in_plain_words(template: Path) -> None:
    assert not prose.banned(template.read_text(encoding="utf-8"))


def test_keys_and_methods_are_explained_in_plain_words() -> None:
    details = [row.meaning for schema in (Recipe, Sweep) for row in rows(schema)]
    for method in methods.METHODS.values():
        details += [method.summary, *(row.meaning for row in rows_of(method.Settings))]
    assert not [text for text in details if prose.banned(text)]


def test_prose_is_measured_as_it_reads() -> None:
    page = "# Head\n\nOne two `three four`. Five 6 [seven](there.md).\n\n| a | 12.5 % |\n|---|---|\n\n```\nnot 99 counted\n```\n"
    measured = prose.read(page + "- an item\n\nIt is foretold.\n<!-- beside -->\n")
    assert measured.sentences == ("One two code .", "Five 6 seven.", "an item", "It is foretold.")
    assert measured.numbers == 2 and measured.words == 14
    assert measured.banned == ("foretold",)


def test_the_commands_of_the_pages_are_ones_that_there_are() -> None:
    group: Any = typer.main.get_command(app)
    wrong = []
    found = [(block, words) for block in (*blocks("bash"), *blocks("")) for words in commands(block)]
    for block, words in found:
        try:
            context = group.commands[words[0]].make_context(words[0], words[1:])
        except Exception as error:
            wrong.append(f"{block.page}: cirf {shlex.join(words)}: {error!r}")
            continue
        for pair in context.params.get("sets") or ():
            if locate(tuple(pair.partition("=")[0].split(".")), Recipe) is None:
                wrong.append(f"{block.page}: {pair}: no such key")
    assert not wrong
    assert len(found) > 40


OTHER_PROGRAMS = {
    "make": "builds environments",
    "source": "changes the shell",
    "pip": "installs packages",
}
"""What pages name without a mark, and why no test here runs it."""


def test_every_command_of_the_pages_is_run_or_says_why_not() -> None:
    unmarked = []
    for block in blocks("bash"):
        lines = [] if block.not_run else block.text.replace("\\\n", " ").splitlines()
        programs = [re.sub(r"^(\w+=\S+ +)+", "", line).split()[0] for line in lines if line.strip()]
        unmarked += [f"{block.page}: {name}" for name in programs if name != "cirf" and name not in OTHER_PROGRAMS]
    named = "|".join(("cirf", "python", "vllm", "curl", *OTHER_PROGRAMS))
    plain = [block for language in ("", "text", "sh", "console") for block in blocks(language)]
    unmarked += [f"{block.page}: {block.text}" for block in plain if re.search(rf"^({named}) [-\w./]", block.text, re.MULTILINE)]
    assert not unmarked


def test_the_python_of_the_pages_names_what_there_is() -> None:
    wrong, found = [], 0
    for block in blocks("python"):
        for node in ast.walk(ast.parse(block.text, block.page)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cirf"):
                found += 1
                module = importlib.import_module(node.module or "")
                wrong += [f"{block.page}: {node.module}.{name.name}" for name in node.names if not hasattr(module, name.name)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cirf":
                found += 1
                wrong += [] if hasattr(cirf, node.attr) else [f"{block.page}: cirf.{node.attr}"]
    assert not wrong
    assert found > 10


LONG = {
    "docs/how-to/other-trainers.md",
    "docs/how-to/own-formats.md",
    "docs/how-to/steering.md",
    "docs/tutorials/own-data.md",
    "docs/reference/analyze.md",
    "docs/reference/votes-and-probes.md",
}
"""They train, draw votes or make all analyses, as other tests do."""
RUN = [
    pytest.param(page, marks=[pytest.mark.slow] if page in LONG else [])
    for page in sorted({block.page for block in blocks("bash") if not block.not_run and any(commands(block))})
]


@pytest.fixture(scope="module")
def place(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the pages' names mean something: rows, a recipe, a finished run of tiny models, and a method."""
    folder = tmp_path_factory.mktemp("place")
    tinyrun.write_jsonl(folder / "mine.jsonl", tinyrun.sums(120))
    workshop.recipe(folder / "mine.yaml", name="mine")
    shutil.copy(ROOT / "docs" / "how-to" / "own_method.py", folder)
    table = pandas.DataFrame(tinyrun.sums(60))
    table.to_parquet(folder / "mine.parquet")
    table.rename(columns={"question": "exercise", "answer": "key", "rationale": "worked"}).to_csv(
        folder / "mine.csv", index=False
    )
    made = [{"question": row["question"], "answer": f"{row['rationale']}\n#### {row['answer']}"} for row in tinyrun.sums(3)]
    svamp = [{"Body": "Ann has 3 pens.", "Question": f"How many has she after {n} more?", "Answer": f"{n + 3}"} for n in range(3)]
    for split in ("train", "test"):
        tinyrun.write_jsonl(folder / "data" / "gsm8k" / f"{split}.jsonl", made)
        tinyrun.write_jsonl(folder / "data" / "svamp" / f"{split}.jsonl", svamp)
    for name in ("mine", "quickstart"):
        shutil.copytree(finished, folder / "runs" / name)
    asked = folder / "runs" / "mine" / "problems" / "test"
    shutil.copy(asked / "sums.jsonl", asked / "mine.jsonl")  # the name that the tutorial's task has
    return folder


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("CIRF_DATA", str(place / "data"))
    for block in blocks("bash"):
        if block.page == page and not block.not_run:
            for words in commands(block):
                said = tinyrun.cirf(*words)
                assert said.code == 0, (words, said.err)


def test_the_recipes_of_the_pages_hold_keys_that_there_are() -> None:
    wrong, found = [], blocks("yaml")
    for block in found:
        document = parse(block.text)
        schema = Sweep if "parts" in document.value else Recipe
        wrong += [f"{block.page}: {'.'.join(map(str, path))}" for path in document.lines if locate(path, schema) is None]
        named, known = document.value.get("methods", []), {*methods.METHODS, *document.value.get("variants", {})}
        wrong += [f"{block.page}: method {name}" for name in named if name not in known and not name.endswith(".py")]
    assert not wrong
    assert len(found) > 10


SOURCES = (ROOT / "docs" / "reference" / "preset-sources.md").read_text(encoding="utf-8")


def test_every_preset_value_has_its_source() -> None:
    sections = dict(zip(*[iter(re.split(r"^## (\w+)$", SOURCES, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert set(sections) == {name for name, method in methods.METHODS.items() if method.presets}
    for name, text in sections.items():
        listed = re.findall(r"^\| `(\w+)`( \(training\))? \| \S", text, re.MULTILINE)
        training = {
            key for preset in methods.named(name).presets.values() for key in preset.training.model_dump(exclude_none=True)
        }
        assert [key for key, trains in listed if not trains] == list(methods.named(name).Settings.model_fields), name
        assert {key for key, trains in listed if trains} == training <= set(Override.model_fields), name


# The examples run from end to end, offline

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_the_pipeline_learns_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "pipeline.py"))["main"]()
    said = capsys.readouterr().out
    assert "trace   <cirf_" in said and "</cirf>yes" in said
    [line] = [line for line in said.splitlines() if "new questions" in line]
    assert int(line.partition("%")[0]) > 60, line
    assert len((EXAMPLES / "pipeline.py").read_text().splitlines()) <= 80


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    matplotlib.use("agg")
    monkeypatch.syspath_prepend(EXAMPLES)
    cells = json.loads((EXAMPLES / "pipeline.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    whole = "\n\n".join(code)
    assert whole.count("epochs=60") == 1 and all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    assert (EXAMPLES / "pipeline.ipynb").stat().st_size < 100_000
    names: dict[str, object] = {}
    exec(compile(whole.replace("epochs=60", "epochs=2"), "pipeline.ipynb", "exec"), names)
    assert len(names["history"].losses) == 2  # type: ignore[attr-defined]


def test_the_pictures_name_the_methods_of_the_readme() -> None:
    named = set(re.findall(r"^\| `(\w+)`:", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    for page in ("compare-in.svg", "compare-out.svg"):
        assert set(re.findall(r"font-weight: 700[^>]*>([^<]+)<", (ROOT / "docs" / page).read_text(encoding="utf-8"))) == named
