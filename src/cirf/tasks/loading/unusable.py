"""Rows that cannot be used: dropped, counted and listed up to a share of their file, above which a run stops.

A worked example, of the log of a run::

    mine.jsonl: 3 of 500 rows cannot be used and are dropped: answer is empty (2: lines 4, 17), not valid JSON (1: line 90)
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cirf.errors import CirfError
from cirf.records import Record
from cirf.store.jsonl import Refused, RowError, by_reason

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class UnusableRow(Record):
    """An unusable row: its file and line, the stage that dropped it, and why (``reason`` is said alike of
    all rows with the same mistake, ``message`` of this one)."""

    file: str
    line: int
    stage: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The rows of one file that cannot be used; ``rows``: all rows of the file; ``file``: its name in lists.
    ``published``: they are malformed in a published benchmark, which stops no run."""

    file: str
    rows: int
    errors: tuple[RowError, ...]
    published: bool = False

    @property
    def share(self) -> float:
        """Of the file's rows, 0 to 1."""
        return len(self.errors) / self.rows

    @property
    def _of(self) -> str:
        return f"{len(self.errors):,} of {self.rows:,} {'row' if self.rows == 1 else 'rows'}"

    def stops(self, allowed: float) -> bool:
        """Whether a run that allows this share of each file stops; also if no row is left."""
        return self.share == 1 or (self.share > allowed and not self.published)

    @property
    def counts(self) -> str:
        """The reasons, the most frequent first, each with its number of rows and the lines of the first few."""
        return ", ".join(
            f"{reason} ({row['rows']:,}: {_places(row['first'], row['rows'])})" for reason, row in by_reason(self.errors).items()
        )

    @property
    def dropped(self) -> str:
        """A line for the log of a run that continues without them."""
        verb = "is" if len(self.errors) == 1 else "are"
        return f"{self.file}: {self._of} cannot be used and {verb} dropped: {self.counts}"

    def predicted(self, allowed: float) -> str:
        """As ``dropped``, with the effect on a run that allows this share of each file."""
        why = f", since problems.max_unusable_share is {allowed:g}" if self.share < 1 else ""
        does = f"stops{why}" if self.stops(allowed) else "drops them and continues"
        return f"{self.file}: {self._of} ({_percent(self.share)}) cannot be used: {self.counts}; `cirf run` {does}"

    def too_many(self, allowed: float) -> CirfError:
        """The error of a run that allows only this share."""
        first = min(self.errors, key=lambda error: error.line)
        if self.share == 1:
            said = first.message.removeprefix(f"{first.reason}; ")[:_LONGEST]
            more = f"; {first.place}: {said}" if said != first.reason else ""
            return CirfError(f"{first.file}: no usable row: {self.counts}{more}")
        what = first.message.partition("; ")[0]  # without its own advice
        more = f"; {first.place}: {what[:_LONGEST]}" if what != first.reason else ""
        return CirfError(
            f"{first.file}: {self._of} ({_percent(self.share)}) cannot be used, more than "
            f"problems.max_unusable_share: {allowed:g} allows: {self.counts}{more}; "
            f"fix {'it' if len(self.errors) == 1 else 'them'}, or raise problems.max_unusable_share"
        )

    def to_dict(self) -> dict[str, Any]:
        reasons = {
            reason: {"rows": row["rows"], "first": [int(place.rpartition(" ")[2]) for place in row["first"]]}
            for reason, row in by_reason(self.errors).items()
        }
        counts = {"rows": self.rows, "unusable": len(self.errors), "reasons": reasons}
        return {"file": self.file, **counts, "summary": self.counts}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Which share of a file's rows may be unusable. A run drops up to that share and stops above it, or at the first for 0;
    ``looking`` collects them all. ``files``: those with unusable rows."""

    allowed: float
    looking: bool = False
    files: list[Unusable] = field(default_factory=list)

    def begin(self) -> Refused | None:
        """The list for a reader's unusable rows; ``None``: raise the first."""
        return [] if self.allowed or self.looking else None

    def settle(self, file: str, usable: int, refused: Refused | None, published: bool = False) -> None:
        """Record a file: ``CirfError`` if more of its rows than allowed were refused, or all; for ``published`` ones only if
        all."""
        if not refused:
            return
        found = Unusable(file, usable + len(refused), tuple(refused), published)
        self.files.append(found)
        if found.stops(self.allowed) and not self.looking:
            raise found.too_many(self.allowed)

    @property
    def reasons(self) -> Counter[str]:
        """How many rows of all files cannot be used for which reason."""
        return Counter(error.reason for file in self.files for error in file.errors)

    @property
    def report(self) -> dict[str, Any]:
        """Their part of a stage's report; empty if there are none."""
        return {"unusable": [file.to_dict() for file in self.files]} if self.files else {}


def listed(files: Sequence[Unusable], stage: str) -> list[UnusableRow]:
    """A record for each row that cannot be used, in the order of the files and their lines."""
    return [
        UnusableRow(file.file, row.line, stage, row.reason, row.message[:_LONGEST])
        for file in files
        for row in sorted(file.errors, key=lambda error: error.line)
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _places(where: Sequence[str], count: int) -> str:
    """``lines 4, 17, 90, ...`` from the places of the first few of ``count`` rows."""
    word, numbers = where[0].rpartition(", ")[2].split(" ")[0], [place.rpartition(" ")[2] for place in where]
    return f"{word}{'s' if count > 1 else ''} {', '.join(numbers)}{', ...' if count > len(numbers) else ''}"
