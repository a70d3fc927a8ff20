"""The question and the target of a conversation: a list of turns, a chat in one text, or the log of a request to a model.

What the assistant and its tools said after the last question is the target, thoughts in tags, and all before is the question.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cirf.store.jsonl import RowError
from cirf.tasks.loading.targets import ended, is_bare_answer
from cirf.tasks.parsing.thoughts import split_thoughts

_PARTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")  # of a turn, and types of its content's parts
_ASKS = ("human", "inst", "/sys", "instruction", "input", "question")
_REPLIES = ("gpt", "model", "bot", "function_call", "/inst", "response", "answer", "output")
_ROLES = dict.fromkeys(_ASKS, "user") | dict.fromkeys(_REPLIES, "assistant") | {"developer": "system", "sys": "system"}
_ROLES |= dict.fromkeys(("function", "ipython", "observation"), "tool") | {"begin▁of▁sentence": "system"}
_BY, _SAYS = ("role", "from", "speaker", "author"), ("content", "value", "parts", "text")  # who says a turn, and what
_PAIR = (("system", "system"), ("user", "input"), ("assistant", "output"))
_SIGNS = re.compile(  # of chat templates
    r"<\|im_start\|>[ ]*(system|developer|user|assistant|tool)\b\s*|<\|start_header_id\|>(\w+)<\|end_header_id\|>\s*"
    r"|<start_of_turn>(user|model)\b\s*|<\|(system|user|assistant)\|>\s*|\[(/?INST)\]|<<(/?SYS)>>"
    r"|<｜(begin▁of▁sentence|User|Assistant)｜>\s*"
)
_WORDS = re.compile(  # in front of lines: "### Response:", "Human:"
    r"^##+[ ]*(instruction|input|question|response|answer|output|user|assistant)[ ]*:?[ ]*$"
    r"|^(?:#+[ ]*)?(human|user|question|q|assistant|answer|a(?![^\n]*\nb[ ]*:))[ ]*:(?!\S)",
    re.I | re.M,
)
_PREFACE = re.compile(r"\s*(?:below is an instruction[^\n]*\s+)?\Z", re.I)
_ANSWERS = ("response.body.choices.0.message", "response.choices.0.message", "choices.0.message", "result.message", "message")
_REQUESTS = ("request.body.messages", "request.messages", "body.messages", "params.messages", "messages")


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def first_text(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((row[name] for name in names if is_text(row.get(name))), None)


def are_turns(value: Any) -> bool:
    return isinstance(value, list) and any(role_of(turn) for turn in value)


def conversation(turns: Sequence[Any], where: str) -> tuple[str, str]:
    """The question and the target of a conversation, thoughts in tags. ``RowError`` without an answer or a question."""
    turns_given = list(_parted(turns))
    said = [turn_of(turn, where) for turn in turns_given]
    last = max((index for index, (role, _) in enumerate(said) if role == "assistant"), default=None)
    if last is None:
        raise RowError(where, "the conversation has no turn of the assistant; add the answer, or leave the row out")
    said = [(role, text) for role, text in said[:last] if text] + [said[last]]
    asks = max((index for index, (role, _) in enumerate(said[:-1]) if role not in ("assistant", "tool", "system")), default=None)
    if asks is None:
        raise RowError(where, "the conversation has no turn of the user before the assistant's last")
    asked = [(role, split_thoughts(text)[1]) for role, text in said[: asks + 1] if role != "system"]
    summary = [text for role, text in said[:-1] if role == "system"]
    question = asked[0][1] if len(asked) == 1 else "\n".join(f"{role.capitalize()}: {text}" for role, text in asked)
    if not (target := said[-1][1]):
        given = turns_given[last]
        parts = given["content"] if isinstance(given.get("content"), list) else []
        thinks = _thought_beside(given) or any(isinstance(part, Mapping) and _is_thought(part) for part in parts)
        raise RowError(where, f"the assistant's last turn {'has thoughts but no answer' if thinks else 'is empty'}")
    if (calls := "\n".join(_calls(turns_given[last]))) and split_thoughts(target)[1] == calls:
        message = "the assistant's last turn only calls tools; add its answer, or leave the row out"
        raise RowError(where, message, "the assistant's last turn only calls tools")
    after = [(role, "\n".join(filter(None, split_thoughts(text)))) for role, text in said[asks + 1 : -1] if role != "system"]
    working = "\n".join(f"= {text}" if role == "tool" else text for role, text in after).replace(")\n= ", ") = ")
    if working:
        thought, rest = split_thoughts(target)
        within = thought or is_bare_answer(rest.strip())
        target = f"<think>{working}\n{thought}</think>{rest}" if within else f"{working}\n{target}"
    return "\n\n".join([*dict.fromkeys(summary), question]), target


def _parted(turns: Sequence[Any]) -> Iterator[Any]:
    """Turns one by one, where an object may hold both (``{"input": ..., "output": ...}``), or the reasoning before an answer
    (``{"type": "reasoning", "summary": [...]}``)."""
    thought = None
    for turn in turns:
        if isinstance(turn, Mapping) and is_text(turn.get("input")) and is_text(turn.get("output")):
            yield from ({"role": role, "content": turn[name]} for role, name in _PAIR if is_text(turn.get(name)))
        elif isinstance(turn, Mapping) and turn.get("type") == "reasoning":
            thought = thought_of([*(turn.get("summary") or ()), *(turn.get("content") or ())])
        else:
            yield {**turn, "reasoning_content": thought} if thought and role_of(turn) == "assistant" else turn


def role_of(turn: Any) -> str | None:
    """Who says a turn of a conversation; ``None`` of anything else."""
    role = next((turn[name] for name in _BY if name in turn), None) if isinstance(turn, Mapping) else None
    return _ROLES.get(role.casefold(), role.casefold()) if isinstance(role, str) else None


def turn_of(turn: Any, where: str) -> tuple[str, str]:
    """The role and the text of a turn, with its thoughts in tags and its calls of tools one a line."""
    if (role := role_of(turn)) is None:
        raise RowError(where, "a turn of the conversation is not an object with role and content")
    content = next((turn[name] for name in _SAYS if name in turn), None)
    thoughts: list[str] = []
    if isinstance(content, list):
        parts = [{"text": part} if isinstance(part, str) else part for part in content if isinstance(part, (str, Mapping))]
        thoughts = [thought for part in parts if _is_thought(part) if (thought := thought_of([part]))]
        role = "tool" if any(part.get("type") == "tool_result" for part in parts) else role
        content = "".join(first_text(part, ("text", "content")) or "" for part in parts if not _is_thought(part))
    if content is not None and not isinstance(content, str):
        raise RowError(where, "the content of a turn is not a text")
    text = "\n".join(filter(None, (ended(content or "").strip(), *_calls(turn))))
    thought = _thought_beside(turn) or "\n".join(thoughts) or None
    return role, f"<think>{thought}</think>{text}" if thought is not None and role == "assistant" and text else text


def _thought_beside(turn: Mapping[str, Any]) -> str | None:
    return next(filter(None, (thought_of(turn.get(name)) for name in _PARTS)), None)


def thought_of(value: Any) -> str | None:
    """The thoughts that are a text, or texts or objects with texts in a list (``[{"type": "reasoning.text", "text": ...}]``)."""
    if isinstance(value, Mapping):
        return next(filter(None, (thought_of(value.get(name)) for name in ("text", *_PARTS, "summary"))), None)
    if isinstance(value, list):
        return "\n".join(filter(None, map(thought_of, value))) or None
    return value if is_text(value) else None


def _is_thought(part: Mapping[str, Any]) -> bool:
    return part.get("type") in _PARTS or part.get("thought") is True


def _calls(turn: Mapping[str, Any]) -> list[str]:
    """The calls of tools in a turn, by its side or among the parts of its content."""
    beside = turn["tool_calls"] if isinstance(turn.get("tool_calls"), list) else [turn.get("function_call")]
    parts = next((turn[name] for name in _SAYS if isinstance(turn.get(name), list)), ())
    within = (part for part in parts if isinstance(part, Mapping) and part.get("type") == "tool_use")
    return [made for call in (*beside, *within) if (made := _call(call))]


def _call(call: Any) -> str:
    """A call of a tool, ``calculator(3*4)``; nothing of anything else."""
    made = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(made, Mapping) or not is_text(made.get("name")):
        return ""
    given = made.get("arguments", made.get("input"))
    if isinstance(given, str):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    values = given.values() if isinstance(given, Mapping) else [given]
    return f"{made['name']}({', '.join(map(str, values))})"


def marked_turns(text: str, open_end: bool = False) -> list[dict[str, str]] | None:
    """The turns of a chat in one text, by the signs of a chat template, or by words in front of lines (``### Response:``,
    ``Human:``) if the text opens with one, and with ``open_end`` ends in one; ``None`` of another text."""
    marks = list(_SIGNS.finditer(text)) or list(_WORDS.finditer(text))
    ends = not open_end or (marks and not text[marks[-1].end() :].strip())
    if not marks or (marks[0].re is _WORDS and not (ends and _PREFACE.match(text[: marks[0].start()]))):
        return None
    turns: list[dict[str, str]] = []
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(text)], strict=True):
        name = (mark[mark.lastindex or 0] or "").casefold()
        role, said = _ROLES.get({"q": "question", "a": "answer"}.get(name, name), name), ended(text[mark.end() : end]).strip()
        if turns and turns[-1]["role"] == role:
            between = "\n\n" if mark.re is _SIGNS or role == "user" else f"\n{mark[0]}"  # an answer may have a line "Answer: 17"
            turns[-1]["content"] = f"{turns[-1]['content']}{between}{said}".strip()
        elif said or role == "assistant":
            turns.append({"role": role, "content": said})
    return turns if [turn["role"] for turn in turns if turn["role"] != "system"][:2] == ["user", "assistant"] else None


def logged(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The ``prompt`` and ``completion`` of a log (``{"request": {"messages": ...}, "response": {"choices": [...]}}``); nothing of
    another row. ``RowError`` for an answer without its question."""
    answer = next((found for path in _ANSWERS if role_of(found := inside(row, path)) == "assistant"), None)
    asked = next((found for path in _REQUESTS if are_turns(found := inside(row, path))), None)
    if answer is None:
        return {}
    if asked is None and not first_text(row, ("question", "prompt", "problem", "input")):
        raise RowError(where, "a model's answer without its question; add the `messages` of the request to the row")
    choices = None if inside(row, "choices.0.message") else row.get("choices")
    return {"completion": turn_of(answer, where)[1], "choices": choices} | ({"prompt": asked, "messages": None} if asked else {})


def inside(value: Any, path: str) -> Any:
    """What a path such as ``qa.answers.0`` leads to; ``None`` where it leads nowhere."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        else:
            value = value[int(part)] if isinstance(value, list) and part.isdecimal() and int(part) < len(value) else None
    return value
