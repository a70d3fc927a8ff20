"""``analyze``: the paper's tables and figures, and more, from a run or a sweep."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError, get, names
from cirf.analysis.groups import distinct
from cirf.analysis.source import Run, Source
from cirf.commands.show import up_to_date
from cirf.errors import CirfError
from cirf.export import archive
from cirf.export.archive import is_archive, read, readable
from cirf.pictures.canvas import themed
from cirf.pictures.style import every_style
from cirf.progress import write_line
from cirf.recipe.load import open_run
from cirf.report.data.collect import collect
from cirf.report.page import dark_colours
from cirf.report.templates import read_script, script_hash, template, variable
from cirf.store.files import parse_json, to_json, write_atomic
from cirf.store.integrity import check_results
from cirf.store.run_folder import RunFolder

_CODE = re.compile(r"`([^`\s](?:[^`]*[^`\s])?)`")
_LONG = 18  # characters of a word, such as a run's name, that would make a column wider than a phone's screen
_HALF = 400  # points; pictures up to this width are two in a row
_FILTERED = 8  # rows from which on a table has a filter


def render_analyses(summary: Mapping[str, Any], found: Mapping[str, AnalysisResult]) -> str:
    """The page's HTML. ``summary`` is the content of ``analysis.json``, ``found`` the analyses by name, for tables and pictures.
    The same data gives the same bytes; it loads nothing."""
    from markupsafe import Markup

    colours = {one.colour: variable(one.colour) for one in every_style()}
    pictures = {
        name: [(Markup(themed(svg, colours)), _wide(svg)) for svg in made.pictures.values()] for name, made in found.items()
    }
    script = read_script("common.js")
    return template("analyses.html.j2").render(
        summary=summary,
        script=Markup(script),
        script_hash=Markup(script_hash(script)),
        filtered=_FILTERED,
        found=found,
        pictures=pictures,
        dark_colours=Markup(dark_colours()),
        coded=in_code,
        has_long_word=lambda text: any(len(word) > _LONG for word in text.split()),
    )


def in_code(text: str) -> Any:
    """A text for HTML, escaped, with text in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _wide(svg: str) -> bool:
    view = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ', svg)
    return view is not None and float(view[1]) > _HALF


FOLDER = "analysis"
_SWEEP = "sweep.json"


def show_analyses(as_json: bool) -> None:
    """List the analyses: name, place in the paper, what the runs must hold."""
    rows = [get(name) for name in names()]
    if as_json:
        fields = ("name", "title", "summary", "needs", "paper")
        print(json.dumps([{field: getattr(row, field) for field in fields} for row in rows], indent=2))
        return
    for row in rows:
        print(f"{row.name}\n    {row.summary}\n    needs: {row.needs}\n    paper: {row.paper or 'not in it'}")


def analyze(folder: Path, asked: Sequence[str], paper: bool, as_json: bool) -> None:
    """Make the analyses (all that the runs allow, if none is named) and write them below ``folder/analysis``.

    Files: ``analysis.json`` and ``index.html`` of all, and a folder an analysis with its tables as CSV and LaTeX and its
    pictures as SVG. Existing ones are replaced; if all are made, folders of those that can no longer be made are removed. One
    that fails is left out with its reason. ``CirfError`` if the folder is no run and no sweep, if one that was named cannot be
    made, or if none can.
    """
    source = Source(open_runs(folder), paper)
    with readable(folder):
        found, lacking = _found(folder, source, asked)
    if not found:
        raise CirfError(f"{folder}: it holds nothing to analyse: {next(iter(lacking.values()))}")
    out = folder / FOLDER
    for path in (out, *(out / name for name in names())):
        if path.is_symlink():
            raise CirfError(f"{path}: a symbolic link, and tables are written there; remove the link")
    for name in () if asked else names():
        if name not in found and (out / name).is_dir():
            shutil.rmtree(out / name)
    for name, (_, made) in found.items():
        _write(out / name, made)
    details = _summary(folder, source, found, lacking)
    write_atomic(out / "analysis.json", to_json(details))
    write_atomic(out / "index.html", render_analyses(details, {name: made for name, (_, made) in found.items()}))
    if as_json:
        sys.stdout.write(to_json(details))
        return
    for name, (_, made) in found.items():
        print(f"{name}: {_counted(made)}")
    for line in details["warnings"]:
        write_line(line)
    for name, why in lacking.items():
        write_line(f"{name}: left out: {why}")
    print(f"analysis: {out / 'index.html'}")


