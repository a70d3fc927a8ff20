r"""The rationale and the answer of one text, such as a completion.

The answer is what ``\boxed{...}``, ``####`` or a last *The answer is ...* says, and the rest is the rationale. A text without
these has the answer that it opens with (*Yes, ...*), that it is as a whole if it is short, or that it concludes with:
``**Total:** $17``, ``So 17 are left.``
"""

import re
from collections.abc import Sequence
from fractions import Fraction

from cirf.tasks.parsing.anchors import (
    ENCLOSED,
    SENTENCE_END,
    anchors,
    denial,
    first_sentence,
    last_sentence,
    outright,
    places,
    states_answer_only,
)
from cirf.tasks.parsing.numeric import number_value, parse_number
from cirf.tasks.parsing.options import CHOICE_IS, IS_RIGHT
from cirf.tasks.parsing.texts import bare_quantity, block_of, tidy
from cirf.tasks.parsing.thoughts import split_thoughts, unwrapped
from cirf.tasks.steps.calculations import CONCLUDES, in_words, numbers_in, worked_out
from cirf.text.normalise import normalise
from cirf.text.numerals import find_numbers, number_text, only_word_value, plain_numbers, with_signs
from cirf.text.sentences import BETWEEN_SENTENCES

LAST_LINE = re.compile(r"\n([^\n]+)\s*\Z")
_LONGEST_ANSWER = 80  # characters of a target that is taken for a bare answer
_LONGEST_SENTENCE = 400  # characters of a sentence that states a result; a list of equations is none
_LONGEST_TITLE = 2  # words before a full stop that ends no sentence: Dr. No, St. Louis
_FEW_WORDS = 6  # behind a label; more are a sentence
OPENS = re.compile(  # not "No. of apples: 3", nor "Yes, let's see."
    r"\W{0,3}(yes|no|true|false|ja|nein|oui|non|s[íì]|sim|não|да|нет)\b"
    r"(?!(?<=\bno)\.\s*(?:of\b|\d))(?!\W{1,4}(?:let|wait)\b)\**(?:[.,:;!]|\s[-–—])\**(?=\s+\S)",
    re.I,
)
_LABEL = re.compile(
    r"(?:^|\n)[ \t#*_-]*(?:(?:final|grand|the)[ \t]+)?"
    r"(?:output|result|conclusion|verdict|total|decision|label|prediction|(?:score|rating|grade|class(?:ification)?|category|sentiment"
    r"|intent|topic|diagnosis|choice)(?=[*_ \t]*[:=][^\n]*\s*\Z))[*_ \t]*[:=][*_]*\s*",
    re.I,
)
_HEADED = re.compile(  # a last line below "=== ANSWER ===" or "## Final answer"
    r"(?:^|\n)[ \t]*(?!\w)[=#*_-]+[ \t]*(?:final[ \t]+)?answer[ \t]*[=*_#:-]*[ \t]*\n\s*(?:[-*•][ \t]+)?([^\n]+?)\s*\Z", re.I
)
_MONTH = r"(?:january|february|march|april|may|june|july|august|september|october|november|december)"
_IS_WHOLE = re.compile(  # a verdict with its reason, a date or an expression, whose number alone is no answer
    rf"\W*(?:(?:yes|no|true|false)\b|.*(?:\b{_MONTH}\s\d|\d(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}\b)"
    r"|(?=.*[a-z])(?!.*(?:[a-z]{2}|=)))",
    re.I,
)
_HEADING = re.compile(r"\b(?:answer|conclusion|summary|result)(?:\s+is)?\W*$", re.I)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_IS_BOLD = re.compile(
    r"(?!\W*(?:note|remember|recall|here|the (?:key|main|first|formula|rule|trick))\b).*"
    r"(?:\b(?:is|are|was|were|be|costs?|equals|has|have|takes?)|[=:])\s\$?\*\*([^*\n]{1,60})\*\*[^\w*]*\Z",
    re.I,
)
_MARKED_END = re.compile(r"(?:\*\*|`)([^*`\n]+)(?:\*\*|`)[\s.!]*\Z")
_ALONE_AT_END = re.compile(  # a last paragraph that is an answer and nothing else
    r"(?<=\S)[ \t]*\n[ \t]*\n\s{0,20}(?:[∴⇒→✅✓✔☑🎉👉]\ufe0f?\s?)?"
    r"(?:\*\*((?!(?:note|final|answer|solution|conclusion|explanation)\b)[^*\n:]{1,40}?)\*\*"
    r"|(yes|no|true|false|\([A-J]\)|[A-J]|[-$€£]?\d[\d,]*(?:\.\d+)?%?))[.!]?(?:\s?[☀-➿\U0001f300-\U0001faff\ufe0f])*\s*\Z",
    re.I,
)
_NO_RESULT = re.compile(  # a number that is still to be used, or a bound: "Finally, add 5.", "So x > 5."
    r"\b(?:add|subtract|divid|multipl)(?:e|y|ing|ying)?\b|(?:half|third|quarter|percent|%) of [$€£]?\d"
    r"|[<>≤≥]\s*[$€£]?-?\d|\b(?:more|less|fewer|greater|larger|smaller|higher|lower) than [$€£]?\d"
    r"|\b(?:not|never|theorem|lemma|chapter|section|step|rule|case|figure|table|example)\b|n[’']t\b",
    re.I,
)
_CORRECTS = re.compile(r"\b(?:but|however|wait|actually|wrong|incorrect|mistake|trap)\b", re.I)
_SUPPOSED = re.compile(  # not "I would say"
    r"\b(?:(?:one|you|people|some|someone|many|students?)\s(?:might|may|could|would|will|often)|tempt(?:ed|ing)\sto|easy\sto"
    r"|it (?:might|may|could) seem)\b",
    re.I,
)
_CONDITIONAL = re.compile(r"\bwould be\W*\Z", re.I)
_IF = re.compile(r"\b(?:if|unless)\b", re.I)
_LEADS = re.compile(
    r"\W*(?:that|this|it|which)(?:['’]s|\s(?:is|makes|leaves|gives|means|comes|totals|equals))\b|.*\bin total\W*\Z", re.I
)
_LOSS = re.compile(  # the sign that the answer has is not clear
    r"\b(?:loss|deficit|shortfall|overdrawn|in the red|in debt|under par|below (?:sea level|freezing|ground|par))\b"
    r"|\bdown (?:by )?[$€£]?\d",
    re.I,
)
_TIME = re.compile(r"(?<![\d:.])\d{1,2}:\d\d(?![\d:])(?:\s?[ap]\.?m\b)?|\b\d{1,2}\s?[ap]\.?m\b", re.I)
_IS_NAME = re.compile(
    r".*\b(?:is|are|was|were)\s(?:the\s)?([A-Z][\w'’-]+(?:\s(?:(?:of|de|van|von|da)\s)?[A-Z][\w'’.-]*){0,3})[.!]?\Z"
)
_SAYS = re.compile(r"(?:we|i|it|they|he|she|you|there|this|that)(?:['’]\w+)?\s+\w", re.I)  # "Result: we find that ..."
_SEVERAL = re.compile(r"=.*\bor\b|\bor\b.*=|\b([A-Za-z])\s?=\s?\S{1,20}\sand\s\1\s?=")
_SUM = re.compile(r"\d[^=]*\s[-+*/×÷]\s[^=]*\d")
_CLAUSE = re.compile(r"that\s", re.I)
_EXPLAINS = 3  # words behind a yes or no that explain it, and do not go on with a title
_WORD = re.compile(r"[^\W_]+")
_STATEMENT = re.compile(  # of a program: it prints a value that it does not say, or works one out of others
    r"[ \t]*(?:print\s?\(|return\s\S|[a-z_]\w*\s?=\s?(?![^\n]*=)"
    r"(?=[^\n]*\b[A-Za-z_]\w{2,}(?:\s?\*|\s[-+/%]\s)|[^\n]*(?:\*\s?|\s[-+/%]\s)[A-Za-z_]{3}"
    r"|[^\n]*\b(?!(?:sqrt|sin|cos|tan|log|ln|exp)\b)[A-Za-z_]\w*\())"
)
_NO_CONCLUSION = re.compile(  # a check, or what a calculation starts from
    r"\W*(?:note|remember|recall|if|where|let|for (?:example|instance))\b|\W*(?:since|because|as|using|given)\b(?![^\n]*,\s)"
    r"|.*(?:\b(?:check|verif|match|correct|consistent|indeed|confirm)|\?)",
    re.I,
)
_CALCULATES = re.compile(r"\d\s?[-+*/×÷]\s?[($€£]{0,3}\d")
_LETTERS = re.compile(r"[A-Za-z]{2}")
_COEFFICIENT = re.compile(r"\d[a-z]\b")  # "y = 3 - 2x" is an answer
_JOINED = re.compile(r"\b(?:and|or|but|while)\b|;|,\s")
_SECOND_VERDICT = re.compile(r"\b(?:yes|no|true|false)\b", re.I)
_SENTENCE = re.compile(r"(?:\S+\s+){2}.*[.!*]\s*", re.S)
_MORE_THAN_A_NUMBER = re.compile(  # a date or a time of day
    r"\d\s?[ap]\.?m\b|\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b", re.I
)
_TOGETHER = re.compile(  # numbers that belong together: 3 to 4, 5 ft 10 in
    r"\d(?:\s[a-z]+)?\s?(?:[:/–-]|,\s|\b(?:to|and|or|(?:out )?of)\b)?\s?[$€£]?(?<![\d.,])\d", re.I
)
_COURTESY = re.compile(
    r"(?:(?<=[.!?*}\])`])|\A)\s*(?:please\s+)?(?:let me know|(?:i['’]m )?(?:happy|glad) to help|is there anything else"
    r"|good luck|(?:i )?hope (?:this|that|it) helps|feel free to"
    r"|if you (?:have|need) (?:any|more|other|further)(?:\s[a-z]+){0,2}\s(?:questions?|help|details?|explanations?|assistance))\b"
    r"(?:(?!answer|####|boxed|=)[^\n]){0,300}\s*\Z",  # not to the end from each of many
    re.I,
)
_ENDS = re.compile(
    r"(?<!\s)(?:\s*(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<end_of_turn>|<(?:/s|eos)>|<｜end▁of▁sentence｜>))+\s*\Z"
)
_CALL = re.compile(r"\s*(add|subtract|multiply|divide|exp|greater)\(([^(),]+),([^(),]+)\)\s*(?:,|$)")
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "exp": "^", "greater": ">"}


