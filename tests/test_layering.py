"""The floors of the house: nothing imports a floor above its own, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun

SOURCE = Path(__file__).parents[1] / "src" / "cirf"
FLOORS = (
    (
        "errors",
        "local_paths",
        "progress",
        "records",
        "rows",
        "files",
        "store",
        "integrity",
        "distributed",
        "recipe",
        "recipe_keys",
        "recipe_text",
        "recipe_io",
        "sharing",
        "sweep",
        "sweep_io",
        "yaml_text",
        "user_code",
        "user_paths",
    ),
    ("assets", "tasks", "rationales", "codebook", "lm", "products"),
    ("methods", "compression"),
    ("evaluation",),
    ("environment", "analysis", "fitting"),
    ("archive", "publishing", "report", "serving"),
    ("stages", "fingerprints"),
    ("run",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
HEAVY = ("torch", "transformers", "sentence_transformers", "peft", "accelerate", "datasets", "sklearn", "matplotlib", "numpy")


def imports(path: Path) -> set[str]:
    """The parts of the package that a module imports anywhere in it, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [node.module or ""]
            if node.module == "cirf":
                names = [f"cirf.{alias.name}" for alias in node.names]
        else:
            continue
        found.update(name.split(".")[1] for name in names if name.startswith("cirf."))
    return found


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_part_stands_on_a_floor() -> None:
    assert {part(path) for path in modules()} <= FLOOR.keys()
    assert len(modules()) > 60


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_nothing_imports_a_floor_above_its_own(path: Path) -> None:
    above = {name for name in imports(path) - {"__version__"} if FLOOR[name] > FLOOR[part(path)]}
    assert not above, f"{part(path)} (floor {FLOOR[part(path)]}) imports {sorted(above)}"


def test_the_package_itself_imports_nothing() -> None:
    assert imports(SOURCE / "__init__.py") == set()


def heavy_after(code: str) -> list[str]:
    """The heavy packages that a fresh process has imported after ``code``."""
    script = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=tinyrun.ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.split()


def test_reading_recipes_tasks_and_methods_imports_nothing_heavy() -> None:
    code = "import cirf, cirf.store, cirf.records, cirf.recipe, cirf.recipe_io, cirf.tasks, cirf.methods, cirf.cli, cirf.run\n"
    code += "for name in cirf.recipe_io.shipped(): cirf.recipe_io.load(name)\n"
    code += "import cirf.sweep_io\nfor name in cirf.sweep_io.shipped(): cirf.sweep_io.load(name).points()\n"
    code += "for name in cirf.tasks.names(): cirf.tasks.get(name)"
    assert heavy_after(code) == []


def test_a_heavy_import_would_be_seen() -> None:
    assert "numpy" in heavy_after("import cirf.codebook.embedding")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["recipes"], ["tasks"], ["methods"], ["sweep", "--list"]], ids=" ".join
)
def test_help_and_lists_import_nothing_heavy(arguments: list[str]) -> None:
    call = "from cirf.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    code = f"sys.argv = ['cirf', *{arguments!r}]\n{call}"
    assert heavy_after(code) == []
