"""A table that is data first: written as CSV, JSON and LaTeX, shown on a page, always from the same rows.

A worked example::

    Table("accuracy", "Accuracy by method.", (Column("method", "Method"), Column("accuracy", "Accuracy", "share", bounds=True)),
          [{"method": "cirf_full", "accuracy": 0.5375, "accuracy_low": 0.489, "accuracy_high": 0.586}])

    CSV     method,accuracy,accuracy_low,accuracy_high
            cirf_full,0.5375,0.489,0.586
    page    cirf_full    53.8 % (48.9 to 58.6)

Codebooks with few training segments per code are marked in every table with K.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Form = Literal["text", "count", "number", "share", "points", "seconds", "list"]
"""How a value is shown: ``share`` 0.538 as 53.8 %, ``points`` a difference of shares with its sign, ``list`` lines."""

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_NARROW = 6  # columns that fit one column of a page
_TALL = 34  # lines that fit a page with their caption, in LaTeX's \small, up to 12 points
_HELD = 12  # tables that LaTeX holds back for a place, of 18 in older ones
_SPACE = "\N{NO-BREAK SPACE}"
_SIGNS = {
    _SPACE: "~", "–": "--", "—": "---", "…": r"\ldots{}", "’": "'", "‘": "`", "“": "``", "”": "''", "−": "$-$",
    "×": r"$\times$", "÷": r"$\div$", "·": r"$\cdot$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$",
    "≈": r"$\approx$", "√": r"$\surd$", "→": r"$\to$", "⇒": r"$\Rightarrow$", "∞": r"$\infty$", "°": r"$^\circ$", "²": "$^2$",
    "³": "$^3$", "½": "$1/2$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "λ": r"$\lambda$", "π": r"$\pi$",
    "₂": "$_2$", "€": r"EUR~", "£": r"\pounds{}",
}  # fmt: skip
"""Characters that pdflatex does not know; other scripts need lualatex or xelatex."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in the rows, its title, how its values are shown. ``bounds``: the rows hold the ends of an interval too,
    as ``KEY_low`` and ``KEY_high``, in the value's own unit."""

    key: str
    title: str
    form: Form = "text"
    bounds: bool = False

    @property
    def numeric(self) -> bool:
        return self.form not in ("text", "list")

    def show(self, row: Mapping[str, Any]) -> str:
        """A row's value in words; a dash for what is not known."""
        value = row.get(self.key)
        if value is None:
            return "–"
        ends = (row.get(f"{self.key}_low"), row.get(f"{self.key}_high")) if self.bounds else (None, None)
        return with_ends(value, *ends, self.form)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by column; ``name`` is the file's stem and the LaTeX label. Rows hold plain JSON values."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]

    def keys(self) -> list[str]:
        """Every value's key, in the order of the columns, ends of intervals after their value."""
        return [column.key + end for column in self.columns for end in ("", *(("_low", "_high") if column.bounds else ()))]

    def varying(self) -> list[Column]:
        """The columns whose values are not all the same, or all of them in a table of one row or of rows all alike."""
        found = [column for column in self.columns if len({column.show(row) for row in self.rows}) > 1]
        return found or list(self.columns)

    def constant(self) -> list[tuple[str, str]]:
        """Titles and values of the other columns that hold anything."""
        varying = self.varying()
        rest = [column for column in self.columns if column not in varying]
        row = next(iter(self.rows), {})
        return [(column.title, column.show(row)) for column in rest if row.get(column.key) not in (None, "", [])]

    def to_dict(self) -> dict[str, Any]:
        columns = [{"key": column.key, "title": column.title, "form": column.form} for column in self.columns]
        rows = [{key: row.get(key) for key in self.keys()} for row in self.rows]
        return {"name": self.name, "caption": self.caption, "columns": columns, "rows": rows}

    def to_csv(self) -> str:
        """One line a row, values unrounded; the entries of a list are parted by `` | ``."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.keys())
        writer.writerows([_plain(row.get(key)) for key in self.keys()] for row in self.rows)
        return out.getvalue()

    def to_latex(self) -> str:
        """A ``table`` with booktabs' rules, everything escaped; what is the same in all rows is in its caption. One of many
        columns goes over both columns of a page; what is wider than its place is made as small as it must be (graphicx). One of
        more rows than a page takes is parted into tables of the same columns, a page each."""
        columns = self.varying()
        caption = " ".join([self.caption, *(f"{title}: {value}." for title, value in self.constant())])
        parts = _pages([self._latex_rows(columns, row) for row in self.rows])
        made = []
        for number, lines in enumerate(parts, start=1):
            heading, label = (caption, self.name) if number == 1 else (f"{self.caption} (Continued.)", f"{self.name}:{number}")
            made += [_float(columns, lines, heading, label)] + ["\\clearpage\n"] * (number % _HELD == 0)
        return "\n".join(made)

    def _latex_rows(self, columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
        """A row; one with lists takes a line an entry."""
        cells = [
            [str(entry) for entry in row.get(column.key) or ()] if column.form == "list" else [column.show(row)]
            for column in columns
        ]
        height = max(1, *(len(cell) for cell in cells))
        padded = [cell + [""] * (height - len(cell)) for cell in cells]
        rows = [" & ".join(escape(cell[line]) for cell in padded) + r" \\" for line in range(height)]
        return ["{}" + row if row.startswith(("[", "*")) else row for row in rows]  # after a row's end these are commands


def _pages(rows: Sequence[list[str]]) -> list[list[str]]:
    """The lines of rows, on as few pages as they take in their order, and about as many on each; no row is parted. One page,
    which may be empty, at least."""
    fewest = len(_filled(rows, _TALL))
    height = next(height for height in range(1, _TALL + 1) if len(_filled(rows, height)) == fewest)
    return _filled(rows, height)


def _filled(rows: Sequence[list[str]], height: int) -> list[list[str]]:
    """Pages of at most ``height`` lines, but for rows that are higher by themselves."""
    pages: list[list[str]] = [[]]
    for lines in rows:
        if pages[-1] and len(pages[-1]) + len(lines) > height:
            pages.append([])
        pages[-1].extend(lines)
    return pages


def _float(columns: Sequence[Column], lines: Sequence[str], caption: str, label: str) -> str:
    kind = "table*" if len(columns) > _NARROW else "table"
    rows = [
        rf"\begin{{{kind}}}[tp]",
        r"\centering",
        r"\small",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}",
        r"\toprule",
        " & ".join(escape(column.title) for column in columns) + r" \\",
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\caption{{{escape(caption)}}}",
        rf"\label{{tab:{label}}}",
        rf"\end{{{kind}}}",
    ]
    return "\n".join(rows) + "\n"


def with_ends(value: Any, low: Any, high: Any, form: Form) -> str:
    """A value in words, with the ends of its interval where both are known."""
    text = shown(value, form)
    if low is None or high is None:
        return text
    bare = [shown(end, form).removesuffix(f"{_SPACE}%").removesuffix(f"{_SPACE}s") for end in (low, high)]
    return f"{text} ({bare[0]} to {bare[1]})"


def shown(value: Any, form: Form) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if form == "share":
        return f"{100 * value:.1f}{_SPACE}%"
    if form == "points":
        return f"{100 * value:+.1f}"
    if form == "seconds":
        return f"{value:.3g}{_SPACE}s" if value < 100 else f"{value:,.0f}{_SPACE}s"
    if form == "count":
        return f"{value:,.0f}"
    if form == "number":
        return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
    return ", ".join(map(str, value)) if form == "list" else str(value)


def escape(text: str) -> str:
    known = _LATEX | _SIGNS
    return "".join(known.get(letter, letter) for letter in text.replace("\n", " "))


_FORMULA = re.compile(r"\s*[=+@-](?!\d+(?:\.\d+)?\Z)")


def _plain(value: Any) -> Any:
    """A value as a cell; line ends of other systems become ours, since a bare one would end the row. A text that spreadsheets
    would run as a formula has an apostrophe in front."""
    if isinstance(value, list | tuple):
        value = " | ".join(str(entry) for entry in value)
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if _FORMULA.match(text) else text


FEW = 10  # codebooks with fewer training segments a code than this are marked
FEW_COLUMN = Column("few", "Few segments")
FEW_NOTE = f"Marked as of few segments: codebooks with fewer than {FEW} training segments a code."


def few_mark(segments: int, size: int) -> str:
    return "few" if segments < FEW * size else ""
