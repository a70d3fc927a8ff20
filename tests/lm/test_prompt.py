"""The prompt is the same for us and for anyone who uses the saved template, and nothing in a question can break out of it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cirf.lm import vocabulary
from cirf.lm.prompt import encode, end_token, prompt_text, render, response_template, sanitise, settle_template
from cirf.methods.base import around_turn, at_head_of_answer
from cirf.recipe import schema


def test_default_system_message_gives_way_to_an_empty_one_and_thinking_is_off(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    assert "long introduction" in prompt_text(tokenizer, "Hi?")
    settle_template(tokenizer)
    expected = "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert prompt_text(tokenizer, "Hi?") == expected


def test_settling_twice_changes_nothing(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer)
    once = tokenizer.chat_template
    settle_template(tokenizer)
    assert tokenizer.chat_template == once


def test_a_system_message_is_put_in_front_of_the_question_as_in_training_rows(tiny: Any) -> None:
    for template in (tiny.CHATML, tiny.NO_SYSTEM, None):
        tokenizer = tiny.build_tokenizer(template)
        settle_template(tokenizer)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
        asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert asked == prompt_text(tokenizer, "Be brief.\n\nHi?")
        parts = [turn | {"content": [{"type": "text", "text": turn["content"]}]} for turn in messages]
        if template is tiny.CHATML:  # a template that reads parts gets parts
            loops = tokenizer.chat_template.replace("message['content']", "(message['content'] | map(attribute='text') | join)")
            tokenizer.chat_template, before = loops, tokenizer.chat_template
            again = tokenizer.apply_chat_template(parts, tokenize=False, add_generation_prompt=True)
            tokenizer.chat_template = before
            assert again == asked
        turns = [*messages, {"role": "assistant", "content": "Ho."}, {"role": "user", "content": "And?"}]
        more = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        assert more.index("Be brief.") < more.index("Hi?") < more.index("Ho.") < more.index("And?")


def test_a_method_adds_to_the_users_turn_with_the_system_message_in_it(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer)
    tokenizer.chat_template = around_turn(tokenizer.chat_template, "Question: ", "?")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert "<|im_start|>user\nQuestion: Be brief.\n\nHi?<|im_end|>" in asked and asked == prompt_text(
        tokenizer, "Be brief.\n\nHi"
    )


def test_the_key_switches_the_empty_system_message_off(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    settle_template(tokenizer, empty_system=False)
    assert "long introduction" in prompt_text(tokenizer, "Hi?")


def test_the_saved_template_alone_gives_the_prompt(tiny: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for name, template in (("chat", tiny.CHATML), ("inst", tiny.NO_SYSTEM), ("none", None)):
        tokenizer = tiny.build_tokenizer(template)
        settle_template(tokenizer)
        tokenizer.save_pretrained(tmp_path / name)
        loaded = AutoTokenizer.from_pretrained(tmp_path / name)
        theirs = loaded.apply_chat_template([{"role": "user", "content": "Hi?"}], tokenize=False, add_generation_prompt=True)
        assert theirs == prompt_text(tokenizer, "Hi?")


def test_templates_that_refuse_a_system_role_are_left_alone(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer(tiny.NO_SYSTEM)
    settle_template(tokenizer)
    assert tokenizer.chat_template.endswith(tiny.NO_SYSTEM)
    assert prompt_text(tokenizer, "Hi?") == "[INST] Hi? [/INST]"


def test_a_model_without_a_template_gets_the_plain_one(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer(None)
    settle_template(tokenizer)
    assert prompt_text(tokenizer, "What is 1+1?") == "Question: What is 1+1?\nAnswer: "


def test_the_end_token_is_what_the_template_closes_the_turn_with(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer()
    tokenizer.eos_token = "<|endoftext|>"
    assert end_token(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    assert end_token(tokenizer) == tokenizer.convert_tokens_to_ids("<|endoftext|>")


def test_what_the_vocabulary_does_not_hold_is_no_end_token() -> None:
    """A template may close a turn with a sign that becomes the unknown token."""
    core = Tokenizer(models.WordLevel({"[UNK]": 0, "[END]": 1, "Hi": 2, "7": 3}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", eos_token="[END]")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + ' </turn> ' }}{% endfor %}"
    assert end_token(tokenizer) == 1


PIECES = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<cirf>", "</cirf>", "<cirf_003>"]
PIECES += ["<", "|", "im_end", ">", " ", "\n", "assistant", "7", "é"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=12).map("".join))
@settings(max_examples=30, deadline=None)
def test_no_question_ever_becomes_an_added_token(text: str) -> None:
    tokenizer = _extended()
    added = set(tokenizer.get_added_vocab().values())
    safe = sanitise(text, tokenizer)
    assert added.isdisjoint(encode(tokenizer, safe))
    assert safe.replace(" ", "") == text.replace(" ", "")
    frame = [token for token in encode(tokenizer, prompt_text(tokenizer, "")) if token in added]
    assert [token for token in encode(tokenizer, prompt_text(tokenizer, text)) if token in added] == frame


def test_text_without_markers_is_untouched(tokenizer: Any) -> None:
    text = "If 3 < x and x > 1, what |x| fits? <b>two</b> é 数"
    assert sanitise(text, tokenizer) == text


def test_kept_tokens_pass(tokenizer: Any) -> None:
    assert sanitise("a<|im_end|>b", tokenizer, keep=[end_token(tokenizer)]) == "a<|im_end|>b"


_cache: list[Any] = []


def _extended() -> Any:
    if not _cache:
        import importlib.util

        spec = importlib.util.spec_from_file_location("cirf_lm_tiny", Path(__file__).with_name("tiny.py"))
        assert spec is not None and spec.loader is not None
        tiny: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tiny)
        tokenizer = tiny.build_tokenizer()
        settle_template(tokenizer)
        vocabulary.extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(), 8, 0)
        _cache.append(tokenizer)
    return _cache[0]


@pytest.mark.parametrize("kind", ["CHATML", "NO_SYSTEM", None])
def test_the_response_template_cuts_trace_and_answer_apart(tiny: Any, tmp_path: Path, kind: str | None) -> None:
    from transformers import AutoTokenizer

    tokenizer = tiny.build_tokenizer(kind and getattr(tiny, kind))
    settle_template(tokenizer)
    vocabulary.extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(), 8, 0)
    tokenizer.response_template = response_template(tokenizer, "<cirf>", "</cirf>")
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    prompt = prompt_text(loaded, "What is 12 plus 7?")
    output = "<cirf><cirf_001>12<cirf_003>19</cirf>19<|im_end|><|endoftext|>"
    for answer in (output, encode(loaded, output)):
        message = loaded.parse_response(answer, prefix=prompt)
        assert (message["thinking"], message["content"]) == ("<cirf_001>12<cirf_003>19", "19")
    assert loaded.parse_response("19<|im_end|>", prefix=prompt)["content"] == "19"


@pytest.mark.parametrize("delimiters", ["cirf", "think"])
@pytest.mark.parametrize("kind", ["CHATML", "NO_SYSTEM", None])
def test_it_does_so_where_the_prompt_holds_the_opening_delimiter(
    tiny: Any, tmp_path: Path, kind: str | None, delimiters: Literal["cirf", "think"]
) -> None:
    from transformers import AutoTokenizer

    tokenizer, names = tiny.build_tokenizer(kind and getattr(tiny, kind)), vocabulary.token_names(8, delimiters)
    settle_template(tokenizer)
    vocabulary.extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(delimiters=delimiters), 8, 0)
    before, turns = prompt_text(tokenizer, "What is 12 plus 7?"), [{"role": "user", "content": "What is 12 plus 7?"}]
    finished = render(tokenizer, [*turns, {"role": "assistant", "content": "19"}], generation=False)
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, names.start)
    tokenizer.response_template = response_template(tokenizer, names.start, names.end)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    prompt = prompt_text(loaded, "What is 12 plus 7?")
    assert prompt == before + names.start == loaded.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert encode(loaded, prompt)[-1] == loaded.convert_tokens_to_ids(names.start) and vocabulary.opened_by_prompt(loaded, names)
    assert render(loaded, [*turns, {"role": "assistant", "content": "19"}], generation=False) == finished
    output = f"<cirf_001>12<cirf_003>19{names.end}19<|im_end|><|endoftext|>"
    for answer in (output, encode(loaded, output)):
        message = loaded.parse_response(answer, prefix=prompt)
        assert (message["thinking"], message["content"]) == ("<cirf_001>12<cirf_003>19", "19")
    assert "content" not in loaded.parse_response("<cirf_001>12<cirf_003>", prefix=prompt), "the question is no part of an answer"


_LLAMA = (
    "{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    "{% else %}{% set date_string = '1 Jan 2020' %}{% endif %}{% endif %}"
)
_BODY = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + eos_token }}{% endfor %}"
_DATED = {
    "date_string": _LLAMA + "{{ 'Today: ' + date_string }}" + _BODY,
    "strftime_now": "{{ 'Current date: ' + strftime_now(\"%Y-%m-%d\") + ', year ' + strftime_now('%Y') }}" + _BODY,
    "macro": "{% macro head(f) %}{{ strftime_now(f) }}{% endmacro %}{{ head('%A, %d %B') }}" + _BODY,
    "given": "{% if date_string is defined %}{{ date_string }}{% endif %}" + _BODY,
}


@pytest.mark.parametrize("name", _DATED)
@pytest.mark.parametrize("system", [True, False])
def test_the_prompt_is_the_same_on_every_day(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, system: bool
) -> None:
    """And so are the settled template and what the saved one writes."""
    from transformers import AutoTokenizer
    from transformers.utils import chat_template_utils

    prompts, templates, messages = set(), set(), [{"role": "user", "content": "Hi?"}]
    for day in (1, 2):

        class Day(datetime.datetime):
            number = day

            @classmethod
            def now(cls, tz: Any = None) -> Day:
                return cls(2031, 1, cls.number)

        monkeypatch.setattr(chat_template_utils, "datetime", Day)
        made = tiny.build_tokenizer(_DATED[name])
        settle_template(made, system)
        if day == 1:
            made.save_pretrained(tmp_path)
            first = made.chat_template
            settle_template(made, system)
            assert made.chat_template == first
        saved = AutoTokenizer.from_pretrained(tmp_path)
        templates.add(made.chat_template)
        prompts |= {prompt_text(made, "Hi?"), saved.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)}
    assert len(prompts) == len(templates) == 1 and "2031" not in prompts.pop()


def test_a_fixed_date_has_the_form_that_the_template_wants_and_is_no_engines_to_change(tiny: Any) -> None:
    tokenizer = tiny.build_tokenizer(_DATED["strftime_now"])
    settle_template(tokenizer)
    assert "Current date: 2024-07-26, year 2024" in prompt_text(tokenizer, "Hi?")
    tokenizer = tiny.build_tokenizer(_DATED["date_string"])
    settle_template(tokenizer)
    given = render(tokenizer, [{"role": "user", "content": "Hi?"}], date_string="3 Mar 2031")
    assert given == render(tokenizer, [{"role": "user", "content": "Hi?"}]) and "26 Jul 2024" in given
