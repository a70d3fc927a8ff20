r"""The prompt: one chat template, settled once, so that training, our decoding and anyone's engine send the same tokens.

A model's template decides how a question is wrapped. Some features of templates cost tokens or cause errors. Small statements in
front of the template, which is saved with the model, settle them:

* a long default system message (20 tokens a question in Qwen2.5 and SmolLM2) gives way to an empty one;
* a thinking mode that is on unless switched off (Qwen3) is switched off, so the empty think block is inserted;
* today's date (Llama 3.2, gpt-oss, Granite) gives way to one that is always the same, so that the prompt is, too;
* a system message of the user's own goes in front of the first question, in the user's turn, as in training rows.

So ``tokenizer.apply_chat_template(messages, add_generation_prompt=True)`` of the saved model *is* the training prompt.
A model without a template gets ``Question: ...\nAnswer: ``.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import resource
import signal
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cirf.errors import CirfError

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ 'Question: ' + message['content'] + '\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ 'Answer: ' + message['content'] + (eos_token or '') + '\\n' }}"
    "{% else %}{{ message['content'] + '\\n' if message['content'] else '' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Answer: ' }}{% endif %}"
)
"""The template of a model without a chat template."""

_EMPTY_SYSTEM = (
    "{%- if messages and messages[0]['role'] != 'system' %}"
    "{%- set messages = [{'role': 'system', 'content': ''}] + (messages | list) %}"
    "{%- endif -%}\n"
)
_SYSTEM_FIRST = (  # contents are texts, or lists of parts
    "{%- if messages and messages[0]['role'] == 'system' and messages[0]['content'] and (messages | length) > 1 "
    "and messages[1]['role'] == 'user' and messages[1]['content'] "
    "and (messages[0]['content'] is string) == (messages[1]['content'] is string) %}"
    "{%- if messages[0]['content'] is string %}"
    "{%- set merged = (messages[0]['content'] | trim) ~ '\\n\\n' ~ messages[1]['content'] %}"
    "{%- else %}"
    "{%- set merged = messages[0]['content'] + [{'type': 'text', 'text': '\\n\\n'}] + messages[1]['content'] %}"
    "{%- endif %}"
    "{%- set messages = [{'role': 'user', 'content': merged}] + (messages | list)[2:] %}"
    "{%- endif -%}\n"
)
_NO_THINKING = "{%- set enable_thinking = false -%}\n"
_DATE = datetime.date(2024, 7, 26)  # the one that Llama 3.2's template falls back to
_DATE_STRING = f"{{%- set date_string = '{_DATE:%d %b %Y}' -%}}\n"
_NOW = re.compile(r"strftime_now\(\s*(?:format\s*=\s*)?(['\"])(.*?)\1")
_MARK = "cirf7question"
_REPLY = "cirf7reply"
_SECONDS = 2.0  # of processor time for all renderings that settle a template; they take milliseconds
_BYTES = 2**30  # that they may allocate
_LONGEST = 2**16  # characters of a template around a question

_added: weakref.WeakKeyDictionary[Any, tuple[int, frozenset[int]]] = weakref.WeakKeyDictionary()


def render(tokenizer: Any, messages: list[dict[str, str]], generation: bool = True, **switches: Any) -> str:
    """The text of a conversation, with the opening of the assistant's turn if ``generation``."""
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation, **switches)
    return text


