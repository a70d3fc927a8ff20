"""What is installed with cirf: every version pinned, the oldest ones as constraints, every licence known. Every link of the
documentation leads somewhere: to a file that exists, and to a heading of it.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from benchmarks import licences, oldest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PINS = licences.pins(ROOT / "constraints.txt")
OPEN = {"cuda-bindings"}  # constraints.txt says why
EXTRAS = ("serve", "lm-eval", "dev", "docs")
OSI = "License :: OSI Approved ::"


def test_what_is_installed_is_pinned_with_all_that_it_asks_for() -> None:
    """Looks at the distributions that are here in their pinned version, so that it holds in any environment."""
    missing = set()
    for name, extras in licences.closure("cirf", EXTRAS).items():
        if name == "cirf" or metadata.version(name).split("+")[0] == PINS.get(name):
            for asked in licences.requirements(name, extras):
                fixed = any(one.operator == "==" for one in asked.specifier)
                if not fixed and canonicalize_name(asked.name) not in PINS.keys() | OPEN:
                    missing.add(f"{asked.name} (of {name})")
    assert not missing, "add them to constraints.txt, each with the version that is tested"


def test_every_pin_is_one_that_the_project_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(line) for line in [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]]
    wrong = [str(each) for each in asked if not each.specifier.contains(PINS[canonicalize_name(each.name)])]
    assert not wrong


def test_the_oldest_versions_are_the_lower_bounds(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    build = '[build-system]\nrequires = ["hatchling>=1.27"]\n'
    table = '[project]\ndependencies = ["numpy>=2.2", "math-verify[antlr4]>=0.8", "torch>=2"]\noptional-dependencies.dev = '
    file.write_text(build + table + '["pytest>=9"]\n')
    assert oldest.lowest(file) == {"numpy": "2.2", "math-verify": "0.8", "pytest": "9", "hatchling": "1.27"}
    file.write_text(build + table + '["pytest>=9,<10"]\n')
    with pytest.raises(ValueError, match=r"pytest>=9,<10' is not a lower bound alone"):
        oldest.lowest(file)
    shipped = oldest.lowest()
    assert "transformers" in shipped and "hatchling" in shipped and "torch" not in shipped


@pytest.mark.parametrize(
    ("summary", "licence"),
    [
        ({"License-Expression": "mit", "License": "GPL-3.0-only"}, "MIT"),
        ({"License": "Apache License 2.0", "Classifier": ["License :: OSI Approved :: MIT License"]}, "Apache-2.0"),
        ({"License": "Copyright (c) 2015\nAll rights", "Classifier": ["License :: OSI Approved :: BSD License"]}, "BSD"),
        ({"License": "The MIT License (MIT)\n\nCopyright (c) 2016"}, "MIT"),
        ({"Classifier": ["License :: OSI Approved :: MIT License", "Topic :: Text"]}, "MIT"),
        ({"License": "see the file", "Classifier": ["Topic :: Text"]}, "unknown"),
        ({"License": "MIT OR ISC", "Classifier": [f"{OSI} MIT License", f"{OSI} ISC License (ISCL)"]}, "MIT OR ISC"),
        ({"Classifier": [f"{OSI} MIT License", f"{OSI} GNU General Public License v3 (GPLv3)"]}, "unknown"),
        ({"Classifier": [f"{OSI} MIT License", f"{OSI} GNU Lesser General Public License v3 (LGPLv3)"]}, "MIT AND LGPL-3.0-only"),
        ({"Classifier": [f"{OSI} MIT License", "License :: Other/Proprietary License"]}, "unknown"),
        ({"License": "GPLv3", "Classifier": [f"{OSI} BSD License"]}, "unknown"),
        ({"License": "GNU General Public License\nVersion 3", "Classifier": [f"{OSI} BSD License"]}, "unknown"),
        ({"License": "MIT", "Classifier": [f"{OSI} GNU Lesser General Public License v3 (LGPLv3)"]}, "MIT AND LGPL-3.0-only"),
        ({"License": "MIT", "Classifier": [f"{OSI} GNU Affero General Public License v3"]}, "unknown"),
        ({"License-Expression": "LicenseRef-Commercial AND Foo-9", "License": "MIT"}, "unknown"),
        ({"License": "UNKNOWN", "Classifier": ["License :: OSI Approved", f"{OSI} MIT License"]}, "MIT"),
        ({}, "unknown"),
    ],
)
def test_a_licence_is_read_from_any_source(summary: dict[str, str | list[str]], licence: str) -> None:
    message = Message()
    for key, value in summary.items():
        for each in [value] if isinstance(value, str) else value:
            message[key] = each
    assert licences.licence_of(message) == licence


@pytest.mark.parametrize(
    ("name", "licence", "allowed"),
    [
        ("any", "MIT", True),
        ("any", "GPL-3.0-only", False),
        ("any", "AGPL-3.0-or-later", False),
        ("any", "LGPL-2.1-or-later", False),
        ("any", "unknown", False),
        ("any", "MIT AND GPL-2.0-only", False),
        ("any", "MIT OR GPL-2.0-only", True),
        ("any", "GPL-2.0-only OR MIT AND Zlib", True),
        ("any", "(MIT OR GPL-2.0-only) AND Zlib", False),
        ("chardet", "LGPL-2.1-or-later", True),
        ("chardet", "GPL-3.0-only", False),
    ],
)
def test_a_licence_needs_a_place_in_the_list(name: str, licence: str, allowed: bool) -> None:
    assert bool(licences.why_allowed(name, licence)) is allowed


def test_the_page_of_licences_lists_every_pinned_version() -> None:
    rows = re.findall(r"^\| ([\w.-]+) \| (\S+) \| .*\|$", (ROOT / "docs" / "reference" / "licences.md").read_text(), re.MULTILINE)
    cpu = {name: version for name, version in PINS.items() if not name.startswith(("cuda-", "nvidia-"))}
    assert dict(rows[1:]) == cpu, "run `make licences` with torch's build for CPUs"


ROOT_LINKS = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT_LINKS.glob("*.md"), *(ROOT_LINKS / "docs").rglob("*.md"), *(ROOT_LINKS / "results").glob("*.md")])
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as code hosts make them."""
    found: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found[re.sub(r"[^\w\- ]", "", words).replace(" ", "-")] += 1
    return {name if turn == 0 else f"{name}-{turn}" for name, times in found.items() for turn in range(times)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT_LINKS)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", prose(page))):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, fragment = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: no such file"
        if fragment and file.suffix == ".md":
            assert fragment in anchors(file), f"{target}: no such heading"