def ended(text: str) -> str:
    """A text without the marks that end a model's turn, and without a closing phrase (*Let me know if you have questions!*)."""
    whole = _ENDS.sub("", text)
    return _COURTESY.sub("", whole) or whole


def split_answer(text: str) -> tuple[str | None, str | None]:
    """The rationale and the answer of a text that holds both; ``None`` for a missing one."""
    thought, said = split_thoughts(text := ended(text))
    if thought and not said and any(not denial(each)[0] for _, each in anchors(last_sentence(thought))):  # the answer is there
        thought, said = "", (text := thought)
    rest = unwrapped(said)
    if (block := block_of(rest)) is not None:
        return thought or None, block
    if _is_program(rest):
        return text.strip(), None
    tagged = rest != said.strip()
    summary = [tidy(outright(kind, text).rstrip("" if kind in ENCLOSED else "! *")) for kind, text in unhedged(rest)]
    answer = next(filter(None, reversed(summary)), None)
    if answer is not None and (corrected := _corrected(rest)) is not None:
        answer = corrected
    if answer is None:  # "The correct choice is B."
        letters = [tidy(text).strip("()") for _, text in anchors(last_sentence(rest), CHOICE_IS, IS_RIGHT)]
        answer = letters[-1] if letters and len(letters[-1]) == 1 else None
    if answer is None and not thought and (opened := OPENS.match(rest.strip())):
        return rest.strip()[opened.end() :].strip() or None, opened[1]
    if answer is None and is_bare_answer(rest.strip()) and not _works_out(rest.strip()):
        label = _LABEL.match(rest.strip())
        if label and _SAYS.match(rest.strip(), label.end()):
            return text.strip(), None
        labelled = _concluded(rest) if label else None
        return thought or None, rest.strip() if labelled is None else _bare(labelled)
    if answer is None and (headed := _headed(rest)) is not None:
        return _thinking(thought, headed[0]) or None, headed[1]
    if answer is None and (alone := _ALONE_AT_END.search(rest)):
        before = rest[: alone.start()].strip()
        answer = alone[2] or (alone[1] if _SENTENCE.fullmatch(alone[1]) else tidy(alone[1].rstrip("!")))
        return _thinking(thought, before), _bare(answer)
    if answer is None:
        answer = _concluded(rest)
        return (text.strip() or None), answer and _bare(answer)
    if thought:
        return _thinking(thought, said if tagged else rest), _bare(answer)
    return _without_answer(rest) or None, _bare(answer)