def settle_template(tokenizer: Any, empty_system: bool = True) -> None:
    """Make the tokenizer's template give the training prompt by default; doing it twice changes nothing. ``empty_system``: put an
    empty system message first if that is shorter than the template's own and the template takes a system role."""
    template = tokenizer.chat_template
    if isinstance(template, Mapping):  # several named templates
        template = template.get("default") or next(iter(template.values()), None)
        tokenizer.chat_template = template
    if not template:
        begins_with_bos = tokenizer.bos_token_id is not None and tokenizer("").input_ids[:1] == [tokenizer.bos_token_id]
        tokenizer.chat_template = ("{{ bos_token }}" if begins_with_bos else "") + PLAIN_TEMPLATE
    with _bounded():
        _settle(tokenizer, [{"role": "user", "content": _MARK}], empty_system)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Around renderings of a template that may be a stranger's: an error where they take too long, or too much memory. Only in
    the main thread, to which alone signals go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {_SECONDS:.0f} seconds")

    before, limits = signal.signal(signal.SIGPROF, stop), resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_PROF, _SECONDS, 1.0)  # again each second, as a template may catch it
    try:
        with contextlib.suppress(OSError, ValueError):  # not of every system
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + _BYTES
            resource.setrlimit(resource.RLIMIT_AS, (held if limits[0] < 0 else min(held, limits[0]), limits[1]))
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _settle(tokenizer: Any, user: list[dict[str, str]], empty_system: bool) -> None:
    text = render(tokenizer, user)
    if _MARK not in text:
        raise ValueError("it leaves the question out")
    if len(text) > _LONGEST:
        raise ValueError(f"it writes {len(text):,} characters around a question")
    _fix_date(tokenizer, user)
    if render(tokenizer, user, enable_thinking=False) != render(tokenizer, user):
        tokenizer.chat_template = _NO_THINKING + tokenizer.chat_template
    if empty_system and _shorter_by_empty_system(tokenizer, user):
        tokenizer.chat_template = _EMPTY_SYSTEM + tokenizer.chat_template
    if _SYSTEM_FIRST not in tokenizer.chat_template:
        tokenizer.chat_template = _SYSTEM_FIRST + tokenizer.chat_template


def _shorter_by_empty_system(tokenizer: Any, user: list[dict[str, str]]) -> bool:
    try:
        short = render(tokenizer, [{"role": "system", "content": ""}, *user])
    except Exception:  # templates raise whatever they like at a role they do not know
        return False
    return _MARK in short and len(encode(tokenizer, short)) < len(encode(tokenizer, render(tokenizer, user)))


def _fix_date(tokenizer: Any, messages: list[dict[str, str]]) -> None:
    """Have the template write one date every day: transformers gives it ``strftime_now``, and llama.cpp ``date_string``."""
    template = tokenizer.chat_template
    if "strftime_now" in template and "macro strftime_now" not in template:
        formats = [text for _, text in _NOW.findall(template) if not set(text) & set("'\\")]
        cases = "".join(f"{{%- if format == '{text}' -%}}{_DATE:{text}}{{%- else -%}}" for text in dict.fromkeys(formats))
        ends = "{%- endif -%}" * len(set(formats))
        tokenizer.chat_template = (
            f"{{%- macro strftime_now(format) -%}}{cases}{_DATE:%d %b %Y}{ends}{{%- endmacro -%}}\n" + template
        )
    if "date_string" in template and _DATE_STRING not in template:
        before = tokenizer.chat_template
        text = render(tokenizer, messages)
        tokenizer.chat_template = _DATE_STRING + before
        if render(tokenizer, messages) != text:
            tokenizer.chat_template = before


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, unchanged: no BOS or EOS added."""
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def prompt_text(tokenizer: Any, user_text: str) -> str:
    """A user's text in the chat template, up to where the assistant begins to write.

    The text is sanitised here (again, if the caller has done so). Encode the result without adding special tokens.
    """
    return render(tokenizer, [{"role": "user", "content": sanitise(user_text, tokenizer)}], enable_thinking=False)


def conversation_text(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """A conversation in the chat template, up to where the assistant begins to write; every text of it is sanitised.

    ``messages`` have a ``role`` (system, user or assistant) and a ``content``, the last is the user's. Of one message of the user
    it is what `prompt_text` gives. ``CirfError`` where the template has no place for such a conversation.
    """
    safe = [{"role": message["role"], "content": sanitise(message["content"], tokenizer)} for message in messages]
    try:
        return render(tokenizer, safe, enable_thinking=False)
    except Exception as error:  # templates raise whatever they like
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise CirfError(f"the model's chat template refuses this conversation ({reason}); ask one question by itself") from None


def sanitise(text: str, tokenizer: Any, keep: Collection[int] = ()) -> str:
    """The text with every added token broken by a space, so that it cannot inject a role, an end or a functional token.

    ``<|im_end|>`` becomes ``< |im_end|>``. The tokenizer itself finds the parts that would become added tokens, again until there
    are none. Added tokens of blanks alone are harmless and stay; ids in ``keep`` are let pass.
    """
    forbidden = _added_ids(tokenizer) - set(keep)
    for _ in range(len(text) + 1):
        hits = _hits(text, tokenizer, forbidden)
        if not hits:
            return text
        for start, end in reversed(hits):
            while start < end - 1 and text[start].isspace():  # a token may claim the blanks around it
                start += 1
            # A token of one character cannot be broken: it goes.
            text = text[: start + 1] + " " + text[start + 1 :] if end - start > 1 else text[:start] + text[end:]
    raise CirfError(f"this text cannot be made safe for the tokenizer: {text[:60]!r}; remove the control tokens in it")


def _hits(text: str, tokenizer: Any, forbidden: frozenset[int]) -> list[tuple[int, int]]:
    """The stretches of a text that would become forbidden tokens, in order."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast)
    if forbidden.isdisjoint(encoded.input_ids):
        return []
    if tokenizer.is_fast:
        spans = zip(encoded.input_ids, encoded.offset_mapping, strict=True)
        found = [(token, (start, end)) for token, (start, end) in spans if token in forbidden]
        # A character that the vocabulary does not hold becomes the unknown token by right.
        return [(s, e) for token, (s, e) in found if token != tokenizer.unk_token_id or tokenizer.unk_token in text[s:e]]
    names = {tokenizer.convert_ids_to_tokens(token) for token in encoded.input_ids if token in forbidden}
    return sorted((text.find(name), text.find(name) + len(name)) for name in names if name in text)


