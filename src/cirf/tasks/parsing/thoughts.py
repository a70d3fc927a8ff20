r"""What a reasoning model thought, apart from what it answered: ``<think>...</think>``, and the harmony format's channels."""

from __future__ import annotations

import re

_NAMES = r"(?:think|thinking|thoughts?|reasoning|scratchpad|seed:think)"
_MARK = re.compile(
    rf"<(?P<xml>/?){_NAMES}>|\[(?P<square>/?)THINK\]|◁(?P<kimi>/?)think▷|<\|(?P<long>begin|end)_of_thought\|>"
    r"|<\|(?P<loud>START|END)_THINKING\|>",
    re.IGNORECASE,
)
_CLOSES = ("/", "end")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)[^\n]{0,200}?<\|message\|>")
_CONTROL = re.compile(r"<\|(?:start|end|return|message|call|channel|constrain)\|>(?:assistant\b)?")
_UNMARKED = re.compile(r"\A\s*(?:assistant\s*)?analysis(?=[A-Z\s])(?P<thought>.*)assistant\s?final(?P<rest>.*)\Z", re.DOTALL)
_WRAPPED = re.compile(
    r"\A\s*(?:<answer>(?P<tagged>.*)</answer>|<\|begin_of_solution\|>(?P<solved>.*)<\|end_of_solution\|>)\s*\Z",
    re.DOTALL | re.IGNORECASE,
)


def split_thoughts(text: str) -> tuple[str, str]:
    """The thoughts of a text and the rest, without their marks; no thoughts and the unchanged text if it has no marks.

    Text before a closing mark without an opening one is a thought, as is all text after an opening one that is never closed.
    """
    if "<|channel|>" in text:
        return _harmony(text)
    if (unmarked := _UNMARKED.match(text)) is not None:  # a server that leaves the special tokens out
        return unmarked["thought"].strip(), unmarked["rest"].strip()
    thoughts: list[str] = []
    rest: list[str] = []
    start, thinking, marked = 0, False, False
    for mark in _MARK.finditer(text):
        marked = True
        said = text[start : mark.start()]
        if (mark["xml"] or mark["square"] or mark["kimi"] or mark["long"] or mark["loud"] or "").casefold() in _CLOSES:
            thoughts += [said] if thinking else [*rest, said]
            rest = rest if thinking else []
            thinking = False
        else:
            (thoughts if thinking else rest).append(said)
            thinking = True
        start = mark.end()
    if not marked:
        return "", text
    (thoughts if thinking else rest).append(text[start:])
    return _joined(thoughts), _joined(rest)


def unwrapped(text: str) -> str:
    """A text without the tags of an answer or a solution around all of it."""
    found = _WRAPPED.match(text)
    return text if found is None else (found["tagged"] or found["solved"] or "").strip()


def _harmony(text: str) -> tuple[str, str]:
    channels = list(_CHANNEL.finditer(text))
    thoughts = [text[: channels[0].start() if channels else len(text)]]
    rest: list[str] = []
    for place, channel in enumerate(channels):
        end = channels[place + 1].start() if place + 1 < len(channels) else len(text)
        (rest if channel[1] == "final" else thoughts).append(text[channel.end() : end])
    return _joined([_CONTROL.sub("", part) for part in thoughts]), _joined([_CONTROL.sub("", part) for part in rest])


def _joined(parts: list[str]) -> str:
    return "\n\n".join(tidy for part in parts if (tidy := part.strip()))