def _headed(text: str) -> tuple[str, str] | None:
    """What precedes a heading and the answer alone below it; ``None`` where the line below it concludes with something else than
    all of it, as in ``x = 17``, ``17 apples!`` and *So the number of pens is 17.*"""
    found = _HEADED.search(text)
    if found is None or not is_bare_answer(found[1]):
        return None
    answer = _bare(tidy(found[1]))
    concluded = None if number_value(answer) is not None or _IS_WHOLE.match(found[1]) else _concluded(text)
    return (text[: found.start()].strip(), answer) if concluded is None or _bare(concluded) == answer else None


def unhedged(text: str) -> list[tuple[str, str]]:
    """The anchors of a text without those that only suppose an answer (*You might think the answer is 5.*), unless all do."""
    found = places(text)
    sure = [each for each in found if not (each[1] == "phrase" and _supposes(text[: each[0]], each[2]))]
    return [(kind, said) for _, kind, said in sure or found]


def _supposes(before: str, said: str) -> bool:
    opening = BETWEEN_SENTENCES.split(before.rpartition("\n")[2])[-1]
    conditional = _CONDITIONAL.search(opening) is not None and _IF.search(first_sentence(said)) is not None
    return conditional or _SUPPOSED.search(opening) is not None


def _thinking(thought: str, rest: str) -> str:
    return f"<think>{thought}</think>\n{rest}" if thought else rest


