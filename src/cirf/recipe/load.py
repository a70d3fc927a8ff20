"""Recipes as YAML files, read with actionable errors, and written with every key: the copy that a run keeps."""

import copy
import difflib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cirf.errors import CirfError
from cirf.recipe import keys as recipe_keys
from cirf.recipe import yaml as yaml_text
from cirf.recipe.keys import dotted, found
from cirf.recipe.schema import Recipe, Section, with_own_methods
from cirf.recipe.yaml import Document, YamlError
from cirf.store.hub_names import suggestion
from cirf.store.paths import refuse_archive, refuse_special, user_path, without_folders
from cirf.store.row_files import is_row_file

Validated = TypeVar("Validated", bound=Section)


def dump(recipe: Section) -> str:
    """A recipe or a sweep as YAML: every key, in the schema's order. ``parse(dump(recipe)) == recipe``."""
    return yaml_text.write(recipe.model_dump(mode="json"))


def shipped() -> dict[str, Path]:
    return {name: path for name, path in shipped_files("recipes").items() if not is_sweep(path.read_text(encoding="utf-8"))}


def shipped_files(kind: str) -> dict[str, Path]:
    """The YAML files that come with the package in a folder, ``recipes`` or ``sweeps``, by name."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / kind, here.parents[3] / kind):  # in a wheel; in a checkout
        found = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
        if found:
            return found
    return {}


def is_sweep(text: str) -> bool:
    """Whether a YAML text is a sweep, several runs of a recipe, and not a recipe: it has parts."""
    return re.search(r"^parts *:", text, re.M) is not None


def load(path_or_name: str, sets: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, or a shipped one by its name, with ``a.b=c`` overrides applied. Raises ``CirfError``, one line: the
    file (or ``--set a.b``), the key, what was expected and what was found."""
    path = find(path_or_name, shipped(), "recipe")
    if is_row_file(path.name) and path.suffix != ".json":  # a recipe may be written in JSON
        file, made = shlex.quote(str(path_or_name)), shlex.quote(str(Path(path_or_name.removesuffix(".gz")).with_suffix(".yaml")))
        raise CirfError(f"{path_or_name} holds rows, not a recipe: cirf init {file} > {made}")
    text = read_text(path, path_or_name, "recipe")
    source = str(path_or_name if path_or_name.endswith((".yaml", ".yml")) else path)
    if is_sweep(text):
        raise CirfError(f"{source}: a sweep, several runs of one recipe; `cirf sweep {path_or_name}` runs it")
    return parse(text, source, sets)


def open_run(folder: Path) -> Recipe:
    """The recipe of a run's folder; ``CirfError`` if it is not one, or holds what no run does (`refuse_special`)."""
    path = folder / "recipe.yaml"
    if not path.is_file():
        refuse_archive(folder)
    if not path.is_file() or (folder / "stage.json").is_file():  # a stage keeps its recipe
        what = "a stage of one" if path.is_file() else "no recipe.yaml in it" if folder.exists() else "there is no such folder"
        raise CirfError(f"{folder}: not a run's folder ({what})")
    refuse_special(folder)
    return load(str(path))


def read_text(path: Path, called: str, kind: str) -> str:
    """The text of a file; ``CirfError`` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CirfError(f"{called}: not UTF-8 text; a {kind} is a YAML file") from None
    except OSError as error:
        raise CirfError(f"{called}: cannot be read: {error.strerror}") from None


def parse(text: str, source: str = "recipe", sets: Sequence[str] = ()) -> Recipe:
    """The recipe in a YAML text; ``source`` is its name in errors. Raises ``CirfError`` as ``load`` does."""
    document = read(text, source)
    if document.value is None:
        raise CirfError(f"{source}: the recipe is empty; it needs at least name and problems.tasks")
    if not isinstance(document.value, dict):
        raise CirfError(f"{source}: expected a recipe, keys such as name: and problems:, found {found(document.value)}")
    return build(document, source, sets)


def read(text: str, source: str) -> Document:
    """A YAML text with the lines of its keys; ``CirfError`` where it is not YAML."""
    try:
        return yaml_text.parse(text)
    except YamlError as error:
        raise CirfError(_one_line(f"{_at(source, error.line)}: not valid YAML: {error}")) from None


def build(document: Document, source: str, sets: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a document, with ``settings`` (dotted keys and their values) and then the overrides ``sets`` applied. The
    document is not changed. Raises ``CirfError`` as ``load`` does."""
    data = copy.deepcopy(document.value)
    for name, value in (settings or {}).items():
        put(data, name, copy.deepcopy(value), f"{source}: {name}")
    overridden = [put(data, name, value, f"--set {name}") for name, value in map(override, sets)]
    _drop_empty_sections(data, Recipe)
    recipe = validated(Recipe, with_own_methods(data), source, document, overridden)
    return Recipe.model_validate_json(recipe.model_dump_json())  # a default of 2 becomes 2.0, as an explicit 2 does


def validated(
    schema: type[Validated], data: Any, source: str, document: Document, overridden: Sequence[yaml_text.Path] = ()
) -> Validated:
    """A section of the data of a document; ``CirfError``, one line, that names file, line and key."""
    try:
        return schema.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise CirfError(_explain(error.errors(include_url=False), source, document, overridden, schema)) from None


def for_others(recipe: Recipe) -> str:
    return dump(Recipe.model_validate_json(json.dumps(without_folders(recipe.model_dump(mode="json")))))