def _found(
    folder: Path, source: Source, asked: Sequence[str]
) -> tuple[dict[str, tuple[Analysis, AnalysisResult]], dict[str, str]]:
    """The analyses that can be made, and why the others cannot. ``CirfError`` for one that was ``asked`` for."""
    found: dict[str, tuple[Analysis, AnalysisResult]] = {}
    lacking: dict[str, str] = {}
    for analysis in [get(name) for name in dict.fromkeys(asked)] or [get(name) for name in names()]:
        try:
            found[analysis.name] = (analysis, analysis.make(source))
        except MissingInputError as error:
            if asked:
                raise CirfError(f"{folder}: {analysis.name}: {error}") from None
            lacking[analysis.name] = str(error)
        except CirfError as error:
            if asked:
                raise CirfError(f"{analysis.name}: {error}") from error
            lacking[analysis.name] = str(error)
    return found, lacking


def open_runs(folder: Path) -> list[Run]:
    """The run in a folder, or those of a sweep that are there, or of an archive; ``CirfError`` if it is none of them."""
    if is_archive(folder):
        return [*read(folder)]
    if not (folder / _SWEEP).is_file():
        return [open_run_of(folder)]
    there = [point for point in _points(folder / _SWEEP) if (folder / point["run"] / "recipe.yaml").is_file()]
    if not there:
        raise CirfError(f"{folder}: no run of the sweep is there yet; `cirf sweep` makes them")
    return [
        open_run_of(folder / point["run"], name=point["run"], part=point["part"], settings=point["settings"]) for point in there
    ]


def _points(path: Path) -> list[dict[str, Any]]:
    """The points of a sweep's record; ``CirfError`` if it is none."""
    kinds = {"run": str, "part": str, "settings": dict}
    try:
        points = parse_json(path.read_text(encoding="utf-8"))["points"]
        if all(isinstance(point[key], kind) for point in points for key, kind in kinds.items()):
            return list(points)
    except (ValueError, KeyError, TypeError):
        pass
    raise CirfError(
        f"{path}: not the record of a sweep: it must list `points`, each with run, part and settings; `cirf sweep` rewrites it"
    )


def open_run_of(folder: Path, **about: Any) -> Run:
    """One run's folder, or a run of an archive; ``about`` is what `Run` takes besides."""
    if archived := archive.find(folder):
        return archived
    open_run(folder)
    check_results(RunFolder(folder))
    stages = up_to_date(folder)
    warning = ""
    if stages is not None and not stages:
        stages = None
        warning = "none of its stages is up to date, as after an update of this software: the existing stages are shown"
    return Run(folder, lambda: collect(folder, stages=stages), stages, warning=warning, **about)


def _write(folder: Path, made: AnalysisResult) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for table in made.tables:
        write_atomic(folder / f"{table.name}.csv", table.to_csv())
        write_atomic(folder / f"{table.name}.tex", table.to_latex())
    for name, svg in made.pictures.items():
        write_atomic(folder / f"{name}.svg", svg + "\n")


def _summary(
    folder: Path, source: Source, found: Mapping[str, tuple[Analysis, AnalysisResult]], lacking: Mapping[str, str]
) -> dict[str, Any]:
    """The summary as JSON. A run counts once, however many parts of a sweep name it."""
    runs = distinct(source.runs)
    return {
        "name": str(source.single.key("name")) if len(runs) == 1 else folder.resolve().name,
        "runs": [run.name for run in runs],
        "reports": {run.name: _link(page, folder) for run in runs if (page := run.folder / "report.html").is_file()},
        "paper": source.paper,
        "analyses": {
            name: {"title": row.title, "summary": row.summary, "paper": row.paper, **made.to_dict()}
            for name, (row, made) in found.items()
        },
        "left_out": dict(lacking),
        "warnings": [f"{run.name}: {run.warning}" for run in runs if run.warning],
    }


def _link(page: Path, folder: Path) -> str:
    """A page's relative address for the page of analyses, so that both can be moved together."""
    return quote(Path(os.path.relpath(page, folder / FOLDER)).as_posix())


def _counted(made: AnalysisResult) -> str:
    rows = sum(len(table.rows) for table in made.tables)
    parts = [f"{rows} row{'s' if rows != 1 else ''}"]
    if made.pictures:
        parts.append(f"{len(made.pictures)} picture{'s' if len(made.pictures) != 1 else ''}")
    return ", ".join(parts)