def _bare(answer: str) -> str:
    """An answer without its unit, but for a time of day; of a clause (*that 3 are left*) and of a negative number in words its
    number."""
    signed = with_signs(answer)
    if (signed != answer or _CLAUSE.match(answer)) and len(numbers := find_numbers(plain_numbers(signed))) == 1:
        return number_text(numbers[0].value)
    return answer if _TIME.fullmatch(answer) else bare_quantity(answer)


def _corrected(text: str) -> str | None:
    """What a text concludes with that corrects the answer it called so before: *The obvious answer is 100. But it takes 5.*"""
    said = places(text)
    if not said or said[-1][1] != "phrase" or not (after := BETWEEN_SENTENCES.split(text[said[-1][0] :], 1)[1:]):
        return None
    return _concluded(after[0], results=False) if _CORRECTS.search(after[0]) else None


def _concluded(text: str, results: bool = True) -> str | None:
    """What a text comes to without calling it the answer: the content of a closing label such as ``**Total:** $17``, else the
    number of a last sentence that concludes, or with ``results`` that says what was calculated last; ``None`` where there is no
    such thing."""
    said = None
    for label in _LABEL.finditer(text):
        said = label
    if said is not None:
        content, *more = text[said.end() :].split("\n\n", 1)  # a last sentence may repeat it: "The book has 54 pages."
        value = number_value(tidy(content))
        again = bool(more) and value is not None and {each.value for each in find_numbers(plain_numbers(more[0]))} == {value}
        content = tidy(" ".join(re.sub(r"```\w*", "", content if again else text[said.end() :]).split()))
        right = tidy(content.rpartition("=")[2])
        if _SEVERAL.search(content):
            return None
        if (
            right
            and len(right.split()) <= _FEW_WORDS
            and not _SAYS.match(right)
            and not _SUM.search(right)
            and (again or "\n\n" not in text[said.end() :].strip())
        ):
            return right
    lines = [line for line in normalise(text).split("\n") if line.strip()]
    last = plain_numbers(last_sentence(lines[-1])) if lines else ""
    last = with_signs(last)
    if _LOSS.search(last):
        return None
    concludes = CONCLUDES.match(last) or _LEADS.match(last) or (len(lines) > 1 and _HEADING.search(lines[-2]))
    if not concludes and not (results and _states_result(text, last)):
        said_in_bold = _IS_BOLD.match(last_sentence(text))  # "The price is **$17**."
        return tidy(said_in_bold[1].rstrip("!")) if said_in_bold else None
    unsettled = _SUM.search(last.rpartition("=")[2]) or _SEVERAL.search(last) if "=" in last else _NO_RESULT.search(last)
    if unsettled:
        return None
    if len(times := _TIME.findall(last)) == 1 and not find_numbers(_TIME.sub("", last)):
        return str(times[0])
    if "=" in last or len(find_numbers(last)) == 1:
        return parse_number(last)
    if not find_numbers(last) and (word := only_word_value(last)) is not None:
        return str(word)
    if not find_numbers(last) and (name := _IS_NAME.match(last)):
        return name[1]
    if (marked := _MARKED_END.search(last_sentence(text))) and len(find_numbers(plain_numbers(marked[1]))) == 1:
        return parse_number(marked[1])
    bold = [part for part in _BOLD.findall(last_sentence(text)) if len(find_numbers(plain_numbers(part))) == 1]
    return parse_number(bold[0]) if len(bold) == 1 else None


