"""Checks that a run's files are unchanged since their stages were finished, and repairs.

A disk may lose a bit, a copy may break off, a person may edit a file. Every stage's record holds the hashes of its files and
of itself; a run checks them before use. A stage with a damaged file is made again, and its old folder is kept under
``RUN/.work/STAGE.damaged``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.store.files import hash_file
from cirf.store.run_folder import RunFolder, StagePlan

LARGE = 2**26
"""Bytes from which a run checks a file only if a stage reads it: hashing many models takes minutes."""
_TRAINED = ("models", "trials")
_MODEL = (".safetensors", "tokenizer.json")


def is_intact(folder: RunFolder, stage: StagePlan) -> bool:
    """Whether a stage is done; false if its record or an earlier one is unreadable."""
    try:
        return folder.is_done(stage)
    except CirfError:
        return False


def set_damaged_aside(
    folder: RunFolder, stages: Sequence[StagePlan], say: Callable[[str], None], largest: int | None = LARGE
) -> list[str]:
    """Move stages with damaged files away, so that they are made again, and say so; returns their names. Servers' answers are in
    a separate log (`RUN/asked/`), from which such a stage is made again."""
    found = []
    for stage in stages:
        if files := folder.damaged(stage.name, largest):
            reason, aside = damage(folder, stage.name, files), folder.set_aside(stage.name)
            say(f"{stage.name}: {reason}; made again; the old folder is kept in {aside}")
            found.append(stage.name)
    return found


def check_model(folder: Path, progress: Progress = SILENT) -> None:
    """``CirfError`` where the weights or the tokenizer in a model's folder are not as the record in it says.

    Its other files are texts, which a person may edit before a model is published. The folder may be a copy without some of its
    files. Without a record nothing is known, and nothing checked.
    """
    hashes = (RunFolder(folder.parent).manifest(folder.name) or {}).get("files", {})
    there = [name for name in hashes if name.endswith(_MODEL) and ".." not in Path(name).parts and (folder / name).is_file()]
    with progress.task("checking", len(there), "files") as advance:
        for name in there:
            if hash_file(folder / name) != hashes[name]:
                raise CirfError(f"{folder / name}: not as it was written; `cirf run` makes it again, or copy the folder again")
            advance(1)


def check_results(folder: RunFolder) -> None:
    """``CirfError`` where a file of a run's results is not as it was written: reports depend on them. Files over `LARGE` bytes
    are not read, nor models, whose texts a person may edit."""
    for name in finished(folder):
        if name.partition("/")[0] not in _TRAINED and (files := folder.damaged(name, LARGE)):
            again = f"`cirf run {folder.root / 'recipe.yaml'} --out {folder.root}` makes the stage again"
            raise CirfError(f"{damage(folder, name, files)}; {again}")


def finished(folder: RunFolder) -> list[str]:
    """Every finished stage of a folder, by name; without those of evaluations inside it, which are separate runs."""
    there = sorted(path.parent.relative_to(folder.root) for path in folder.root.rglob("stage.json"))
    own = [path for path in there if path.parts and not path.parts[0].startswith(".") and path.parts[0] != "evaluations"]
    return [path.as_posix() for path in own]


def read_by(stage: StagePlan) -> list[StagePlan]:
    return list({part.plan.name: part.plan for part in stage.parts.values()}.values())


def damage(folder: RunFolder, name: str, files: Sequence[str]) -> str:
    """The first of a stage's damaged files, and how many more there are."""
    more = f" (and {len(files) - 1} more of this stage)" if len(files) > 1 else ""
    return f"{folder.folder(name) / files[0]}{more}: missing or changed"
