"""What a method is: how it asks, what it is trained to write, and how its output is read.

One file a method. A method holds what is its own and nothing else: the prompt builder, the training loop, decoding,
parsing of answers and timing are shared by all, so that two methods differ in a table only where they differ here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cirf.records import Example, Problem

if TYPE_CHECKING:
    from cirf.compression.search import Selector
    from cirf.recipe import Evaluate
    from cirf.tasks.task import Task


class Method(Protocol):
    """A way of answering questions with one backbone.

    ``trained`` tells whether it fine-tunes, ``functional`` whether it needs the functional tokens in the vocabulary.
    """

    name: str
    summary: str
    trained: bool
    functional: bool
    pruning: Selector | None
    """The search that says which results its traces do without; ``None``: they are as they are."""
    caps: tuple[str, ...]
    """The keys of the recipe's `evaluate` that its cap reads."""

    def prompt(self, problem: Problem, task: Task) -> str:
        """The user turn. It may read the question and the options, never the answer or the rationale."""
        ...

    def target(self, example: Example) -> str:
        """The text that training teaches after the prompt, without the end token. Untrained methods raise ``TypeError``."""
        ...

    def read(self, output: str) -> tuple[str, str]:
        """An output's two halves: the reasoning, and the text that the task's parser reads the answer from."""
        ...

    def cap(self, task: Task, section: Evaluate) -> int:
        """Most tokens that may be generated."""
        ...