def find(path_or_name: str, there: Mapping[str, Path], kind: str) -> Path:
    """A file, or the one ``there`` of that name; ``CirfError`` if it is neither."""
    path = user_path(path_or_name)
    if path.is_file():
        return path
    if path_or_name in there:
        return there[path_or_name]
    if path.is_dir():
        raise CirfError(f"{path_or_name}: a folder, not a {kind}; name a YAML file in it")
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        come = f"; the {kind}s that come with cirf are {', '.join(there) or 'missing'}"
        raise CirfError(f"{path_or_name}: no such file{suggestion(path_or_name) or come}")
    near = difflib.get_close_matches(path_or_name, there, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(there) or 'none'}"
    raise CirfError(f"{path_or_name}: neither a file nor a {kind} that comes with cirf; {hint}")


def override(item: str) -> tuple[str, Any]:
    """The dotted key and the value of ``a.b=c``; ``CirfError`` for any other text."""
    name, mark, text = item.partition("=")
    name = name.strip()
    if not mark or not name or not all(name.split(".")):
        raise CirfError(f"--set {item}: expected KEY=VALUE, such as finetune.epochs=1")
    try:
        return name, yaml_text.parse(text).value
    except YamlError as error:
        raise CirfError(_one_line(f"--set {name}: the value {json.dumps(text)} is not valid YAML: {error}")) from None


def put(root: dict[str, Any], name: str, value: Any, source: str) -> yaml_text.Path:
    """Put a value into the recipe's data at a dotted key; returns the path that was set. ``source`` begins error messages."""
    path: yaml_text.Path = ()
    here: Any = root
    parts = name.split(".")
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if isinstance(here, list):
            position = int(part) if part.isdecimal() and len(part) < 10 else -1
            if not 0 <= position < len(here):
                span = f"a position from 0 to {len(here) - 1}" if here else "the whole list, for it is empty"
                raise CirfError(f"{source}: {dotted(path)} is a list; expected {span}, found {part}")
            path = (*path, position)
            if last:
                here[position] = value
            here = here[position]
        elif isinstance(here, dict):
            path = (*path, part)
            if last:
                here[part] = value
            elif here.get(part) is None:
                here[part] = {}
            here = here[part]
        else:
            raise CirfError(f"{source}: {dotted(path)} holds {found(here)}, which has no keys to set")
    return path


def _drop_empty_sections(data: Any, section: type[Section]) -> None:
    """A section whose keys are all commented out is read as null and means its defaults."""
    for name, info in section.model_fields.items():
        inner, many = recipe_keys.inner_section(info)
        if inner is None or not isinstance(data, dict) or name not in data:
            continue
        if data[name] is None and not many and not info.is_required():
            del data[name]
        elif many:
            values = data[name].values() if isinstance(data[name], dict) else data[name] if isinstance(data[name], list) else ()
            for value in values:
                _drop_empty_sections(value, inner)
        else:
            _drop_empty_sections(data[name], inner)


def _explain(
    errors: Sequence[ErrorDetails], source: str, document: Document, overridden: Sequence[yaml_text.Path], schema: type[Section]
) -> str:
    """One line for the first mistake to fix: a misspelt key before a missing one, then by line."""
    mistakes: dict[yaml_text.Path, ErrorDetails] = {}
    for error in errors:
        mistakes.setdefault(_known(error, schema), error)
    above = {path[:length] for path in mistakes for length in range(len(path))}
    for path in above & mistakes.keys():  # a list with wrong items is also reported as too short
        del mistakes[path]
    rank = {"extra_forbidden": 0, "missing": 2}
    path, error = min(
        mistakes.items(), key=lambda item: (rank.get(item[1]["type"], 1), document.lines.get(item[0], 0), dotted(item[0]))
    )
    around = () if path in document.lines else (path,)
    sets = (each for each in overridden if path and (path[: len(each)] == each or each[: len(path)] in around))
    set_here = next(sets, None)
    written = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in document.lines), None)
    where = f"--set {dotted(set_here)}" if set_here else _at(source, None if written is None else document.lines[written])
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return _one_line(f"{where}: {_mistake(path, error, schema).removeprefix(where.removeprefix('--set ') + ': ')}{more}")


def _mistake(path: yaml_text.Path, error: ErrorDetails, schema: type[Section]) -> str:
    if error["type"] == "extra_forbidden":
        return f"{dotted(path)}: no such key; {recipe_keys.nearest(path, schema)}"
    if error["type"] in ("value_error", "assertion_error"):
        return error["msg"].partition(", ")[2] or error["msg"]
    located = recipe_keys.locate(path, schema)
    row = recipe_keys.by_key(schema).get(located[0]) if located else None
    expected = row.type if row else "a group of keys"
    if row and isinstance(path[-1], int):
        expected = f"an item of {row.type}"
    if error["type"] == "missing":
        return f"{dotted(path)}: missing; expected {expected}: {row.meaning if row else ''}".rstrip(": ")
    return f"{dotted(path)}: expected {expected}, found {found(error['input'])}"


def _known(error: ErrorDetails, schema: type[Section]) -> yaml_text.Path:
    """The part of an error's place that is in the recipe: pydantic goes on with the names of a union's members."""
    path: yaml_text.Path = error["loc"]
    if error["type"] == "extra_forbidden":
        return path
    length = 0
    for length in range(len(path), 0, -1):
        located = recipe_keys.locate(path[:length], schema)
        if located is not None and located[0].count(".") + 1 == length:
            break
    item = len(path) > length and isinstance(path[length], int)
    return path[: length + item]


def _at(source: str, line: int | None) -> str:
    return source if line is None else f"{source}, line {line}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