def _is_program(text: str) -> bool:
    """Whether a text ends in a statement of a program, whose value only running it tells, and that is no sentence which states
    an answer (*cost = rate * hours, so the answer is 60.*)."""
    before, _, last = text.rstrip("` \t\n").rpartition("\n")
    return bool(before.strip("` \t\n")) and _STATEMENT.match(last) is not None and not anchors(last.partition("=")[2])


def _states_result(text: str, last: str) -> bool:
    """Whether the ``last`` sentence of a text says the value that the text worked out last (*The sum is 7.*), or works out a new
    one (*He has 36 - 7 = 29 eggs left.*)."""
    if (
        len(last) > _LONGEST_SENTENCE
        or _NO_CONCLUSION.match(last)
        or _NO_RESULT.search(last)
        or not last.rstrip(" *`)").endswith((".", "!"))
    ):
        return False
    if "=" not in last:
        worked = worked_out(text)
        return bool(worked) and {number.value for number in find_numbers(last)} == {number_value(worked[-1])}
    _, *between, right = last.split("=")
    value, closing = number_value(parse_number(last) or ""), last_sentence(text)
    new = value is not None and value not in numbers_in(text[: text.rindex(closing)])  # else it may check what was found
    alone = {number.value for number in find_numbers(right)} == {value}
    return new and alone and _CALCULATES.search(closing) is not None and not any(map(_JOINED.search, between))


