"""Whether a run's files are what they were when their stages were finished, and what happens where one is not.

A disk may lose a bit, a copy may break off, a person may edit a file. Every stage's record holds the hashes of its files and
of itself; a run looks before it builds on them. A stage with a damaged file is made again, and what is there of it is kept
under ``RUN/.work/STAGE.damaged``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cirf.errors import CirfError
from cirf.store import Plan, RunFolder

LARGE = 2**26
"""Bytes from which a file is read by a run only if something is to be made of it: hashing many models takes minutes."""


def stands(folder: RunFolder, stage: Plan) -> bool:
    """Whether a stage is done; one with an unreadable record before it, or of its own, is not."""
    try:
        return folder.is_done(stage)
    except CirfError:
        return False


def set_damaged_aside(
    folder: RunFolder, stages: Sequence[Plan], say: Callable[[str], None], largest: int | None = LARGE
) -> list[str]:
    """Take stages with damaged files out of their places, so that they are made again, and say so; their names.

    What servers were asked for lies in a log of its own (`RUN/asked/`), from which such a stage is made again.
    """
    found = []
    for stage in stages:
        if files := folder.damaged(stage.name, largest):
            told, aside = damage(folder, stage.name, files), folder.set_aside(stage.name)
            say(f"{stage.name}: {told}; made again, and what is there is kept in {aside}")
            found.append(stage.name)
    return found


def read_by(stage: Plan) -> list[Plan]:
    """The stages that a stage is made of."""
    return list({part.plan.name: part.plan for part in stage.parts.values()}.values())


def damage(folder: RunFolder, name: str, files: Sequence[str]) -> str:
    """The first of a stage's damaged files, and how many more there are."""
    more = f" (and {len(files) - 1} more of this stage)" if len(files) > 1 else ""
    return f"{folder.folder(name) / files[0]}{more}: gone, or not as it was written"
