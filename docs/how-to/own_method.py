"""A method of your own: name the operations that the rationale holds, then answer. Explained in own-method.md.

Of the steps "48/2 = 24 in May." and "48 + 24 = 72 in all." it learns to write, and at last reads:

    by, plus
    #### 72
"""

from __future__ import annotations

import re

from cirf.methods import Method
from cirf.recipe import Evaluate, Section, key
from cirf.records import Example
from cirf.tasks.task import Task

_SIGN = re.compile(r"\d\s*([-+*×/÷])\s*\d")
_WORDS = {"-": "minus", "+": "plus", "*": "times", "×": "times", "/": "by", "÷": "by"}


class OperationSettings(Section):
    most: int = key(8, "How many operations are written; later ones are left out.", unit="operations", ge=1)


class Operations(Method):
    name = "operations"
    summary = "fine-tuned to name the operations, then to answer"
    trained = True
    Settings = OperationSettings

    def target(self, example: Example) -> str:
        """What training teaches after the question; the end token is added."""
        signs = [sign for step in example.segments for sign in _SIGN.findall(step)]
        return f"{', '.join(_WORDS[sign] for sign in signs[: self.settings.most])}\n#### {example.problem.answer}"

    def read(self, output: str) -> tuple[str, str]:
        """A model's text as the reasoning in it, and what the task's parser reads the answer from."""
        words, mark, answer = output.rpartition("####")
        return (words.strip(), answer) if mark else ("", output)

    def cap(self, task: Task, section: Evaluate) -> int:
        """Most tokens that may be written: some for each word, and the task's own cap for the answer."""
        return 4 * int(self.settings.most) + task.cap


METHOD = Operations
