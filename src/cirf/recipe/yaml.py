"""YAML as recipes use it: read with line numbers and no surprises, written so that it reads back the same.

PyYAML follows YAML 1.1, where ``2e-5`` is a text, ``no`` is false, ``010`` is eight and a key may occur twice. Here a plain
scalar is read as in YAML 1.2: ``null``, ``true``, ``false``, numbers; all else is text.
"""

import copy
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

Path = tuple[str | int, ...]
"""The place of a value: keys and list positions from the top, such as ``("problems", "tasks", 0, "train")``."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MAX_DIGITS = 400  # Python refuses to read integers of more than 4300 digits; no recipe needs them
_NO_TAG = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}  # what the base loader gives where there is none
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*( [A-Za-z0-9_./@+-]+)*")
_OTHER_THAN_TEXT = {"yes", "no", "on", "off", "y", "n", "true", "false", "null"}  # to some reader or other

_MAX_NODES = 100_000
"""Values in a document, each as often as an alias names it: a few lines of aliases of aliases may expand to billions."""
_MAX_ALIASED = 1_000_000
"""Characters that aliases may add to those of the text: many aliases of one long text expand to as many copies."""


class YamlError(Exception):
    """What is wrong and, where known, on which line (from 1)."""

    def __init__(self, message: str, line: int | None = None) -> None:
        """Keep both apart: the caller knows the file's name."""
        super().__init__(message)
        self.line = line


@dataclass
class Document:
    """The content of a YAML text, and the line (from 1) of each value's key."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)


def parse(text: str) -> Document:
    """Read one YAML document. Raises ``YamlError`` for broken syntax, a key that occurs twice, an alias that holds itself,
    aliases that expand to too much, and explicit tags."""
    try:
        found = _parse(text)
        return Document(copy.deepcopy(found.value), found.lines)
    except RecursionError:
        raise YamlError("nested too deeply") from None


@lru_cache(maxsize=16)
def _parse(text: str) -> Document:
    """A run reads its recipe four times, and PyYAML is slow."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "not YAML", None if mark is None else mark.line + 1) from None
    except yaml.reader.ReaderError as error:
        raise YamlError(f"a character that YAML does not allow (#x{error.character:04x})") from None
    except (OverflowError, ValueError):  # of "\UFFFFFFFF"
        raise YamlError("an escape of an invalid character") from None
    document = Document(None)
    if root is not None:
        document.value = _read(root, (), document.lines, frozenset(), [len(text) + _MAX_ALIASED])
    return document


def _read(node: yaml.Node, path: Path, lines: dict[Path, int], above: frozenset[int], room: list[int]) -> Any:
    """The value of a node; ``room`` holds the characters that may still come, by which it is lessened."""
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(lines) > _MAX_NODES:
        raise YamlError(f"more than {_MAX_NODES:,} values, counting what aliases name", line)
    if id(node) in above:
        raise YamlError("an alias that holds itself", line)
    above = above | {id(node)}
    if node.tag not in _NO_TAG:
        raise YamlError(f"tags such as {node.tag} are not supported", line)
    if isinstance(node, yaml.ScalarNode):
        room[0] -= len(node.value)
        if room[0] < 0:
            raise YamlError(f"aliases expand to more than {_MAX_ALIASED:,} characters", line)
        return node.value if node.style else read_scalar(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_read(item, (*path, position), lines, above, room) for position, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError("a key must be a word, not a list or a group", key_line)
        key = str(key_node.value)
        room[0] -= len(key)
        if key in values:
            raise YamlError(f"the key {key} occurs twice, first on line {lines[(*path, key)]}", key_line)
        lines[(*path, key)] = key_line
        values[key] = _read(value_node, (*path, key), lines, above, room)
    return values


def read_scalar(text: str) -> Any:
    """What an unquoted word means: nothing, a truth value, a number, or itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def scalar(value: str | int | float | bool | None) -> str:
    """A scalar as one line of YAML that every reader, of 1.1 or 1.2, understands alike."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        mantissa, mark, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa else '.0'}e{exponent}" if mark else mantissa
    if _PLAIN.fullmatch(value) and value.lower() not in _OTHER_THAN_TEXT:
        return value
    return '"' + "".join(map(_escape, value)) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return {"\n": "\\n", "\t": "\\t"}.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def inline(value: Any) -> str:
    """A value without sections as YAML on one line: ``[32, 64]``, ``{people: 4}``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    return scalar(value)


class _Writer(yaml.SafeDumper):
    """Lists of plain values on one line, texts of several lines as blocks, texts that look like something else in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(writer: _Writer, text: str) -> yaml.Node:
    plain = read_scalar(text) == text and text.replace("\n", "").isprintable()  # U+0085 and others end lines in YAML 1.1
    style = ("|" if "\n" in text else None) if plain else '"'
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style)


def _list_node(writer: _Writer, items: list[Any]) -> yaml.Node:
    return writer.represent_sequence("tag:yaml.org,2002:seq", items, not any(isinstance(item, dict | list) for item in items))


_Writer.add_representer(str, _text_node)
_Writer.add_representer(list, _list_node)


def write(value: Any) -> str:
    """Plain values, lists and groups as YAML, a key a line, which this reader and those of YAML 1.1 read back the same."""
    return str(yaml.dump(value, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=118))
