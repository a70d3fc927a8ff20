from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.names import NAMES, base, describe, display_names, family
from cirf.codebook.functions import MIXED, UNUSED, label_codes, operations
from cirf.methods import METHODS
from cirf.pictures.style import FAMILIES


@pytest.mark.parametrize(
    ("segment", "found"),
    [
        ("4 bananas * $1/banana = $4", {"multiplies"}),
        ("$40 (coat) + $30 (shoes) = $70", {"adds"}),
        ("100 × 0.75 = 75 dollars", {"multiplies"}),
        ("110 \N{MINUS SIGN} 60 = 50", {"subtracts"}),
        ("28 - 15 = 13", {"subtracts"}),
        ("48/2 = 24", {"divides"}),
        ("1,200 ÷ 4 = 300", {"divides"}),
        ("3 x $4 = $12", {"multiplies"}),
        (r"5 \times 6 - 2 = 28", {"multiplies", "subtracts"}),
        ("In 2010-2014 it rained.", set()),
        ("It takes 30\N{EN DASH}40 days.", set()),
        ("A half-hour walk", set()),
        ("The coin is heads up.", set()),
    ],
)
def test_operations_stand_between_numbers(segment, found):
    assert operations(segment) == found


def test_a_code_is_called_by_what_sets_its_segments_apart():
    labels = label_codes(
        {
            0: ["4 apples + 3 apples = 7 apples in total", "In total 5 + 6 = 11", "10 + 2 = 12 in total"],
            1: ["Sam does not flip the coin, it stays heads", "Jo does not flip the coin, it stays tails"],
            2: ["Kim flips the coin to tails", "Lee flips the coin to heads"],
            3: [],
            4: ["9 * 9 = 81", "7 * 6 = 42"],
        }
    )
    assert labels[0] == "adds total"
    assert "not flip" in labels[1]
    assert labels[2].startswith("flips")
    assert labels[3] == UNUSED
    assert labels[4] == "multiplies"


def test_two_codes_of_one_kind_get_longer_names():
    bags = {
        0: ["the final answer is option B", "the final answer is option C"],
        1: ["the final answer was option B, surely", "the final answer was option C, surely"],
        2: ["water is wet", "stones are hard"],
    }
    labels = label_codes(bags)
    assert labels[0] != labels[1]


def test_segments_with_nothing_in_common_are_mixed():
    segments = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta", "iota kappa"]
    assert label_codes({0: segments, 1: ["something else"]})[0] == MIXED


CODES = st.dictionaries(st.integers(0, 300), st.lists(st.text(max_size=60), max_size=6), max_size=8)


@given(CODES)
def test_labels_are_short_and_the_same_every_time(segments):
    labels = label_codes(segments)
    assert labels.keys() == segments.keys()
    assert all(1 <= len(label.split()) <= 3 for label in labels.values())
    assert label_codes(dict(reversed(segments.items()))) == labels
    assert all((label == UNUSED) == (not segments[code]) for code, label in labels.items())


# Display names and families of methods: one each, the same everywhere

VARIANTS = {
    "subjects": {"method": "cirf_full", "settings": {"subjects": True}},
    "helped": {"method": "cirf_full", "settings": {"subjects": True, "start": "sft_cot", "calculator": True}, "model": "other"},
    "lines": {"method": "terse", "settings": {"form": "equations"}},
    "pause_10": {"method": "pause", "settings": {"n": 10}},
    "theirs": {"method": "codi", "preset": "official"},
    "again": {"method": "cirf_full", "settings": {"subjects": True}},
    "mine": {"method": "my_method.py", "settings": {"depth": 2}},
}


def test_every_method_has_one_name_of_its_own_and_a_family():
    assert set(METHODS) <= set(NAMES) and len(set(NAMES.values())) == len(NAMES)
    assert {family(name, {}) for name in METHODS} == set(FAMILIES)


def test_a_variant_of_known_settings_is_named_by_them_and_any_other_by_itself():
    names = display_names([*VARIANTS, "cirf_full"], VARIANTS)
    assert names == {
        "subjects": "CIRF with subjects",
        "helped": "CIRF with subjects, after CoT + calculator",
        "lines": "Terse, equations",
        "pause_10": "pause_10",
        "theirs": "theirs",
        "again": "again",  # the name is taken
        "mine": "mine",
        "cirf_full": "CIRF",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pause_10", "Pause tokens (pause): n = 10"),
        ("theirs", "CODI (codi): preset official"),
        ("mine", "my_method.py (my_method.py): depth = 2"),
        ("sft_cot", METHODS["sft_cot"].summary),
        ("unknown", ""),
    ],
)
def test_what_a_method_is_and_a_variant_changes(name, words):
    assert describe(name, VARIANTS) == words
    assert describe("helped", VARIANTS).endswith("calculator = True, answers with the model of other")


def test_families_are_of_the_method_behind_a_variant_and_for_unknown_ones_of_what_they_write():
    assert base("pause_10", VARIANTS) == "pause" and family("pause_10", VARIANTS) == "latent"
    assert family("subjects", VARIANTS) == "functional" and family("lines", VARIANTS) == "prose"
    assert family("mine", VARIANTS) == "prose" and family("mine", VARIANTS, functional=True) == "functional"
