"""A method in a Python file of the user's own: the shipped example from its rows to its report, and mistakes in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf import methods
from cirf.errors import CirfError
from cirf.recipe.load import dump, parse
from cirf.records import Example, Problem, Trace
from cirf.store.jsonl import read_rows

EXAMPLE = Path(__file__).parents[1] / "docs" / "how-to" / "own_method.py"
SHORT: dict[str, Any] = {"evaluate__latency_questions": 0, "finetune__epochs": 0.5}


@pytest.fixture(scope="module")
def ran(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the example under the name of its file and of a variant, with the file and ``recipe.yaml`` beside it."""
    folder = tmp_path_factory.mktemp("own")
    own = shutil.copy(EXAMPLE, folder / "counted.py")
    variants = {"brief": {"method": str(own), "settings": {"most": 1}}}
    keys: dict[str, Any] = {"methods": [str(own), "brief", "direct_sft"], "variants": variants}
    recipe = workshop.recipe(folder / "recipe.yaml", **keys, **SHORT)
    said = tinyrun.cirf("run", recipe, "--out", folder / "run")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def copy(ran: Path, tmp_path: Path) -> Path:
    """The same to change, its file at the place that the recipe names."""
    folder = tmp_path / "copy"
    shutil.copytree(ran, folder)
    for recipe in (folder / "recipe.yaml", *(folder / "run").rglob("recipe.yaml")):
        recipe.write_text(recipe.read_text().replace(str(ran), str(folder)))
    return folder


def test_the_example_says_what_it_writes() -> None:
    recipe = parse(f"name: r\nmethods: [{EXAMPLE}]\nproblems: {{tasks: [{{task: gsm8k}}]}}")
    assert recipe.methods == ("own_method",)
    method = methods.get("own_method", recipe)
    problem = Problem("p", "gsm8k", "How many clips?", "72")
    example = Example(problem, ("48/2 = 24 in May.", "48 + 24 = 72 in all."), Trace("p", 0, (), (), "72"))
    assert method.target(example) == "by, plus\n#### 72"
    assert method.read("by, plus\n#### 72") == ("by, plus", " 72") and method.read("72") == ("", "72")


def test_it_is_trained_saved_evaluated_and_reported(ran: Path) -> None:
    run = ran / "run"
    taught = read_rows(run / "models/counted/sft.jsonl")
    assert len(taught) == 36 and all(row["completion"].startswith("plus, plus, plus\n#### ") for row in taught)
    assert all(row["completion"].startswith("plus\n#### ") for row in read_rows(run / "models/brief/sft.jsonl"))
    report = json.loads((run / "report.json").read_text())
    assert list(report["methods"]) == ["counted", "brief", "direct_sft"]
    assert all(row["n"] == 8 and row["trained"] for row in report["methods"].values())
    assert report["training"]["brief"]["settings"]["method"]["settings"] == {"most": 1}
    card = (run / "models/brief/README.md").read_text()
    assert "| Method | operations |" in card and '"most": 1' in card
    assert "counted" in (run / "report.html").read_text()
    said = tinyrun.cirf("show", run, "--method", "brief", "--limit", "1")
    assert said.code == 0 and "brief: 8 of 8 answers" in said.out
    assert str(ran / "counted.py") in (run / "recipe.yaml").read_text()


def test_a_new_process_reloads_it_and_gives_the_same_answers(ran: Path, tmp_path: Path) -> None:
    keys = ("--method", "brief", "--protocol", "own", "--out", tmp_path / "out", "--json", "--quiet", "--trust-remote-code")
    said = tinyrun.forked("evaluate", ran / "run", *keys, cwd=tmp_path)  # the file is found from any folder
    assert said.code == 0, said.err
    assert list(json.loads(said.out)["methods"]) == ["brief"]
    before = read_rows(ran / "run/evaluation/brief/sums.jsonl")
    assert read_rows(tmp_path / "out/evaluation/brief/sums.jsonl") == before and len(before) == 8


def test_a_models_folder_runs_no_method_that_its_recipe_names(ran: Path, tmp_path: Path) -> None:
    keys = ("--protocol", "own", "--out", tmp_path / "out", "--quiet")
    said = tinyrun.cirf("evaluate", ran / "run/models/brief", *keys)
    assert "counted.py: Python code named by this run; if you trust it" in said.error()
    said = tinyrun.cirf("evaluate", ran / "run/models/brief", "--method", "breif", *keys)
    assert "there is no method 'breif'; the nearest is 'brief'" in said.error()


