"""YAML: what a plain word means, what is refused, and that what is written reads back."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from tables import each_row

from cirf.recipe.yaml import YamlError, inline, parse, scalar, write

# A lone surrogate is no text: it cannot be written to a file.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), TEXT
)


@each_row(
    ("text", "value"),
    [
        ("2e-5", 2e-5),
        ("2.0e-5", 2e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-3", -3),
        ("+3", 3),
        ("010", 10),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'2e-5'", "2e-5"),
        ('"true"', "true"),
        ("1e999", "1e999"),
        ("2024-01-01", "2024-01-01"),
        ("bundled:qwen2.5-coder-0.5b-instruct", "bundled:qwen2.5-coder-0.5b-instruct"),
    ],
)
def test_a_plain_word_means_what_it_looks_like(text: str, value: object) -> None:
    found = parse(f"key: {text}").value["key"]
    assert (type(found), found) == (type(value), value)


@given(SCALARS)
@example("2e-5")
@example("a: b")
@example("a #b")
@example("\u2028\x85\x7f\ufeff\U000e0001")
def test_a_scalar_reads_back_as_it_was(value: object) -> None:
    assert parse(f"key: {scalar(value)}").value["key"] == value  # type: ignore[arg-type]
    assert yaml.safe_load(f"key: {scalar(value)}")["key"] == value  # type: ignore[arg-type]


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8))
def test_lists_and_groups_on_one_line_read_back(value: object) -> None:
    assert "\n" not in inline(value)
    assert parse(f"key: {inline(value)}").value["key"] == value


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8))
@example("one\n\ntwo\n")
@example(" one\ntwo")
@example("one\n \n")
@example({"1e5": ["1e5", 1e5, "0x10", "010", "no", "~", ""]})
def test_what_is_written_reads_back(value: object) -> None:
    text = write({"top": {"key": value, "next": 1}})
    assert parse(text).value == yaml.safe_load(text) == {"top": {"key": value, "next": 1}}


@given(st.text(st.sampled_from("ab #:-|'\"\\\n é€"), max_size=30))
def test_a_text_of_several_lines_reads_back(text: str) -> None:
    assert parse(write({"top": {"key": text, "next": 1}})).value == {"top": {"key": text, "next": 1}}


def test_lines_are_those_of_the_keys() -> None:
    document = parse("# first\na:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    assert document.lines[("a",)] == 2
    assert document.lines[("a", "c")] == 4
    assert document.lines[("a", "c", 1, "d")] == 6


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key a occurs twice, first on line 1"),
        ("a:\n  b: [1, 2\n", 3, "expected"),
        ("a: b: c", 1, "not allowed"),
        ("a: 1\n\tb: 2", 2, "\\t"),
        ("a: &x [*x]", 1, "holds itself"),
        ("a: !!python/name:os.system x", 1, "not supported"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]", 2, "not supported"),
        ("a: !!python/object:os.PathLike {x: 1}", 1, "not supported"),
        ("? [a]\n: 1", 1, "a key must be a word"),
        ("a: *b", 1, "undefined alias"),
        ("a: \x00", None, "not allow"),
        ("[" * 5000, None, "deep"),
    ],
)
def test_what_is_not_a_plain_document_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(YamlError, match=words.replace("\\", "\\\\")) as caught:
        parse(text)
    assert caught.value.line == line


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(YamlError, match="more than 100,000 values, counting what aliases name"):
        parse("\n".join(lines))


def test_an_alias_repeats_what_it_names() -> None:
    assert parse("a: &x {b: 1}\nc: *x").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("text", ["notes: \udcff", 'notes: "\\UFFFFFFFF"'])
def test_a_character_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="character"):
        parse(text)


def test_aliases_of_a_long_text_do_not_fill_the_memory() -> None:
    lines = [f"a: &a {'x' * 100_000}", *(f"b{number}: *a" for number in range(20))]
    with pytest.raises(YamlError, match="aliases expand to more than 1,000,000 characters"):
        parse("\n".join(lines))
    assert len(parse("\n".join(lines[:5])).value) == 5
