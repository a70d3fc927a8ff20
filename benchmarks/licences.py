"""Check the licence of every installed distribution against the allowed ones, each with a reason.

    python -m benchmarks.licences [--write docs/reference/licences.md]

Lists what cirf requires and what its extras ``serve``, ``lm-eval``, ``dev`` and ``docs`` add, as far as it is installed here. A
licence is taken from the metadata: ``License-Expression``, else ``License``, else the classifiers. The exit code is 1 if a
licence is not in `ALLOWED` and its distribution not in `KNOWN`. Add it there with a reason, or do without the distribution.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("serve", "lm-eval", "dev", "docs")
_PERMISSIVE = "permissive: its notice must stay"
_FREE = ["0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"]
_FREE += ["CNRI-Python", "ISC", "MIT", "MIT-CMU", "PSF-2.0", "Zlib"]
ALLOWED = dict.fromkeys(_FREE, _PERMISSIVE) | {
    "MPL-2.0": "copyleft of its own files alone; they are imported as they are, and cirf holds no copy",
    "LicenseRef-NVIDIA-Proprietary": "CUDA's libraries, which torch's build for NVIDIA GPUs brings under terms of their own;"
    " cirf holds no copy",
}
"""Why a licence is allowed."""
_ANY = "License :: OSI Approved"
"""A classifier without the name of a licence."""
KNOWN = {
    "chardet": ("LGPL-2.1-or-later", "imported as it is by what `lm-eval` prints tables with; cirf holds no copy"),
    "cuda-toolkit": ("unknown", "holds no code: it names NVIDIA's libraries by version"),
    "docutils": ("unknown", "public domain, with parts under BSD licences; its editor mode under the GPL is not in the wheel"),
    "dominate": ("LGPL-3.0-or-later", "imported as it is by what `lm-eval` prints tables with; cirf holds no copy"),
}
"""Distributions whose licence is not generally allowed or not stated: the licence, and why it may be installed."""
_SPELT = {
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD",
    "bsd license": "BSD",
    "bsd 3-clause license": "BSD-3-Clause",
    "gnu lesser general public license v2 or later (lgplv2+)": "LGPL-2.1-or-later",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgpl-3.0-or-newer": "LGPL-3.0-or-later",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "nvidia proprietary software": "LicenseRef-NVIDIA-Proprietary",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
}  # spellings in metadata, in lower case, and their SPDX names

_PIN = re.compile(r"([\w.-]+)==(\S+)")


@dataclass(frozen=True)
class Entry:
    """A distribution: its name, version and licence, what asks for it, and why it is allowed (``None``: it is not)."""

    name: str
    version: str
    licence: str
    needed_by: str
    reason: str | None


def licence_of(summary: Message | Any) -> str:
    """The licence in the metadata as an SPDX expression, or ``unknown``.

    Anything that cannot be parsed makes the result ``unknown``, so that no other licence passes. The exception is the full
    text of a licence in ``License``. Several classifiers are joined by AND.
    """
    if expression := summary.get("License-Expression"):
        return _spdx(expression) or "unknown"
    text = [line for line in (summary.get("License") or "").strip().splitlines() if line.strip()]
    lines = [line for line in summary.get_all("Classifier") or () if line.startswith("License ::") and line != _ANY]
    classified = list(dict.fromkeys(_spdx(line.split(" :: ")[-1]) or "unknown" for line in lines))
    if "unknown" in classified:
        return "unknown"
    if not text or text == ["UNKNOWN"]:
        return " AND ".join(classified) or "unknown"
    named = _spdx(text[0])
    if named is None:
        a_text = len(text) > 1 and "general public" not in text[0].lower()
        return " AND ".join(classified) or "unknown" if a_text else "unknown"
    barred = [name for name in classified if name not in ALLOWED] if why_allowed("", named) else []
    return " AND ".join([f"({named})" if barred and " OR " in named else named, *barred])


def _spdx(said: str) -> str | None:
    if said.lower() in _SPELT:
        return _SPELT[said.lower()]
    try:
        return str(canonicalize_license_expression(said))
    except InvalidLicenseExpression:
        return None


def why_allowed(name: str, licence: str) -> str | None:
    """The reason for which a distribution with this licence may be installed, or ``None``."""
    if name in KNOWN:
        known, reason = KNOWN[name]
        return reason if licence == known else None
    if "(" in licence:  # alternatives in brackets are not resolved: all parts must be allowed
        ways = [re.split(r" AND | OR ", re.sub("[()]", "", licence))]
    else:
        ways = [way.split(" AND ") for way in licence.split(" OR ")]
    for way in ways:
        if all(part in ALLOWED for part in way):
            return "; ".join(sorted({ALLOWED[part] for part in way} - {_PERMISSIVE})) or _PERMISSIVE
    return None


def requirements(name: str, extras: Iterable[str] = ()) -> list[Requirement]:
    """Requirements of a distribution in this environment, with extras. ``PackageNotFoundError`` if it is not installed."""
    asked = [Requirement(line) for line in metadata.requires(name) or ()]
    wanted = ("", *extras)
    return [each for each in asked if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted)]


def closure(name: str, extras: Iterable[str] = ()) -> dict[str, set[str]]:
    """The distribution and its installed direct and indirect requirements, by canonical name, each with its requested extras."""
    found: dict[str, set[str]] = {}
    ahead = [(canonicalize_name(name), set(extras))]
    while ahead:
        name, with_extras = ahead.pop()
        if name in found and with_extras <= found[name]:
            continue
        try:
            asked = requirements(name, with_extras | found.get(name, set()))
        except metadata.PackageNotFoundError:
            continue
        found[name] = with_extras | found.get(name, set())
        ahead.extend((canonicalize_name(each.name), each.extras) for each in asked)
    return found


def pins(constraints: Path) -> dict[str, str]:
    """The pinned version of each distribution in a constraints file, by canonical name."""
    found = [_PIN.match(line) for line in constraints.read_text().splitlines()]
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def entries() -> list[Entry]:
    """All that is installed with cirf and its extras, by name."""
    found: dict[str, Entry] = {}
    for extras, label in ((), "cirf"), *(((extra,), extra) for extra in EXTRAS):
        for name in closure("cirf", extras):
            if name not in found and name != "cirf":
                summary = metadata.metadata(name)
                licence = licence_of(summary)
                version = summary["Version"].split("+")[0]  # without a build's local version
                found[name] = Entry(name, version, licence, label, why_allowed(name, licence))
    return [found[name] for name in sorted(found)]


def page(listed: list[Entry]) -> str:
    """The list as Markdown."""
    rows = [
        f"| {each.name} | {each.version} | {each.licence} | {each.needed_by} |"
        f" {'' if each.reason == _PERMISSIVE else each.reason or '**not allowed**'} |"
        for each in listed
    ]
    counts = {label: sum(each.needed_by == label for each in listed) for label in ("cirf", *EXTRAS)}
    added = ", ".join(f"{counts[extra]} (`{extra}`)" for extra in EXTRAS)
    return "\n".join(
        [
            "# Licences",
            "",
            "cirf is under the Apache-2.0 licence and contains no copy of the distributions below."
            f" It installs {counts['cirf']} of them; the extras add {added}.",
            "",
            "`make licences` writes this page from the metadata of what is installed. It fails where a licence is not allowed in"
            " `benchmarks/licences.py`. An empty last column means a permissive licence: keep its notice.",
            "",
            "| distribution | version | licence | needed by | why it is allowed |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Write or print the list; exit code 1 if one is not allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="the page to write (default: print it)")
    asked = parser.parse_args()
    listed = entries()
    text = page(listed)
    if asked.write:
        asked.write.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    bad = [each for each in listed if each.reason is None]
    for each in bad:
        print(f"{each.name} {each.version}: {each.licence} is not allowed; see benchmarks/licences.py", file=sys.stderr)
    print(f"{len(listed)} distributions, {len(bad)} not allowed", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
