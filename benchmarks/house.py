"""Measure the size of the code and its imports.

    python -m benchmarks.house [--json] [--list]

Counts of ``src/cirf``: files, lines, files with one importer, import cycles, imports of a higher layer, functions longer than 60
lines, functions of more than 8 parameters, and the shortest chain of imports from `cirf run` to the loss of the VQ-VAE and to
that of the language model. Imports inside functions count, those for type checkers do not. ``--list`` prints the items behind
each count.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cirf"
LONGEST, MOST_PARAMETERS = 60, 8
LAYERS = (
    frozenset(
        {"errors", "progress", "records", "registry", "user_code", "distributed", "openmp", "store", "recipe", "statistics"}
    ),
    frozenset({"text", "assets", "tasks", "endpoints", "rationales", "codebook", "cpu", "lm"}),
    frozenset({"methods", "compression"}),
    frozenset({"evaluation"}),
    frozenset({"environment", "analysis", "pictures", "fitting"}),
    frozenset({"report", "serving", "export"}),
    frozenset({"api", "stages"}),
    frozenset({"run"}),
    frozenset({"commands"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
"""Parts of the package, the lowest first: none imports a part of a layer above its own."""
LAYER = {name: height for height, names in enumerate(LAYERS) for name in names}
START = "commands.run"
GOALS = {"VQ-VAE loss": "codebook.vqvae", "language-model loss": "lm.training.loss"}

Graph = Mapping[str, Set[str]]


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module, by its name without ``cirf.``; packages by that of their folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def part(module: str) -> str:
    """The part of the package that a module is in."""
    return module.partition(".")[0]


def imports() -> dict[str, set[str]]:
    """The modules that each module imports, except itself."""
    names = trees().keys()
    graph: dict[str, set[str]] = {}
    for module, tree in trees().items():
        found: set[str] = set()
        for node in _at_run_time(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                within = {f"{node.module}.{alias.name}" for alias in node.names}
                modules = {name for name in within if name.removeprefix("cirf.") in names}
                found |= modules | ({node.module} if len(modules) < len(within) else set())
        graph[module] = {name.removeprefix("cirf.") for name in found if name.startswith("cirf.")} & names - {module}
    return graph


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _at_run_time(node)


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    reach = {module: _reached(graph, module) for module in graph}
    groups = {frozenset({a, *(b for b in reach[a] if a in reach[b])}) for a in graph if a in reach[a]}
    return sorted(sorted(group) for group in groups)


def _reached(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    queue = deque(graph[start])
    while queue:
        module = queue.popleft()
        if module not in found:
            found.add(module)
            queue.extend(graph[module])
    return found


def upward(graph: Graph) -> list[str]:
    """Imports of a module that is in a higher layer."""
    return [f"{a} -> {b}" for a, to in graph.items() for b in sorted(to) if LAYER[part(b)] > LAYER[part(a)]]


def hops(graph: Graph, start: str, goal: str) -> list[str]:
    """The shortest chain of imports from ``start`` to ``goal``, both included; empty if there is none."""
    before: dict[str, str | None] = {start: None}
    queue = deque([start])
    while queue and goal not in before:
        module = queue.popleft()
        for other in sorted(graph[module] - before.keys()):
            before[other] = module
            queue.append(other)
    chain: list[str] = []
    at: str | None = goal if goal in before else None
    while at is not None:
        chain.insert(0, at)
        at = before[at]
    return chain


def functions() -> Iterator[tuple[str, int, int]]:
    """Name, lines and parameters of every function.

    ``self`` and ``cls`` do not count, nor do the parameters of a command, which are its options.
    """
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = sum(argument.arg not in ("self", "cls") for argument in given)
                command = any(ast.unparse(one).startswith("app.command(") for one in node.decorator_list)
                yield f"{module}.{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1, 0 if command else own


def measure() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The counts, and the names behind some of them."""
    graph = imports()
    importers: dict[str, set[str]] = defaultdict(set)
    for module, to in graph.items():
        for other in to:
            importers[other].add(module)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    sources = list(SOURCE.rglob("*.py"))
    tests = list((ROOT / "tests").rglob("*.py"))
    chains = {what: hops(graph, START, goal) for what, goal in GOALS.items()}
    named = {
        "import cycles": [" ".join(group) for group in cycles(graph)],
        "imports of a higher layer": upward(graph),
        f"functions over {LONGEST} lines": [f"{name} ({lines})" for name, lines, _ in functions() if lines > LONGEST],
        f"functions of over {MOST_PARAMETERS} parameters": [
            f"{name} ({count})" for name, _, count in functions() if count > MOST_PARAMETERS
        ],
        "files with one importer": sorted(module for module, by in importers.items() if len(by) == 1),
    }
    counts = {
        "tracked files": len(tracked),
        "files of src": len(sources),
        "lines of src": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources),
        "of these neither docstring, comment nor blank": sum(map(code_lines, sources)),
        "files of tests": len(tests),
        "lines of tests": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests),
        "files in the package's root": sum(path.parent == SOURCE for path in sources),
        **{name: len(found) for name, found in named.items()},
        **{f"hops to the {what}": len(chain) - 1 for what, chain in chains.items()},
    }
    return counts, named | {f"hops to the {what}": [" -> ".join(chain)] for what, chain in chains.items()}


def code_lines(path: Path) -> int:
    """Lines of a file that are no docstring (of an attribute neither), comment or blank."""
    text = path.read_text(encoding="utf-8")
    strings = [
        node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    said = {number for string in strings for number in range(string.lineno, (string.end_lineno or string.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in said and line.strip() != "" and not line.lstrip().startswith("#") for number, line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    options = parser.parse_args()
    counts, named = measure()
    if options.json:
        print(json.dumps(counts))
        return
    for name, count in counts.items():
        print(f"{count:>8,}  {name}")
        if options.list:
            print(*(f"          {line}" for line in named.get(name, ())), sep="\n")


if __name__ == "__main__":
    main()
