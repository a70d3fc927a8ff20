"""Generate reference pages from the code: commands, recipe keys, methods and tasks.

    python -m benchmarks.reference docs/reference

A test compares the pages with the output; `make reference` updates them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cirf import methods, tasks
from cirf.recipe.keys import KeyRow, rows, rows_of
from cirf.recipe.schema import Override
from cirf.recipe.yaml import inline
from cirf.store.files import write_atomic
from cirf.tasks.task import Option

_NOTE = "<!-- Written by `make reference` from the code: change the code, not this page. -->"


def _table(head: Iterable[str], body: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in body:
        yield "| " + " | ".join(_cell(cell) for cell in row) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    """Code in a table cell, with special characters protected."""
    return f"`{text}`" if text else ""


def cli() -> str:
    """Every command with its arguments and options, as typer writes them."""
    asked = [sys.executable, "-m", "typer", "cirf.cli", "utils", "docs", "--name", "cirf", "--title", "Command line"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    title, _, rest = text.partition("\n")
    said = (
        "Commands that list or report take `--json`: one document on standard output, everything else on standard error."
        " A mistake ends with one line on standard error and exit code 2."
    )
    listed = re.sub(r"^\* `--help`: .*\n", "", rest, flags=re.MULTILINE)
    whole = dict(re.findall(r"^#+ `cirf (?:data )?([a-z-]+)`\n\n(.+)$", listed, flags=re.MULTILINE))  # lists of commands cut it
    listed = re.sub(r"^\* `([a-z-]+)`: .*\.\.\.$", lambda cut: f"* `{cut[1]}`: {whole[cut[1]]}", listed, flags=re.MULTILINE)
    return f"{title}\n\n{_NOTE}\n\n{said}\n\n{listed.strip()}\n"


def recipe_keys() -> str:
    """Every key of a recipe, by section."""
    lines = ["# Recipe keys", "", _NOTE, ""]
    lines += [
        "One YAML file describes one experiment. Keys are dotted paths, as for `--set`; `*` is a position in a list or a name"
    ]
    lines += [
        "that you choose. `cirf recipes --schema` prints this table, `cirf recipes NAME` a shipped recipe. An unknown key is"
    ]
    lines += [
        "an error that names the nearest valid one. *Paper* names the place in the CIRF paper. Names are those of transformers,"
    ]
    lines += ["TRL and vLLM. In `finetune` some are shorter, as in torchtune: `batch_size` is `per_device_train_batch_size`,"]
    lines += [
        "`epochs` is `num_train_epochs`, and `lora.rank` is PEFT's `r`.",
        "",
    ]
    sections: dict[str, list[KeyRow]] = {}
    for row in rows():
        sections.setdefault(row.key.partition(".")[0] if "." in row.key or row.type == "a group of keys" else "", []).append(row)
    for name, found in sections.items():
        head = next((row.meaning for row in found if row.key == name), "")
        lines += [f"## {name or 'Top level'}", "", *([head, ""] if head else [])]
        lines += [*_table(("key", "takes", "default", "meaning"), _key_rows([row for row in found if row.key != name])), ""]
    return "\n".join(lines)


def _key_rows(found: Iterable[KeyRow]) -> Iterator[tuple[str, str, str, str]]:
    for row in found:
        if row.type == "a group of keys":
            continue
        meaning = row.meaning + (f" Unit: {row.unit}." if row.unit else "") + (f" Paper: {row.paper}." if row.paper else "")
        yield _code(row.key), row.type, _code(row.default) or "must be given", meaning


def methods_page() -> str:
    """Every method with its settings and presets."""
    lines = ["# Methods", "", _NOTE, ""]
    lines += [
        "`cirf methods NAME` prints the same. [Baselines](baselines.md) and [latent baselines](latent-baselines.md) say how each",
        "works and what to watch for; [preset sources](preset-sources.md) says where preset values come from.",
        "",
    ]
    kinds = ((f"[`{name}`](#{name})", "yes" if each.trained else "no", each.summary) for name, each in methods.METHODS.items())
    lines += list(_table(("method", "trained", "what it does"), kinds))
    for name, method in methods.METHODS.items():
        lines += ["", f"## {name}", "", f"{_sentence(method.summary)}.", ""]
        lines += list(_settings(method))
        training = list(_training(method))
        lines += ["", *training] if training else []
    return "\n".join([*lines, ""])


def _sentence(summary: str) -> str:
    """A summary with a capital, unless it begins with a method's name."""
    first, rest = re.match(r"(\w+)(.*)", summary, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"`{first}`{rest}" if first in methods.METHODS else summary[0].upper() + summary[1:]


def _settings(method: type[methods.Method]) -> Iterator[str]:
    """The settings of a method; a link if all of them are those of an earlier method."""
    found, presets = list(rows_of(method.Settings)), method.presets
    if not found:
        yield "It has no settings."
        return
    shared = next((each for each in methods.METHODS.values() if _shares(each, method)), None)
    if shared is not None:
        details = set(rows_of(shared.Settings))
        found = [row for row in found if row not in details]
        yield f"It has the settings of [`{shared.name}`](#{shared.name}){', with these differences:' if found else '.'}"
        if not found:
            return
        yield ""

    def line(row: KeyRow) -> Iterator[str]:
        default = method.Settings.model_fields[row.key].get_default()
        yield _code(row.key)
        yield _code(row.default)
        yield from (_code(inline(preset.settings.get(row.key, default))) for preset in presets.values())
        yield row.meaning + (" Only when answering." if row.key in method.answering else "") + f" Takes {row.type}."

    yield from _table(("setting", "default", *(f"preset `{name}`" for name in presets), "meaning"), map(line, found))


def _shares(one: type[methods.Method], other: type[methods.Method]) -> bool:
    """Whether the other method, listed later and without presets, has the same settings, apart from defaults."""
    listed = list(methods.METHODS.values())
    if other.presets or listed.index(one) >= listed.index(other) or not one.Settings.model_fields:
        return False
    few, many = ({(row.key, row.meaning) for row in rows_of(each.Settings)} for each in (one, other))
    return one.Settings is other.Settings or (len(few) > 2 and few <= many)


def _training(method: type[methods.Method]) -> Iterator[str]:
    """The keys of the training that presets set; ``recipe``: the recipe's own value."""
    given = [preset.training.model_dump(exclude_none=True) for preset in method.presets.values()]
    keys = [key for key in Override.model_fields if any(key in each for each in given)]
    if keys:
        lines = ([_code(key), *(_code(inline(each[key])) if key in each else "recipe" for each in given)] for key in keys)
        yield from _table(("training", *(f"preset `{name}`" for name in method.presets)), lines)


def tasks_page() -> str:
    """Every task: its answers, its data, its version."""
    lines = ["# Tasks", "", _NOTE, ""]
    lines += ["`cirf data get` fetches published benchmarks"]
    lines += [
        "([benchmark data](../how-to/benchmark-data.md)). Made tasks are generated offline. Your own rows are `task: jsonl`"
    ]
    lines += ["([tutorial](../tutorials/own-data.md)), your own answer formats [a Python file](../how-to/own-task.md).", ""]
    lines += list(
        _table(("task", "answers", "data", "splits", "licence of the data", "answer cap, tokens"), map(_task, tasks.names()))
    )
    lines += ["", "An answer that cannot be parsed counts as wrong and is reported on its own."]
    for name in tasks.names():
        task = tasks.get(name)
        lines += ["", f"## {name}", "", f"{task.title}: {task.summary.rstrip('.')}."]
        if task.options:
            lines += ["", *_table(("option", "default", "range", "meaning"), map(_option, task.options.items()))]
    return "\n".join([*lines, ""])


def _option(item: tuple[str, Option]) -> tuple[str, ...]:
    name, option = item
    return _code(name), _code(str(option.default)), f"{option.low:g} to {option.high:g}", option.meaning


def _task(name: str) -> tuple[str, ...]:
    task = tasks.get(name)
    data = f"`{task.hub.id}`" if task.hub else "generated"
    splits = "test" if task.evaluation_only else "train, test"
    return f"[`{name}`](#{name})", ", ".join(task.all_kinds), data, splits, task.licence or "not stated", str(task.cap)


PAGES = {"cli.md": cli, "recipe-keys.md": recipe_keys, "methods.md": methods_page, "tasks.md": tasks_page}
"""The pages by file name."""


def main() -> None:
    """Write all pages into the folder given."""
    folder = Path(sys.argv[1])
    for name, page in PAGES.items():
        write_atomic(folder / name, page())


if __name__ == "__main__":
    main()
