"""A resumable measurement of several methods that take turns.

Every timed turn is a row in a separate log as soon as it is over::

    {"facts": {"engine": "transformers 5.23.0", ...}}                 the first line: the setup of these times
    {"discarded": 12}                                                 number of earlier rows with other facts, if any
    {"load": {"together": true, "models": 3, ...}}                    an attempt begins
    {"method": "cot", "task": "svamp", "id": "svamp/test/3", "tokens": 131, "seconds": 2.41, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cirf.errors import CirfError
from cirf.evaluation.timing.schedule import blocks
from cirf.progress import Progress
from cirf.store.files import RowLog

Row = dict[str, Any]
Piece = tuple[Any, ...]
"""The piece of work of a turn, by its values in the rows, such as task and id."""


class TimedOutput(Protocol):
    """One answer: generated tokens with the end token, seconds end to end, and until the first token (if known)."""

    @property
    def tokens(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def first_token_seconds(self) -> float | None: ...


class Engine(Protocol):
    """What generates: the models of several methods, all at once or some at a time."""

    @property
    def groups(self) -> Sequence[Sequence[str]]:
        """The methods, grouped by checkpoint."""
        ...

    @property
    def together(self) -> bool:
        """Whether all models are held in memory at once."""
        ...

    def facts(self) -> Row:
        """Engine, versions, device, threads and number format: the setup of a time."""
        ...

    def loading(self) -> Row:
        """How the models are held, for the record."""
        ...

    def load(self, methods: Sequence[str]) -> None:
        """Have these methods' models in memory."""
        ...

    def render(self, method: str, prompt: str) -> str:
        """The chat template around a user's turn."""
        ...

    def one(self, method: str, prompt: str, cap: int, run: int = 0) -> TimedOutput:
        """One answer at batch 1; another ``run`` draws another one."""
        ...

    def memory(self, method: str) -> Row:
        """``weights_bytes`` of a method's model, and ``growth_bytes``: the most that the last answer took on top of what was
        allocated before (null if the device does not report it)."""
        ...


class Taken(NamedTuple):
    """The rows in the order of the schedule, how the models were held in each life, and how many rows of another engine or
    machine were thrown away."""

    rows: list[Row]
    loads: list[Row]
    discarded: int


class Pieces(NamedTuple):
    """What is answered: what the values of a piece are called in the rows, the pieces that are timed, and those that each method
    answers, uncounted, whenever models were loaded."""

    names: Sequence[str]
    timed: Sequence[Piece]
    warmups: Sequence[Piece]


def take_turns(
    engine: Engine,
    pieces: Pieces,
    answer: Callable[[str, Piece], Row],
    seed: int,
    log: Path | None,
    progress: Progress,
    label: str,
) -> Taken:
    """Every method on every piece, in the order of `schedule.blocks`.

    Args:
        engine: holds the models.
        pieces: what to answer.
        answer: one turn; the row of it holds ``seconds``.
        seed: of the order of the methods.
        log: file that keeps the rows; what it holds of the same facts is not done again. ``None``: nothing is kept.
        progress: a bar named ``label``.

    Raises:
        CirfError: a turn took no time.
    """
    kept = _Log(log, engine.facts(), pieces.names)
    plan = blocks(engine.groups, pieces.timed, seed, engine.together)
    total = sum(len(block.turns) for block in plan)
    known = sum((name, piece) in kept.rows for block in plan for piece, name in block.turns)
    if known < total:
        kept.add({"load": engine.loading()})
    with progress.task(label, total, "answers", known) as advance:
        for block in plan:
            left = [(piece, name) for piece, name in block.turns if (name, piece) not in kept.rows]
            if not left:
                continue
            engine.load(block.methods)
            waiting = [name for name in block.methods if any(name == other for _, other in left)]
            for piece in pieces.warmups:
                for name in waiting:
                    answer(name, piece)
            for piece, name in left:
                row = answer(name, piece)
                if row["seconds"] <= 0:
                    raise CirfError(f"{name}, {', '.join(map(str, piece))}: the engine reports {row['seconds']} s for an answer")
                kept.add({"method": name, **dict(zip(pieces.names, piece, strict=True)), **row})
                advance(1)
    return Taken([kept.rows[name, piece] for block in plan for piece, name in block.turns], kept.loads, kept.discarded)


class _Log:
    """The rows so far, in memory and where they survive a kill. Rows that another engine or machine left are thrown away:
    a mean over two machines is a time of neither."""

    def __init__(self, path: Path | None, facts: Mapping[str, Any], names: Sequence[str]) -> None:
        self.names = names
        self.rows: dict[tuple[str, Piece], Row] = {}
        self.loads: list[Row] = []
        self.discarded = 0
        self.file = None if path is None else RowLog(path)
        if self.file is None or path is None:
            return
        before = self.file.rows()
        if before[:1] != [{"facts": dict(facts)}]:
            path.unlink(missing_ok=True)
            self.file = RowLog(path)
            self.file.append({"facts": dict(facts)})
            others = sum("method" in row for row in before) + sum(row.get("discarded", 0) for row in before)
            if others:  # on disk, since an interrupted attempt cannot report it
                self.file.append({"discarded": others})
            before = self.file.rows()
        self.file.read(self._note)

    def add(self, row: Row) -> None:
        """Keep one more row."""
        if self.file is not None:
            self.file.append(row)
        self._note(row)

    def _note(self, row: Row) -> None:
        if "facts" in row:
            return
        if "load" in row:
            self.loads.append(row["load"])
        elif "discarded" in row:
            self.discarded = row["discarded"]
        else:
            float(row["seconds"])
            self.rows[row["method"], tuple(row[name] for name in self.names)] = row
