"""Data sets of the hub by name, where a file of rows is named: ``hub:ORG/NAME[@REVISION][:CONFIG[:SPLIT]]``.

``hub:openai/gsm8k:main:test`` is the split ``test`` of the configuration ``main``; ``hub:ann/sums@v1`` the split ``train`` of a
data set with one configuration, as the tag ``v1`` has it. ``@`` names a revision as in the hub's own addresses.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

from cirf.errors import CirfError

PREFIX = "hub:"
_ID = r"[\w.-]+/[\w.-]+"
_NAME = re.compile(rf"{PREFIX}(?P<id>{_ID})(?:@(?P<revision>[^\s:@]+))?(?::(?P<config>[^\s:]*)(?::(?P<split>\S+))?)?", re.A)


@dataclass(frozen=True, slots=True)
class HubName:
    """A split of a data set; without a ``revision`` the default branch is meant, without a ``config`` the only or default one."""

    id: str
    revision: str | None
    config: str | None
    split: str = "train"

    def __str__(self) -> str:
        parts = [self.config or "", self.split] if self.split != "train" else [self.config] if self.config else []
        return ":".join([PREFIX + self.id + (f"@{self.revision}" if self.revision else ""), *parts])


def is_hub_name(name: str) -> bool:
    return name.startswith(PREFIX)


def parse(name: str) -> HubName:
    """The data set that a text names; ``CirfError`` if it has another form."""
    found = _NAME.fullmatch(name)
    if found is None or ".." in found["id"]:
        raise CirfError(
            f"{name[:200]}: expected {PREFIX}ORG/NAME, {PREFIX}ORG/NAME:CONFIG or {PREFIX}ORG/NAME:CONFIG:SPLIT (CONFIG may be "
            "empty), with @REVISION after NAME if you want one"
        )
    return HubName(found["id"], found["revision"], found["config"] or None, found["split"] or "train")


def stem(name: str) -> str:
    """A file's name without its folders and endings; of a data set ``NAME-CONFIG-SPLIT``, without a split for training."""
    if not is_hub_name(name):
        return PurePath(name.removesuffix(".gz")).stem
    named = parse(name)
    return "-".join(filter(None, (named.id.rpartition("/")[2], named.config, named.split if named.split != "train" else None)))


def short(name: str) -> str:
    """A file's name without its folders; a data set's whole name."""
    return name if is_hub_name(name) else PurePath(name).name


def suggestion(name: str | Path) -> str:
    """The end of a sentence on a file that is not there: what to write if a data set of the hub is meant."""
    text = str(name)
    if not re.fullmatch(_ID, text, re.A) or text.startswith(".") or Path(text).parent.is_dir():
        return ""
    return f"; if it is a data set of the hub, write {PREFIX}{text}"
