from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cirf.evaluation.schedule import ROUNDS, blocks

GROUPS = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda sizes: [[f"m{group}{place}" for place in range(size)] for group, size in enumerate(sizes)]
)


@given(GROUPS, st.integers(0, 40), st.integers(0, 9), st.booleans())
def test_every_method_takes_every_piece_once(groups, count, seed, together):
    made = blocks(groups, range(count), seed, together)
    turns = [turn for block in made for turn in block.turns]
    assert Counter(turns) == Counter((piece, name) for piece in range(count) for group in groups for name in group)
    for block in made:
        assert {name for _, name in block.turns} == set(block.methods)
        pieces = [piece for piece, _ in block.turns]
        assert pieces == sorted(pieces)  # the methods of a piece come one behind the other, the pieces in their order
    assert made == blocks(groups, range(count), seed, together)


@given(GROUPS, st.integers(1, 4), st.integers(0, 9))
def test_each_method_stands_at_each_place_equally_often(groups, cycles, seed):
    methods = [name for group in groups for name in group]
    (block,) = blocks(groups, range(cycles * len(methods)), seed, True)
    names = [name for _, name in block.turns]
    for place in range(len(methods)):
        assert Counter(names[place :: len(methods)]) == dict.fromkeys(methods, cycles)


def test_the_order_is_the_seeds_and_no_method_always_follows_the_same_one():
    groups = [["a"], ["b"], ["c"], ["d"]]
    (block,) = blocks(groups, range(400), 1, True)
    assert block != blocks(groups, range(400), 2, True)[0]
    names = [name for _, name in block.turns]
    behind_a = Counter(after for before, after in pairwise(names) if before == "a")
    assert set(behind_a) >= {"b", "c", "d"} and max(behind_a.values()) < 200


def test_models_that_do_not_fit_are_loaded_a_few_times_in_turn():
    groups = [["direct", "cot"], ["full"]]
    made = blocks(groups, range(10), 1, together=False)
    assert [block.methods for block in made] == [("direct", "cot"), ("full",), ("full",), ("direct", "cot")] * (ROUNDS // 2)
    assert [len({piece for piece, _ in block.turns}) for block in made[::2]] == [2, 3, 2, 3]
    assert len(blocks(groups, range(1), 1, together=False)) == 2
    assert len(blocks([["direct", "cot"]], range(10), 1, together=False)) == 1  # one model need not be loaded again
    assert blocks(groups, [], 1, together=True) == []
