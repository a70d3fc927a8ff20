r"""What a reasoning model thought, apart from what it answered: ``<think>...</think>``, and the harmony format's channels."""

import re
from collections.abc import Sequence

_NAMES = r"(?:think|thinking|thoughts?|thought_process|reasoning|scratchpad|reflection|seed:think)"
_MARK = re.compile(
    rf"<[ ]?\|?[ ]?(?P<xml>/?)[ ]?{_NAMES}(?:[ ][^<>\n]{{0,80}}=[^<>\n]{{0,80}})?[ ]?\|?>"
    r"|\[(?P<square>/?)THINK\]|◁(?P<kimi>/?)think▷|<\|(?P<long>begin|end)_of_thought\|>"
    rf"|<\|(?P<loud>START|END)_THINKING\|>|<\|{_NAMES}_(?P<last>start|begin|end)\|>",
    re.I,
)
_ESCAPED = re.compile(rf"&lt;(/?{_NAMES})&gt;", re.I)
_FORMS = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r"<\|channel>thought\b(?P<thought>.*?)<channel\|>(?P<rest>.*)",  # Gemma 4
        r"<\|im_start\|>think\n(?P<thought>.*?)(?:<\|im_end\|>)?\s*<\|im_start\|>answer\n(?P<rest>.*?)(?:<\|im_end\|>)?\s*",  # s1
        r"Here (?:is|are) my (?:thought process|reasoning steps):(?P<thought>.*?)"  # Granite, Apriel
        r"\n\s*(?:Here is my response:|\[BEGIN FINAL RESPONSE\])(?P<rest>.*?)(?:\[END FINAL RESPONSE\])?\s*",
        r"<details\b[^>\n]*\breasoning\b[^>\n]*>\s*(?:<summary>[^<\n]*</summary>)?(?P<thought>.*?)</details>(?P<rest>.*)",
    )
)
_OWN = re.compile(  # a pair of marks with another name, around all that precedes the answer
    r"\s*(?:<(?P<tag>[A-Za-z][\w:-]*)>(?P<tagged>.*?)</(?P=tag)>|\[(?P<square>[A-Za-z][\w -]*)\](?P<squared>.*?)\[/(?P=square)\]"
    r"|<\|(?P<bar>\w+)\|>(?P<barred>.*?)<\|/(?P=bar)\|>)(?P<gap>\s*)(?P<rest>\S.*)",
    re.S,
)
_NO_THOUGHT = re.compile(  # names of what is no thought: an answer, a part of a page or a picture
    r"(?:final[ _-]?)?(?:answer|solution|response|output|result)|final|question|problem|step|math|latex|asy|code|python|"
    r"tool_call|html|body|div|span|p|b|i|u|em|strong|sup|sub|h\d|ul|ol|li|dl|dt|dd|table|thead|tbody|tr|th|td|pre|br|details|"
    r"a|s|q|tt|kbd|var|cite|small|big|mark|center|title|head|header|footer|main|section|article|blockquote|quote|figure|svg|form|label|"
    r"img|inst|sys|system|user|assistant",
    re.I,
)
_GOES_ON = re.compile(r"[,;.)=]|[a-z]\S*\s+\S+\s+\S")  # a sentence with a mark in it: "<person>Bob</person> has the most."
_CLOSES = ("/", "end")
_MARK_LENGTH = 200
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)[^\n]{0,200}?<\|message\|>")
_CONTROL = re.compile(r"<\|(?:start|end|return|message|call|channel|constrain)\|>(?:assistant\b)?")
_UNMARKED = re.compile(r"\A\s*(?:assistant\s*)?analysis(?=[A-Z\s])(?P<thought>.*)assistant\s?final(?P<rest>.*)\Z", re.S)
_ANSWER = r"(?:final[_ ]?)?(?:answer|response|output|solution|result)|final"
_WITHIN = ("tagged", "barred", "squared", "solved", "begun")
_WRAPPED = re.compile(
    rf"\A\s*(?:<(?P<name>{_ANSWER})>(?P<tagged>.*)</(?P=name)>|<\|(?P<bar>{_ANSWER})\|>(?P<barred>.*)<\|/(?P=bar)\|>"
    rf"|\[(?P<square>{_ANSWER})\]:?(?P<squared>.*)\[/(?P=square)\]"
    r"|<\|begin_of_solution\|>(?P<solved>.*)<\|end_of_solution\|>"
    r"|\[BEGIN FINAL RESPONSE\](?P<begun>.*)\[END FINAL RESPONSE\])\s*\Z",
    re.S | re.I,
)


