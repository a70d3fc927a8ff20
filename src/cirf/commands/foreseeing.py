"""How the stages of many runs stand to one another: which are done, which could be taken over, which have to be made.

A stage's key hashes the contents of its inputs, which are not known before they are made. Here what is still to be made
stands for its content by its own key: two stages that would be asked for alike have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cirf.files import hash_json
from cirf.store import Part, Plan, RunFolder, content_of, key_of

Content = Mapping[str, str] | str
"""What a stage holds: its files' hashes, or the key of one that is not made yet."""


@dataclass
class Foresight:
    """A look at runs in the order in which they will be made."""

    others: Sequence[RunFolder]
    there: dict[str, Content] = field(default_factory=dict)
    """By key, what will have been made, taken over or found by then."""

    def look(self, folder: RunFolder, plans: Sequence[Plan]) -> dict[str, str]:
        """For each stage of a run, inputs first: ``done``, ``taken`` or ``made``.

        At most so many stages are made: where an input comes out as another run's did, though it was asked for otherwise,
        what follows is taken over too.
        """
        contents: dict[str, Content] = {}
        found: dict[str, str] = {}
        for plan in plans:
            key = key_of(plan, plan.given | {label: _content(part, contents) for label, part in plan.parts.items()})
            manifest = folder.found(plan.name, key)
            if manifest is not None:
                found[plan.name], contents[plan.name] = "done", manifest["files"]
            else:
                known = self.there.get(key) or self._elsewhere(plan.name, key)
                found[plan.name], contents[plan.name] = ("made", key) if known is None else ("taken", known)
            self.there[key] = contents[plan.name]
        return found

    def _elsewhere(self, name: str, key: str) -> Content | None:
        for other in self.others:
            if (manifest := other.found(name, key)) is not None:
                files: Content = manifest["files"]
                return files
        return None


def _content(part: Part, contents: Mapping[str, Content]) -> str:
    content = contents[part.plan.name]
    return hash_json([content, part.names]) if isinstance(content, str) else content_of(content, part.names)
