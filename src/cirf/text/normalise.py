r"""A rationale in plain form: without markdown, LaTeX and calculator notes, one statement or formula per line.

A worked example::

    ### Step 1: Count the meals        Step 1: Count the meals
    - 2 adults                         2 adults
    - **5** children            ->     5 children
    \[                                 Total = 2 + 5 = 7
    \text{Total} = 2 + 5 = 7
    \]                                 Conclusion:
    ### Conclusion                     7 meals at $8
    \( \boxed{7} \) meals at $8

Numbered items of a list within an item stay indented, by two spaces. Ordinal marks, numbers, headings' words and answer lines
(``#### 72``) stay: segmentation reads them. Normalising is idempotent up to 100 nested marks, and no digit is lost but those
inside ``<<...>>`` and in the code of drawings (``[asy]``).
"""

import html
import re
from typing import Literal

Annotations = Literal["drop", "keep"]

_ANNOTATION = re.compile(r"<<[^<>\n]*>>")
_INVISIBLE = re.compile("[\u200b\u200c\u200d\u2060\ufeff]")
_NEWLINE = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]|</?(?:br|p|li|ul|ol|div|step\b[^<>\n]*) ?/?>")
_ENTITY = re.compile(r"&(?:times|minus|divide|nbsp|lt|gt|le|ge|ne|amp|quot|deg|pi|euro|pound);")
_INLINE_TAG = re.compile(r"<(b|strong|i|em|u)>([^<>\n]*)</\1>")
_WRITTEN_NEWLINE = re.compile(r"(?<!\\)\\n(?=[A-Z0-9*#\s(-]|\\n|$)(?![LRV])")  # a newline escaped twice; not \nLeftarrow
_WRITTEN_STEP = re.compile(r"\\n(?:Step\b|\d{1,2}[.):])")
_GROUPS = re.compile(r"(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")  # a space of these would part a number
_BLANK = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\n{3,}")

_ITEM = re.compile(r"^([ \t]*)(?=(?:\*\*)?(?:(\d{1,2})[.):]|\((\d{1,2})\))(?:\s|\*|$))", re.M)
_INNER = "\ue000"

# --- markdown -----------------------------------------------------------------------------------------------------------
_FENCE = re.compile(r"^ ?```[A-Za-z+]*$", re.M)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# The text between two marks ends where the next one opens, or has a bound: a mark opened ten thousand times and never closed
# would be searched to the end each time.
_BOLD = re.compile(r"(?<![\w*)])\*\*(?=[^\s*])(.{1,2000}?)(?<=[^\s])\*\*(?!\*)")
_ITALIC = re.compile(r"(?<![\w*)])\*(?=[A-Za-z\"'(])([^*\n]+?)(?<=[^\s*])\*(?![\w*])")
_UNDERSCORED = re.compile(r"(?<![\w\\])(__?)(?=[A-Za-z\"'(])([^_\n]+?)(?<=[^\s_])\1(?!\w)")
_BOLD_LINE = re.compile(r"^ ?\*\*([^\W\d_][^\s*:.!?=\d]*(?:[ ][^\W\d_][^\s*:.!?=\d]*){0,4}[ ]?)\*\* ?$(?=\s*\S)", re.M)
_RULE = re.compile(r"^ ?(?:-{3,}|\*{3,}|_{3,}|={3,}) ?$", re.M)
# Runs of marks at once, as below: one a pass would take as many passes as there are. Of headings' marks the last one counts; of
# ``####``, which may be an answer's, one a pass goes.
_TABLE_RULE = re.compile(r"^ ?\|?(?: ?:?-+:? ?\|)+(?: ?:?-+:? ?)?$", re.M)
_HEADING = re.compile(r"^ ?(?:(?!####[^#])#{1,6} +)*(#{1,6}) +([^\n]*)$", re.M)
_BULLET = re.compile(r"^ ?(?:[-*•◦▪‣] +)+(?=\S)", re.M)
_QUOTED = re.compile(r"^ ?(?:> ?)+(?![ \d.,$>]*$)", re.M)  # not a comparison with a number
_INK = re.compile(r"\S")
_STEP = re.compile(r"(?:step\b|\(?\d+[.):](?!\d))", re.I)  # not an amount: 3.5
_STEP_TITLE = re.compile(r"(?:step [\w#]+ ?[.)–—-]|\(?\d+[.)]) ?\w", re.I)