def _works_out(sentence: str) -> bool:
    calculates = "=" in sentence and all(each.search(sentence) for each in (_CALCULATES, _LETTERS, _SENTENCE))
    return calculates and not _COEFFICIENT.search(sentence)


def is_bare_answer(text: str) -> bool:
    """Whether a text is short enough, and not several sentences, so that it is an answer without working."""
    first, *more = SENTENCE_END.split(text)
    return 0 < len(text) <= _LONGEST_ANSWER and "\n" not in text and not (more and len(first.split()) > _LONGEST_TITLE)


def _without_answer(text: str) -> str:
    before, mark, after = text.rpartition("####")
    if mark and "\n" not in after.strip():
        return before.strip()
    last = LAST_LINE.search(text)
    if states_answer_only(last[1] if last else text):
        return text[: last.start()].strip() if last else ""
    closing = last_sentence(text)
    return text[: text.rindex(closing)].strip() if states_answer_only(closing) else text.strip()


def opened_with(answer: str) -> str | None:
    """The *yes* or *no* that an answer opens with and then explains; ``None`` of several verdicts and of a title."""
    opened = OPENS.match(answer.strip())
    rest = answer.strip()[opened.end(1) :] if opened else ""
    return opened[1] if opened and len(_WORD.findall(rest)) >= _EXPLAINS and not _SECOND_VERDICT.search(rest) else None


def from_sentence(answer: str, rationale: str, question: str) -> str:
    """What an answer in a sentence says: the *yes* or *no* that it opens with, or its only number that the question does not have
    where the rationale works that out (``34`` in ``Ann has 34 pens left.``); else the answer."""
    if OPENS.match(answer.strip()):
        return opened_with(answer) or answer
    numbers, known = find_numbers(plain_numbers(with_signs(answer))), numbers_in(question)
    numbers = [number for number in numbers if len(numbers) == 1 or number.value not in known]
    if _TOGETHER.search(answer) or _LOSS.search(answer):
        return answer
    if len(numbers) != 1 or not is_bare_answer(answer) or not _SENTENCE.fullmatch(answer) or _MORE_THAN_A_NUMBER.search(answer):
        return answer
    found = numbers_in(*worked_out(rationale), in_words(rationale.strip().rpartition("\n")[2], ()))
    return number_text(numbers[0].value) if numbers[0].value in found else answer


def worked_program(program: str) -> str | None:
    """The equations of a program such as FinQA's ``subtract(58, 40), divide(#0, 40)``, one a line, rounded to five places as its
    answers are; ``None`` of anything else."""
    lines: list[str] = []
    values: list[Fraction] = []
    end = 0
    while call := _CALL.match(program, end):
        end, (one, other) = call.end(), (_operand(call[place].strip(), values) for place in (2, 3))
        if one is None or other is None or (call[1] == "divide" and not other) or (call[1] == "exp" and not -9 < other < 9):
            return None
        written = f"{_rounded(one)} {_SIGNS[call[1]]} {_rounded(other)}"
        if call[1] == "greater":
            lines.append(f"{written} is {'true' if one > other else 'false'}.")
            continue
        value = {"+": one + other, "-": one - other, "*": one * other}.get(_SIGNS[call[1]])
        values.append(value if value is not None else one / other if call[1] == "divide" else Fraction(one**other))
        lines.append(f"{written} = {_rounded(values[-1])}")
    return "\n".join(lines) if lines and not program[end:].strip() else None


def _operand(term: str, values: Sequence[Fraction]) -> Fraction | None:
    if term[:1] == "#":
        return values[int(term[1:])] if term[1:].isdecimal() and int(term[1:]) < len(values) else None
    value = number_value(term.removeprefix("const_").replace("m1", "-1"))
    return value / 100 if value is not None and term.endswith("%") else value


def _rounded(value: Fraction) -> str:
    return number_text(round(value, 5))
