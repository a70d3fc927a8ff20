"""Whose data it is: every task says, one licence only where all agree, and every hub task has one."""

import pytest

from cirf.recipe import Recipe
from cirf.report.sources import Source, licence_of, sources
from cirf.tasks import get, names


def made(*tasks, **rationales):
    """A resolved recipe of those tasks."""
    recipe = Recipe.model_validate(
        {"name": "r", "problems": {"tasks": [{"task": task} for task in tasks]}, "rationales": rationales}
    )
    return recipe.model_dump(mode="json")


@pytest.mark.parametrize("name", names())
def test_every_task_of_ours_has_a_licence(name):
    assert get(name).licence
    source = sources(made(name))[0]
    assert source.licence == get(name).licence and source.evaluation_only == get(name).evaluation_only


def test_one_licence_is_named_where_all_that_is_trained_on_agree():
    assert licence_of(sources(made("gsm8k", "svamp"))) == "mit"
    assert licence_of(sources(made("gsm8k", "scienceqa"))) == "mit"  # evaluation alone
    assert licence_of(sources(made("gsm8k", "chain_sum"))) is None
    assert licence_of(sources(made("gsm8k", source="files", files=["a.jsonl"]))) is None
    assert licence_of([Source("mine", "rows", "")]) is None


def test_a_teacher_is_named():
    endpoints = [{"url": "http://localhost:1/v1", "model": "big"}, {"url": "http://localhost:2/v1", "model": "big"}]
    found = sources(made("gsm8k", source="teacher", teacher={"endpoints": endpoints}))
    assert found[1:] == [Source("rationales", "written by big", "")]