def split_thoughts(text: str, own_names: bool = True) -> tuple[str, str]:
    """The thoughts of a text and the rest, without their marks; no thoughts and the unchanged text if it has no marks. Text
    before a closing mark without an opening one is a thought, as is all text after an opening one that is never closed. A pair of
    marks with any other name (``<work>...</work>``) holds thoughts if it opens the text and an answer follows, unless
    ``own_names`` is false."""
    if "<|channel|>" in text:
        return _harmony(text)
    if (formed := _in_another_form(text, own_names)) is not None:
        return formed
    text = _ESCAPED.sub(r"<\1>", text)
    if (unmarked := _UNMARKED.match(text)) is not None:  # a server that leaves the special tokens out
        return unmarked["thought"].strip(), unmarked["rest"].strip()
    thoughts: list[str] = []
    rest: list[str] = []
    start, thinking, marked = 0, False, False
    for mark in _MARK.finditer(text):
        marked = True
        said = text[start : mark.start()]
        if _closes(mark):
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


def declared(text: str, delimiter: Sequence[str]) -> str:
    """A text with its thoughts in ``<think>`` tags, by the pair of marks around them, or by the last of the one mark between them
    and the answer, where it is on a line of its own if it ever is. One more at the end of the text is left out."""
    if not delimiter:
        return text
    opening, *closing = delimiter
    last, whole = (closing or delimiter)[0], text.rstrip()
    if whole.endswith(last) and (not closing or whole.count(last) > whole.count(opening)):  # it sets nothing off
        barer = whole.removesuffix(last).rstrip()
        text = barer if last in barer else text
    if closing:
        return text.replace(opening, "<think>").replace(closing[0], "</think>")
    apart = re.split(rf"^[ \t]*{re.escape(opening)}[ \t]*$", text, flags=re.M)
    before, _, rest = text.rpartition(opening) if len(apart) == 1 else (opening.join(apart[:-1]), opening, apart[-1])
    return f"<think>{before.strip()}</think>\n{rest.strip()}" if before.strip() and rest.strip() else text


def thoughts_apart(output: str) -> tuple[str, str]:
    """The thoughts of a model's answer and the rest, as `split_thoughts` gives them; but an answer may also name such marks. Its
    thoughts open it, begin at ``<think>``, or end at a closing mark that text follows. The output unchanged if it has none."""
    marks, end = list(_MARK.finditer(output)), len(output)
    while marks and _closes(marks[-1]) and not output[marks[-1].end() : end].strip():
        end = marks.pop().start()
    if not marks:
        return split_thoughts(output, own_names=False) if end == len(output) else ("", output)
    first = marks[0]
    begins = "think" in first[0].casefold() or not output[: first.start()].strip()
    opens = begins and not _closes(first) and bool(output[first.end() : end].strip())
    return split_thoughts(output[:end], own_names=False) if opens or _closes(first) else ("", output)


def _closes(mark: re.Match[str]) -> bool:
    return (mark[mark.lastgroup or 0] or "").casefold() in _CLOSES


def opens_thoughts(prompt: str) -> str:
    """The opening mark that a rendered prompt ends with, so that an output begins within thoughts; empty if there is none."""
    end = prompt.rstrip()
    marks = [mark for mark in _MARK.finditer(end, max(0, len(end) - _MARK_LENGTH)) if mark.end() == len(end)]
    return next((mark[0] for mark in marks if not _closes(mark)), "")


def unwrapped(text: str) -> str:
    """A text without the tags of an answer or a solution around all of it."""
    found = _WRAPPED.match(text)
    return text if found is None else next(filter(None, map(found.group, _WITHIN)), "").strip()


def _in_another_form(text: str, own_names: bool) -> tuple[str, str] | None:
    """The thoughts and the rest where a text has one of the forms without marks of their own, or, with ``own_names``, a pair of
    marks around all that precedes its answer."""
    if not text.lstrip().startswith(("<", "[", "Here ")):
        return None
    for form in _FORMS:
        if (found := form.fullmatch(text.strip())) is not None:
            return found["thought"].strip(), found["rest"].strip()
    own = _OWN.fullmatch(text) if own_names else None
    if own is None or _MARK.search(text):
        return None
    name = own["tag"] or own["square"] or own["bar"]
    goes_on = "\n" not in own["gap"] and _GOES_ON.match(own["rest"])
    if goes_on or _NO_THOUGHT.fullmatch(name) or name in own["rest"]:
        return None
    return (own["tagged"] or own["squared"] or own["barred"] or "").strip(), own["rest"].strip()


def _harmony(text: str) -> tuple[str, str]:
    channels = list(_CHANNEL.finditer(text))
    thoughts = [text[: channels[0].start() if channels else len(text)]]
    rest: list[str] = []
    for index, channel in enumerate(channels):
        end = channels[index + 1].start() if index + 1 < len(channels) else len(text)
        (rest if channel[1] == "final" else thoughts).append(text[channel.end() : end])
    return _joined([_CONTROL.sub("", part) for part in thoughts]), _joined([_CONTROL.sub("", part) for part in rest])


def _joined(parts: list[str]) -> str:
    return "\n\n".join(tidy for part in parts if (tidy := part.strip()))