def remade(folder: Path) -> set[str]:
    """What another run of the recipe makes, after a look whether ``status`` knew it."""
    before = tinyrun.stages(folder / "run")
    said = tinyrun.cirf("run", folder / "recipe.yaml", "--out", folder / "run")
    assert said.code == 0, said.err
    rows = json.loads(tinyrun.cirf("status", folder / "run", "--json", "--trust-remote-code").out)
    assert {row["state"] for row in rows} == {"done"}
    return tinyrun.remade(before, tinyrun.stages(folder / "run"))


OWN = {f"{kind}/{name}" for kind in ("models", "evaluation") for name in ("counted", "brief")}


def test_a_changed_file_or_setting_makes_again_what_depends_on_it_and_nothing_else(copy: Path) -> None:
    assert remade(copy) == set()
    recipe, own = copy / "recipe.yaml", copy / "counted.py"
    recipe.write_text(recipe.read_text().replace("most: 1", "most: 2"))
    assert remade(copy) == {"models/brief", "evaluation/brief"}
    own.write_text(own.read_text() + "\n# changed\n")
    rows = json.loads(tinyrun.cirf("status", copy / "run", "--json", "--trust-remote-code").out)
    assert {row["stage"] for row in rows if row["state"] != "done"} == OWN
    own.write_text(EXAMPLE.read_text())
    assert remade(copy) == set()  # as it was: nothing is lost
    own.unlink()
    said = tinyrun.cirf("status", copy / "run", "--trust-remote-code")
    assert said.code == 0 and "is unknown here" in said.out and "counted.py: no such file" in said.out
    assert tinyrun.cirf("show", copy / "run", "--method", "brief", "--limit", "1").code == 0
    said = tinyrun.cirf("run", recipe, "--out", copy / "run")
    assert "counted.py: no such file; variants." in said.error() and "method of your own" in said.error()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "defines no METHOD; end the file with METHOD = YourMethod"),
        ("METHOD = 3\n", "METHOD is not a subclass of cirf.methods.Method"),
        ("class METHOD:\n    name = summary = 'a'\n", "METHOD is not a subclass of cirf.methods.Method"),
        ("from cirf.methods import Method\n\nclass METHOD(Method):\n    name = 'a'\n", "no name or no summary"),
        (
            "from cirf.methods import Method\n\nclass METHOD(Method):\n    name = summary = 'a'\n    Settings = dict\n",
            "Settings is not a subclass of cirf.recipe.Section",
        ),
        ("\ndef broken(:\n", "line 2: not valid Python"),
        ("import json\n\nimport no_such_module_anywhere\n", "line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()\n", "line 2: ZeroDivisionError"),
    ],
)
def test_a_file_that_is_no_method_is_reported_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    recipe = parse(f"name: r\nmethods: [{path}]\nproblems: {{tasks: [{{task: gsm8k}}]}}")
    with pytest.raises(CirfError) as error:
        methods.get("mine", recipe)
    assert message in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)
    assert message in tinyrun.cirf("methods", path).error()


@pytest.mark.parametrize(
    "parent", ["cirf.methods.prose.cot.SftCot", "cirf.methods.cirf.cirf.CirfFull", "cirf.methods.prose.terse.Terse"]
)
def test_one_that_comes_of_ours_may_have_settings_of_its_own_alone(tmp_path: Path, parent: str) -> None:
    module, _, name = parent.rpartition(".")
    fields = "    n: int = key(1, 'how many')\n    form: str = key('results', 'what')\n    codes: str = key('learned', 'which')\n"
    (tmp_path / "mine.py").write_text(
        f"from {module} import {name}\nfrom cirf.recipe.schema import Section, key\n\n\nclass Own(Section):\n{fields}\n\n"
        f"class METHOD({name}):\n    name = summary = 'mine'\n    Settings = Own\n"
    )
    recipe = parse(f"name: r\nmethods: [{tmp_path}/mine.py]\nproblems: {{tasks: [{{task: gsm8k}}]}}\n")
    method = methods.get("mine", recipe)
    assert not method.steered and method.steer(None, None) is tuple and method.identity["settings"]["n"] == 1
    example = Example(Problem("p", "gsm8k", "Ann has 1 and Bob 2.", "3"), ("Ann", "Bob"), Trace("p", 0, (0, 1), ("1", "2"), "3"))
    assert method.start is None and method.target(example).endswith("3")


