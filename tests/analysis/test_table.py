"""Tables: the same rows in every form."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.pictures.table import Column, Table, escape

COLUMNS = (
    Column("name", "Name"),
    Column("accuracy", "Accuracy", "share", bounds=True),
    Column("gap", "Gap", "points"),
    Column("n", "n", "count"),
    Column("parts", "Parts", "list"),
)
ROW = {
    "name": "a_b",
    "accuracy": 0.5375,
    "accuracy_low": 0.489,
    "accuracy_high": 0.586,
    "gap": -0.02,
    "n": 12345,
    "parts": ["x", "y"],
}


def table(*rows: dict[str, Any]) -> Table:
    return Table("t", "A caption.", COLUMNS, rows)


def test_values_are_shown_in_their_form_and_kept_unrounded() -> None:
    made = table(ROW, {"name": "c"})
    assert [column.show(ROW) for column in COLUMNS] == [
        "a_b",
        "53.8\N{NO-BREAK SPACE}% (48.9 to 58.6)",
        "-2.0",
        "12,345",
        "x, y",
    ]
    assert [column.show({"name": "c"}) for column in COLUMNS] == ["c", "–", "–", "–", "–"]
    rows = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert rows[0] == {key: str(value) for key, value in ROW.items()} | {"parts": "x | y"}
    assert made.to_dict()["rows"][1] == dict.fromkeys(made.keys()) | {"name": "c"}


def test_columns_that_say_the_same_in_every_row_are_shown_once() -> None:
    made = table(ROW, ROW | {"n": 1})
    assert [column.key for column in made.varying()] == ["n"]
    assert ("Name", "a_b") in made.constant() and len(made.constant()) == 4
    assert len(table(ROW).varying()) == len(COLUMNS) and not table(ROW).constant()
    empty = ROW | {"name": "", "parts": []}
    assert [title for title, _ in table(empty, empty | {"n": 1}).constant()] == ["Accuracy", "Gap"]


def test_a_list_takes_a_line_an_entry_in_latex() -> None:
    lines = table(ROW).to_latex().splitlines()
    assert r"a\_b & 53.8~\% (48.9 to 58.6) & -2.0 & 12,345 & x \\" in lines
    assert r" &  &  &  & y \\" in lines
    assert r"\begin{tabular}{lrrrl}" in lines


def test_a_table_of_many_columns_is_made_to_fit_and_says_once_what_is_the_same() -> None:
    columns = tuple(Column(f"c{place}", f"C{place}", "count") for place in range(9))
    rows = [{f"c{place}": 5 if place == 8 else place * row for place in range(9)} for row in (1, 2, 3)]
    lines = Table("wide", "Many.", columns, rows).to_latex().splitlines()
    assert lines[0] == r"\begin{table*}[tp]" and r"\end{tabular}}" in lines
    assert sum(line.startswith(r"\resizebox{\ifdim\width>\linewidth") for line in lines) == 1
    assert r"\caption{Many. C0: 0. C8: 5.}" in lines and r"C1 & C2 & C3 & C4 & C5 & C6 & C7 \\" in lines
    assert "table*" not in Table("narrow", "Few.", columns[:3], rows).to_latex()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60))
def test_a_long_table_takes_the_fewest_pages_of_whole_rows_in_latex(heights: list[int]) -> None:
    columns = (Column("name", "Name"), Column("parts", "Parts", "list"))
    rows = [{"name": f"row {n}.", "parts": [f"{n}-{line}" for line in range(height)]} for n, height in enumerate(heights)]
    made = Table("long", "Long.", columns, rows).to_latex()
    pages = [part.partition(r"\bottomrule")[0].strip().splitlines() for part in made.split(r"\midrule")[1:]]
    assert made.count(r"\begin{table}[tp]") == made.count(r"\end{table}") == made.count(r"\toprule") == len(pages)
    whole = [line for page in pages for line in page]
    assert [line.split(" & ")[0] for line in whole if line.startswith("row")] == [row["name"] for row in rows]
    assert len(whole) == sum(heights)
    assert all(len(page) <= 34 or sum(line.startswith("row") for line in page) == 1 for page in pages)
    assert all(page[0].startswith("row") for page in pages) and len(set(re.findall(r"\\label\{.*\}", made))) == len(pages)
    assert made.count("(Continued.)") == len(pages) - 1 and made.count(r"\clearpage") == len(pages) // 12
    fewest, room = 1, 34
    for height in heights:  # greedily
        if room < height and room < 34:
            fewest, room = fewest + 1, 34
        room -= height
    assert len(pages) == fewest


def test_pages_of_a_long_table_are_about_as_full_in_latex() -> None:
    made = Table("long", "Long.", (Column("n", "N", "count"),), [{"n": n} for n in range(36)]).to_latex()
    assert [part.partition(r"\bottomrule")[0].count(r" \\") for part in made.split(r"\midrule")[1:]] == [18, 18]


def test_rows_all_alike_keep_their_columns_and_no_row_begins_with_a_command() -> None:
    columns = (Column("a", "A"), Column("b", "B", "count"))
    alike = Table("alike", "All the same.", columns, [{"a": "x", "b": 1}] * 2)
    assert alike.varying() == list(columns) and not alike.constant() and r"\caption{All the same.}" in alike.to_latex()
    lines = Table("t", "T.", columns, [{"a": "[1] run", "b": 1}, {"a": "*", "b": 2}]).to_latex().splitlines()
    assert r"{}[1] run & 1 \\" in lines and r"{}* & 2 \\" in lines


def test_signs_of_reasoning_are_those_that_pdflatex_knows() -> None:
    summary = escape("γ ≤ 3 × 4 − 2 √9 → “x”…\N{NO-BREAK SPACE}%")
    assert summary.isascii() and r"$\gamma$ $\leq$ 3 $\times$ 4 $-$ 2" in summary and summary.endswith(r"\ldots{}~\%")


@given(st.text(st.characters(codec="ascii")))
def test_no_text_is_a_command_in_latex(text: str) -> None:
    summary = escape(text)
    bare = re.sub(r"\\(textbackslash|textasciicircum|textasciitilde|textless|textgreater)\{\}|\\[{}$&#%_]", "", summary)
    assert not re.search(r"[\\{}$&#%_^<>]", bare)


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False)), max_size=5))
def test_a_csv_file_reads_back(rows: list[tuple[str, float]]) -> None:
    made = Table("t", "", (Column("a", "A"), Column("b", "B", "number")), [{"a": a, "b": b} for a, b in rows])
    found = list(csv.reader(io.StringIO(made.to_csv(), newline="")))[1:]
    for (a, number), (text, value) in zip(found, rows, strict=True):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        assert a in (text, f"'{text}") and float(number) == value
        assert a == text or text.lstrip()[0] in "=+-@"


@each_row("text", ['=HYPERLINK("http://x","y")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1+1", "- a step"])
def test_no_cell_of_a_csv_file_is_a_formula(text: str) -> None:
    made = Table("t", "", (Column("a", "A"), Column("b", "B", "list")), [{"a": text, "b": [text, "x"]}, {"a": "-5", "b": [-0.5]}])
    cells = [*csv.reader(io.StringIO(made.to_csv(), newline=""))][1:]
    assert cells == [[f"'{text}", f"'{text} | x"], ["-5", "-0.5"]]
