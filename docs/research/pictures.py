"""A picture of accuracy against generated tokens, as in the documentation: the means of the tasks trained on, or of the others.

    python -m docs.research.pictures RUN FILE.svg [--domain in|out] [--without METHOD ...] [--named METHOD ...]

RUN is a run or its archive. ``--named``: the methods to name, in place of those on the front.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cirf.analysis.pareto import domain_points, mark_fronts, on_same_questions, picture
from cirf.analysis.tradeoff import WIDE
from cirf.commands.analyze import open_run_of
from cirf.store.files import write_atomic


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--domain", choices=("in", "out"), default="in")
    parser.add_argument("--without", nargs="+", default=[], metavar="METHOD")
    parser.add_argument("--named", nargs="+", default=[], metavar="METHOD")
    asked = parser.parse_args(arguments)
    found = domain_points(open_run_of(asked.run), asked.domain)
    points, _ = on_same_questions([point for point in found if point["kind"] not in asked.without and point["tokens"]])
    mark_fronts(points)
    svg = picture(points, "", "tokens", size=WIDE, named=asked.named)
    write_atomic(asked.file, svg.replace("<svg", '<svg style="background:#fff"', 1) + "\n")


if __name__ == "__main__":
    main()