@pytest.mark.parametrize("section", ["3", "text", "[1]"])
def test_settings_of_a_file_that_are_no_group_of_keys(section: str) -> None:
    text = f"name: r\nmethods: [mine.py]\nvariants: {{mine: {section}}}\nproblems: {{tasks: [{{task: gsm8k}}]}}"
    with pytest.raises(CirfError, match=r"recipe, line 3: variants\.mine: expected a group of keys"):
        parse(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for named, key in (("methods: [none.py]", "variants.none.method"), ("variants: {x: {method: none.py}}", "variants.x.method")):
        recipe = parse(f"name: r\n{named}\nproblems: {{tasks: [{{task: gsm8k}}]}}")
        with pytest.raises(CirfError, match=f"none.py: no such file; {key} names it as a method of your own"):
            methods.get("x" if "x" in recipe.variants else "none", recipe)
    assert "none.py: no such file" in tinyrun.cirf("methods", tmp_path / "none.py").error()
    (tmp_path / "folder.py").mkdir()
    assert "cannot be read" in tinyrun.cirf("methods", tmp_path / "folder.py").error()


def test_what_a_recipe_makes_of_files_among_its_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cirf.commands.run import absolute

    head = "name: r\nproblems: {tasks: [{task: gsm8k}]}\n"
    recipe = parse(head + "methods: [direct, a/my-way.py]\nvariants: {my-way: {settings: {most: 3}}}\n")
    assert recipe.methods == ("direct", "my-way") and recipe.variants["my-way"].method == "a/my-way.py"
    assert recipe.variants["my-way"].settings == {"most": 3}
    assert parse(dump(recipe)) == recipe
    (tmp_path / "a").mkdir()
    shutil.copy(EXAMPLE, tmp_path / "a/my-way.py")
    monkeypatch.chdir(tmp_path)
    settled = absolute(recipe)
    assert settled.variants["my-way"].method == str(tmp_path / "a/my-way.py")
    monkeypatch.chdir("/")
    assert methods.get("my-way", settled).settings.most == 3
    with pytest.raises(CirfError, match="methods: m occurs twice"):
        parse(head + "methods: [a/m.py, b/m.py]\n")
    assert parse(head, sets=["methods=[a/my-way.py]"]).variants["my-way"].method == "a/my-way.py"


def test_the_command_shows_it() -> None:
    said = tinyrun.cirf("methods", EXAMPLE)
    assert said.code == 0, said.err
    assert "most: a whole number of at least 1. Default: 8. Unit: operations." in said.out
    assert "operations: fine-tuned to name the operations" in said.out and "no presets" in said.out


# Methods and tasks that an installed package brings

CODE = """
from cirf.methods import Method
from cirf.tasks.benchmarks.made import CHAIN_SUM as SUMS
import dataclasses

class Echo(Method):
    name = "echo"
    summary = "repeats the question"

TASK = dataclasses.replace(SUMS, name="other_sums")
"""
POINTS = "[cirf.methods]\necho = extra:Echo\ncot = extra:Echo\ngone = extra:Missing\n[cirf.tasks]\nother_sums = extra:TASK\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package as an installer leaves it."""
    (tmp_path / "extra.py").write_text(CODE)
    about = tmp_path / "extra-1.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.5\n")
    (about / "entry_points.txt").write_text(POINTS)
    return tmp_path


def run(package: Path, code: str) -> str:
    paths = os.pathsep.join([str(package), tinyrun.ENVIRONMENT["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", code], env=tinyrun.ENVIRONMENT | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_a_packages_method_and_task_are_found_by_name(package: Path) -> None:
    code = "from cirf import methods, tasks; from cirf.recipe import schema\n"
    code += "made = schema.Recipe(name='a', methods=('echo',), problems={'tasks': ({'task': 'other_sums'},)})\n"
    code += "method, task = methods.get('echo', made), tasks.get('other_sums')\n"
    code += "print(method.summary, method.origin, task.name, task.origin, 'other_sums' in tasks.names())"
    assert run(package, code).strip() == "repeats the question extra 1.5 other_sums extra 1.5 True"


def test_a_program_runs_no_file_that_a_recipe_names_unless_it_says_so(package: Path) -> None:
    (package / "task.py").write_text("print('it ran')\n")
    code = "from cirf.errors import CirfError\nfrom cirf.tasks import get\nfrom cirf.user_code import look_only\n"
    code += "{}\ntry:\n    get({!r})\nexcept CirfError as error:\n    print(error)"
    assert "it ran" not in run(package, code.format("", str(package / "task.py")))
    assert "it ran" in run(package, code.format("look_only(trust=True)", str(package / "task.py")))


def test_our_own_names_go_first(package: Path) -> None:
    assert run(package, "from cirf.methods import METHODS; print(METHODS['cot'].__module__)").strip() == "cirf.methods.prose.cot"


def test_a_package_that_is_broken_is_named(package: Path) -> None:
    code = (
        "from cirf.errors import CirfError\nfrom cirf.methods import named\ntry:\n    named('gone')\nexcept CirfError as error:\n"
    )
    assert run(package, code + "    print(error)").startswith("gone of extra 1.5: cannot be imported (AttributeError")
