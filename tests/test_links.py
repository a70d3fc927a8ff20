"""Every link of the documentation leads somewhere: to a file that exists, and to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").glob("*.md")])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as code hosts make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(f"{name}-{sum(each == name for each in found)}" if name in found else name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", prose(page))):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: no such file"
        if fragment and file.suffix == ".md":
            assert fragment in anchors(file), f"{target}: no such heading"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, left = set[Path](), [ROOT / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in reached:
            continue
        reached.add(page)
        targets = [target.partition("#")[0] for target in LINK.findall(CODE.sub("", prose(page))) if "://" not in target]
        left += [page.parent / target for target in targets if target.endswith(".md")]
    assert not set((ROOT / "docs").rglob("*.md")) - reached
