"""Intrinsic measures of an assignment, on assignments whose measures are known."""

import math
import random

import pytest

from cirf.codebook.clustering import clustering


def test_a_code_for_each_question_says_all_of_it():
    found = clustering([[0, 0], [1, 1], [2, 2]], 4)
    assert found.ami == pytest.approx(1)
    assert found.purity == 1
    assert found.collapsed == 1
    assert found.unique == 1
    assert found.used == 0.75
    assert found.perplexity == pytest.approx(3)


def test_the_same_codes_for_every_question_say_nothing_of_it():
    found = clustering([[0, 1, 2, 3]] * 50, 4)
    assert found.ami <= 0.0
    assert found.purity == pytest.approx(1 / 50)
    assert found.collapsed == 0
    assert found.unique == 4


def test_random_codes_have_no_mutual_information_left_after_adjustment():
    draw = random.Random(3)
    found = clustering([[draw.randrange(16) for _ in range(5)] for _ in range(400)], 16)
    assert abs(found.ami) < 0.05
    assert 15 < found.perplexity <= 16


def test_a_rationale_of_one_step_is_not_collapsed():
    found = clustering([[0], [1, 1], [0, 1]], 2)
    assert found.collapsed == 0.5
    assert math.isclose(found.unique, 4 / 3)


def test_no_step_is_an_error():
    with pytest.raises(ValueError, match="no step"):
        clustering([[]], 4)