# --- LaTeX --------------------------------------------------------------------------------------------------------------
_DISPLAY = re.compile(r"\\\[((?:(?!\\\[).)*?)\\\]|\$\$(.*?)\$\$", re.S)
_ALIGNED = re.compile(
    r"\\begin\{(align|aligned|equation|gather|split|eqnarray)\*?\}((?:(?!\\begin|\\end).)*)\\end\{\1\*?\}", re.S
)
_INLINE = re.compile(r"\\\(((?:(?!\\\().)*?)\\\)", re.S)
_STRAY = re.compile(r"\\[\[\]()]")
# Pandoc's rule for $math$, and stricter: the text between must look like a formula, so that prices keep their sign.
_DOLLARS = re.compile(r"(?<![\\$\w])\$(?=[^\s$])((?:[^$\n\\]|\\.)*?[\w)}'%!])\$(?![\d$<])")
_FORMULA = re.compile(r"[\\^=_{<>]|^\S+$|^\(.+,.+\)$")
_FIGURE = re.compile(r"\[asy\](?:(?!\[asy\]).)*?\[/asy\]", re.S)  # a drawing's code
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[A-Za-z]+\*?\}")
# A run of them at once, sought from its first backslash alone: one a pass would take as many passes as there are.
_LINE_BREAK = re.compile(r"(?<!\\)(\\?)((?:\\\\)++)(?=\s|$)")
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt|bb|cal)|boldsymbol|operatorname|mbox|boxed|fbox|underline|overline)\*?"
    r"\s*\{([^{}]*)\}"
)
_REPEATING = re.compile(r"(?<=[\d.])\\overline\s*\{(\d+)\}")
_FRACTION = re.compile(r"(\d *)?\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"(\d *)?\\[dtc]?frac\s*(\d)\s*(\d)")
_BINOMIAL = re.compile(r"\\[dt]?binom\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\s*(?:\{([^{}]*)\}|(\d))")
_SCRIPT = re.compile(r"([\^_])\{([^{}]*)\}")
_SPACE = re.compile(r"\\(?:[,;:! ]|q?quad\b|left\b|right\b|displaystyle\b|[bB]igg?[lr]?\b)|~(?=\\)")
_ESCAPED = re.compile(r"\\([%$#&_{}])")
_SYMBOLS = {
    "times": "×", "cdot": "×", "ast": "×", "div": "/", "pm": "±", "approx": "≈", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥",
    "neq": "≠", "ne": "≠", "rightarrow": "->", "to": "->", "Rightarrow": "=>", "implies": "=>", "ldots": "...", "dots": "...",
    "cdots": "...", "infty": "∞", "pi": "π", "degree": "°", "circ": "°", "therefore": "∴", "because": "∵", "lt": "<", "gt": ">",
    "equiv": "≡",
}  # fmt: skip
_SYMBOL = re.compile(r"\\(" + "|".join(sorted(_SYMBOLS, key=len, reverse=True)) + r")(?![A-Za-z])")
_DEGREE = re.compile(r"\^(?:\{°\}|°)")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}(?=\d)|,\\!(?=\d{3}))")

# At a line's start the signs × and − are unchanged: written * and - they would be bullets.
_TIMES = re.compile(r"(?<=[^\s]) *× *(?=\S)")
_DIVIDED = re.compile(r" *÷ *")
_MINUS = re.compile(r"−(?! )|(?<=[^\n])−")
_NEGATIVE = re.compile(r"-\d+")  # a power
_SIMPLE = re.compile(r"[\w.,$%√°]+")

_PASSES = 100  # a bound on time: each pass removes one layer of nested marks

# Patterns that a pass could change; most short texts have none, and testing once is cheaper than substituting.
_ACTIVE = r"[^\n -~]|[\\_`]|\{,|\^\{|\*[*A-Za-z\"'(]|\$[^$\n]*\$|^[-*#> ]| $|  |===|--\||\[asy|</?\w{1,6}[ />]|\n{3}|&\w{2,6};"
_ACTIVE_FOR = {"keep": re.compile(_ACTIVE, re.M), "drop": re.compile(_ACTIVE + "|<<", re.M)}


def normalise(text: str, annotations: Annotations = "drop") -> str:
    """The plain form of a rationale (paper A.2, "normalized into a step-structured format"). ``annotations``: the treatment of
    calculator notes such as ``<<48/2=24>>``; ``keep`` leaves them for the rule that reads results. Idempotent up to 100 layers of
    marks: ``normalise(normalise(x)) == normalise(x)``; digits outside notes all stay, in order."""
    active = _ACTIVE_FOR[annotations]
    for _ in range(_PASSES):  # each pass removes what the previous one uncovered; every pass but the last shortens or simplifies
        if active.search(text) is None:
            return text.strip()
        plain = _once(text, annotations)
        if plain == text:
            break
        text = plain
    return text


