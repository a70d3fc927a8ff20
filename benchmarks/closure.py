"""What is installed with a distribution: its requirements and theirs, as the metadata of this environment tells them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PIN = re.compile(r"([\w.-]+)==(\S+)")


def requirements(name: str, extras: Iterable[str] = ()) -> list[Requirement]:
    """What a distribution asks for in this environment, by itself or with its extras. ``PackageNotFoundError`` if it is not
    installed."""
    asked = [Requirement(line) for line in metadata.requires(name) or ()]
    wanted = ("", *extras)
    return [each for each in asked if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted)]


def closure(name: str, extras: Iterable[str] = ()) -> dict[str, set[str]]:
    """The distribution and all that is installed with it, by canonical name, each with the extras that it is asked for with.
    What is not installed here is left out."""
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
    """The version of each distribution that a file of constraints names, by canonical name."""
    found = [_PIN.match(line) for line in constraints.read_text().splitlines()]
    return {canonicalize_name(match[1]): match[2] for match in found if match}