def _added_ids(tokenizer: Any) -> frozenset[int]:
    known = _added.get(tokenizer)
    if known is None or known[0] != len(tokenizer):
        ids = {token for text, token in tokenizer.get_added_vocab().items() if text.strip()} | set(tokenizer.all_special_ids)
        _added[tokenizer] = known = (len(tokenizer), frozenset(ids))
    return known[1]


def end_token(tokenizer: Any) -> int:
    """The id that closes the assistant's turn: what the template writes first after its text, else the EOS token. ``CirfError``:
    the tokenizer has neither."""
    turn = [{"role": "user", "content": _MARK}, {"role": "assistant", "content": _REPLY}]
    after = render(tokenizer, turn, generation=False).rpartition(_REPLY)[2]
    added = _added_ids(tokenizer) - {tokenizer.unk_token_id}  # what the template writes may not be in the vocabulary
    closing = next((token for token in encode(tokenizer, after) if token in added), tokenizer.eos_token_id)
    if closing is None:
        raise CirfError("the tokenizer has no end token, so the model could never learn to stop; set its eos_token")
    return int(closing)


def stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every id that ends an answer, the end of the turn first: the tokenizer's EOS and the model's own list besides."""
    listed = model.generation_config.eos_token_id if model.generation_config is not None else None
    own = [one for one in (listed if isinstance(listed, list) else [listed]) if isinstance(one, int)]  # a file's, perhaps odd
    return list(dict.fromkeys(int(i) for i in [end_token(tokenizer), tokenizer.eos_token_id, *own] if i is not None))


def unloaded(folder: str) -> SimpleNamespace:
    """Of a saved model what `stop_ids` reads, its `generation_config.json`; no weights are read."""
    from transformers import GenerationConfig

    try:
        return SimpleNamespace(generation_config=GenerationConfig.from_pretrained(folder))
    except OSError:  # a model without one
        return SimpleNamespace(generation_config=None)


def before_template(template: str, statement: str) -> str:
    """A settled chat template with one more statement, which finds a system message in the user's turn already."""
    first, rest = (_SYSTEM_FIRST, template.removeprefix(_SYSTEM_FIRST)) if template.startswith(_SYSTEM_FIRST) else ("", template)
    return first + statement + rest


def response_template(tokenizer: Any, start: str, end: str) -> dict[str, Any]:
    """How `transformers serve` and `vllm serve` cut an answer into ``thinking`` (the trace) and ``content`` (the answer)."""
    user = [{"role": "user", "content": _MARK}]
    prompt = render(tokenizer, user).removesuffix(start)  # the parser must see a delimiter that the prompt holds
    bare = render(tokenizer, user, generation=False)
    header = prompt.removeprefix(bare) if prompt.startswith(bare) else ""
    anchor = header or prompt.rpartition(_MARK)[2]
    closing = [tokenizer.convert_ids_to_tokens(end_token(tokenizer)), tokenizer.eos_token, tokenizer.pad_token]
    return {
        "defaults": {"role": "assistant"},
        **({"start_anchor": anchor} if anchor else {"start_anchor_pattern": r"\A"}),
        "fields": {
            "thinking": {"open": start, "close": end, "content": "text"},
            "content": {"close": list(dict.fromkeys(token for token in closing if token)), "content": "text"},
        },
    }