def _once(text: str, annotations: Annotations) -> str:
    text = _NEWLINE.sub("\n", _INVISIBLE.sub("", text))
    if "\n" not in text and (len(_WRITTEN_NEWLINE.findall(text)) > 1 or _WRITTEN_STEP.search(text)):  # a single one may be code
        text = _WRITTEN_NEWLINE.sub("\n", text)
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if annotations == "drop":
        text = _ANNOTATION.sub("", text)
    text = _inner_items(text)
    if "[asy]" in text:
        text = _FIGURE.sub(" ", text)
    text = _INLINE_TAG.sub(r"\2", _THOUSANDS.sub(",", text))
    if "\\" in text or "$" in text or "^{" in text:
        text = _latex(text)
    text = _BLANK.sub(" ", _GROUPS.sub("", text))
    if any(mark in text for mark in "*_`#->•◦▪‣="):
        text = _markdown(text)
    text = _DIVIDED.sub(" / ", text)
    text = _TIMES.sub(" * ", text)
    text = _MINUS.sub("-", text)
    text = "\n".join(line.strip().replace(_INNER, "  ") for line in _BLANK.sub(" ", text).split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip()


def _inner_items(text: str) -> str:
    """The text with `_INNER` before the numbered items of a list within an item: those that are indented, counted from 1 on."""
    items = list(_ITEM.finditer(text))
    indents = [len(item[1].expandtabs(4)) for item in items]
    inner: set[int] = set()
    highest: dict[int, int] = {}
    for item, indent in zip(items, indents, strict=True):
        number = int(item[2] or item[3])
        if indent >= min(indents) + 2 and item is not items[0] and (number == 1 or number <= highest.get(indent, -1) + 1):
            highest[indent] = max(number, highest.get(indent, 0))
            inner.add(item.start())
        else:
            highest = {}
    return _ITEM.sub(lambda m: _INNER if m.start() in inner else m[1], text) if inner else text


def _latex(text: str) -> str:
    text = _DISPLAY.sub(lambda m: _display(m[1] or m[2] or ""), text)
    text = _ALIGNED.sub(lambda m: _display(m[2]), text)
    text = _INLINE.sub(lambda m: _joined(m[1]), text)
    text = _STRAY.sub(" ", text)
    text = _DOLLARS.sub(lambda m: m[1] if _FORMULA.search(m[1]) else m[0], text)
    if "\\" not in text:
        return _scripts(text)
    text = _ENVIRONMENT.sub(" ", text)
    text = _LINE_BREAK.sub(lambda m: m[1] + "\n" * (len(m[2]) // 2), text)
    text = _WRAPPER.sub(r"\1", _REPEATING.sub(r"\1...", text))
    text = _FRACTION.sub(lambda m: f"{_whole_part(m[1])}{_grouped(m[2])}/{_grouped(m[3])}", text)
    text = _SHORT_FRACTION.sub(lambda m: f"{_whole_part(m[1])}{m[2]}/{m[3]}", text)
    text = _BINOMIAL.sub(r"C(\1, \2)", text)
    text = _ROOT.sub(lambda m: f"√{_grouped(m[1] or m[2] or '')}", text)
    text = _SYMBOL.sub(lambda m: _SYMBOLS[m[1]], text)
    text = _scripts(_DEGREE.sub("°", text))
    text = _SPACE.sub(" ", text)
    return _ESCAPED.sub(r"\1", text)


def _display(formula: str) -> str:
    """A displayed formula on separate lines, one for each of its rows, without alignment marks."""
    rows = (_joined(row.replace("&", " ")) for row in re.split(r"\\\\", formula))
    return "\n" + "\n".join(row for row in rows if row) + "\n"


def _joined(formula: str) -> str:
    return " ".join(formula.split())


def _grouped(part: str) -> str:
    part = part.strip()
    return part if _SIMPLE.fullmatch(part) else f"({part})"


def _scripts(text: str) -> str:
    return _SCRIPT.sub(lambda m: m[1] + (m[2] if _NEGATIVE.fullmatch(m[2]) else _grouped(m[2])), text)


def _whole_part(digit: str | None) -> str:
    """The whole number before a fraction, kept apart from it: ``1\\frac{1}{2}`` is ``1 1/2``."""
    return f"{digit.strip()} " if digit else ""


def _markdown(text: str) -> str:
    text = _QUOTED.sub("", text)
    text = _TABLE_RULE.sub("", _RULE.sub("", _FENCE.sub("", text)))
    text = _CODE.sub(r"\1", text)
    text = _BOLD_LINE.sub(lambda m: f"{m[1].strip()}:" if m[1].strip()[-1:].isalpha() else m[0], text)
    text = _BOLD.sub(r"\1", text)
    text = _ITALIC.sub(r"\1", text)
    text = _UNDERSCORED.sub(r"\2", text)
    text = _BULLET.sub("", text)
    return _HEADING.sub(lambda m: _heading(m, text), text)


def _heading(match: re.Match[str], text: str) -> str:
    """A heading as a line, with a colon unless it opens a step; a short last line after ``####`` is an answer in GSM8K's
    form and stays."""
    words = match[2].rstrip(" #").strip()
    if match[1] == "####" and len(words) <= 60 and not _STEP.match(words) and not _INK.search(text, match.end()):
        return f"#### {words}" if words else ""
    titled = ":" in words or _STEP_TITLE.match(words)
    return words if not words or titled or not words[-1].isalpha() else f"{words}:"
