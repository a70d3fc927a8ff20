"""The layers of the package: nothing imports a higher one, no modules import each other, and nothing heavy comes early."""

from __future__ import annotations

import subprocess
import sys

import tinyrun
from benchmarks import house

HEAVY = ("torch", "transformers", "sentence_transformers", "peft", "accelerate", "datasets", "sklearn", "matplotlib", "numpy")


def test_every_part_has_a_layer() -> None:
    assert {house.part(module) for module in house.trees()} <= house.LAYER.keys()
    assert len(house.trees()) > 60


def test_nothing_imports_a_higher_layer_and_no_modules_import_each_other() -> None:
    found = house.imports()
    assert house.upward(found) == [] and house.cycles(found) == []


def test_the_package_itself_imports_nothing() -> None:
    assert heavy_after("import cirf\nassert not any(name.startswith('cirf.') for name in sys.modules)") == []


def heavy_after(code: str) -> list[str]:
    """The heavy packages that a fresh process has imported after ``code``."""
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=tinyrun.ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.split()


def test_reading_recipes_tasks_and_methods_imports_nothing_heavy() -> None:
    code = "import cirf, cirf.store.run_folder, cirf.records, cirf.recipe.load, cirf.tasks, cirf.methods, cirf.cli, cirf.run\n"
    code += "for name in cirf.recipe.load.shipped(): cirf.recipe.load.load(name)\n"
    code += "from cirf.recipe import sweep\nfor name in sweep.shipped(): sweep.load(name).points()\n"
    code += "for name in cirf.tasks.names(): cirf.tasks.get(name)"
    assert heavy_after(code) == []


def test_a_heavy_import_would_be_seen() -> None:
    assert "numpy" in heavy_after("import cirf.codebook.embedding")


def test_help_and_lists_import_nothing_heavy() -> None:
    asked = [["--help"], ["run", "--help"], ["recipes"], ["tasks"], ["methods"], ["sweep", "--list"]]
    code = "from cirf.cli import main\n"
    for arguments in asked:
        code += f"sys.argv = ['cirf', *{arguments!r}]\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        code += f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\nassert not heavy, (sys.argv, heavy)\n"
    assert heavy_after(code) == []
