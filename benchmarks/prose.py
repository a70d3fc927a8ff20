"""Measure the style of pages of the documentation: words, numbers, mean sentence length, and phrases to avoid.

    python -m benchmarks.prose [FILE ...]        default: README.md and all of docs/

Code blocks, comments and link targets do not count; inline code is one word. Tables count as words and numbers, not as sentences.
The exit code is 1 if a page contains a phrase of `BANNED`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = (
    r"\bnot told (from|above|below)\b",
    r"\bt(ell|old) (them )?apart\b",
    r"\bh[eo]ld (it )?against\b",
    r"\bforet(ell|old)\b",
    r"\bit is asked\b",
    r"\bis asked of\b",
    r"\bstands? (beside|there|here|it that)\b",
    r"\bit stands\b(?! for)",
    r"\blies? (beside|there|here)\b",
    r"\bbeside\b",
    r"\bone's own\b",
    r"\b(costs?|gives?) is open\b",
    r"\binside the noise\b",
    r"\bin the mean\b",
    r"\bwhat thinks\b",
    r"\bwhat came of it\b",
    r"\bas ever\b",
    r"\banew\b",
)
"""Phrases that are not standard English of the field."""
_PHRASE = re.compile("|".join(BANNED), re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.\-/])\d[\d,.]*(?![\w/])")
_WORD = re.compile(r"[^\W_]", re.UNICODE)


@dataclass(frozen=True)
class Prose:
    """Numbers of words and numbers, the sentences, and the phrases to avoid."""

    words: int
    numbers: int
    sentences: tuple[str, ...]
    banned: tuple[str, ...]

    @property
    def sentence_length(self) -> float:
        """The mean number of words of a sentence; 0 if there is none."""
        return sum(map(count_words, self.sentences)) / len(self.sentences) if self.sentences else 0.0


def count_words(text: str) -> int:
    """Number of words: pieces between blanks with a letter or a digit."""
    return sum(bool(_WORD.search(piece)) for piece in text.split())


def banned(text: str) -> tuple[str, ...]:
    """The phrases to avoid in a text."""
    return tuple(found[0] for found in _PHRASE.finditer(" ".join(text.split())))


def read(markdown: str) -> Prose:
    """The measures of a page of Markdown."""
    text = (
        re.sub(r"^---\n.*?^---\n", "", markdown, count=1, flags=re.DOTALL | re.MULTILINE)
        if markdown.startswith("---")
        else markdown
    )
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    words, phrases = re.sub(r"`[^`\n]*`", " code ", text), text
    table = [line for line in words.splitlines() if line.lstrip().startswith("|")]
    plain = "\n".join("" if line.lstrip().startswith(("|", "#", "!!!", "???", ":::")) else line for line in words.splitlines())
    return Prose(
        words=count_words(words.replace("|", " ")),
        numbers=len(_NUMBER.findall("\n".join([plain, *table]))),
        sentences=tuple(_sentences(plain)),
        banned=banned(phrases),
    )


def _sentences(plain: str) -> list[str]:
    """The sentences of paragraphs and list items, also those without a full stop."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", plain)
    found = []
    for block in blocks:
        text = " ".join(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", block).split()).replace("**", "").replace("*", "")
        found += [piece for piece in re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'(]|code\b)", text) if count_words(piece)]
    return found


def pages() -> list[Path]:
    """README.md and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    """Print a line a page; exit code 1 if a page has a phrase to avoid."""
    bad = False
    for page in [Path(name) for name in sys.argv[1:]] or pages():
        prose = read(page.read_text(encoding="utf-8"))
        bad = bad or bool(prose.banned)
        name = page.resolve().relative_to(ROOT) if page.resolve().is_relative_to(ROOT) else page
        summary = f"  avoid: {', '.join(sorted(set(prose.banned)))}" if prose.banned else ""
        print(f"{name!s:36} {prose.words:6} words {prose.numbers:5} numbers {prose.sentence_length:5.1f} a sentence{summary}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
