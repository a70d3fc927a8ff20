r"""What a step of a worked solution produced: the result rules (paper 3.3).

A result is the value the next steps go on with, in as few characters as can be::

    "Step 1: She eats 3, so 16 - 3 = 13 eggs are left."     -> "13"
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May."        -> "24"
    "\text{Total} = 5 \times 8 = \$40"                       -> "40"
    "850 + 705 + X = 820 * 3"                                -> "850+705+X=820*3"
    "2. Rikko flips the coin, which turns it to tails."      -> "tails"
    "C. **floor** - furniture stands on the floor."          -> "C"
    "The capital of France is Paris."                        -> "Paris"
    "Now we need the price of one egg."                      -> ""

``produced`` decides by a step's content which of these it is, independently of the final answer. The others are its parts, for
tasks whose steps are all of one kind.
"""

from cirf.tasks.steps.calculations import calculated, calculated_or_stated, numbers_in, strip_annotations, worked_out
from cirf.tasks.steps.equations import introduced, left_side, unsolved, unworked
from cirf.tasks.steps.produced import answer_named, concluded, option_discussed, produced
from cirf.tasks.steps.states import coin_state, state

__all__ = [
    "answer_named",
    "calculated",
    "calculated_or_stated",
    "coin_state",
    "concluded",
    "introduced",
    "left_side",
    "numbers_in",
    "option_discussed",
    "produced",
    "state",
    "strip_annotations",
    "unsolved",
    "unworked",
    "worked_out",
]
