"""The result of a step, read from the step alone and not from the final answer.

The answer in words that a step concludes with: ``no`` in ``9 is divisible by 3. Hence no.``

The option that a step is about: ``C`` in ``C. **floor** - furniture stands on the floor.``
"""

import re
from collections.abc import Mapping

from cirf.records import AnswerKind, Problem
from cirf.tasks.parsing.answers import anchors, equal_answers, mentions, normalise_text, number_value, parse_answer
from cirf.tasks.parsing.options import NEGATION
from cirf.tasks.parsing.texts import COPULA
from cirf.tasks.steps.calculations import (
    ASKS,
    CONCLUDES,
    asserted,
    first_stated,
    in_words,
    named_value,
    numbers_in,
    plain_step,
    without_reasons,
    written_out,
)
from cirf.tasks.steps.equations import compared, introduced, unsolved, unworked
from cirf.tasks.steps.states import PAIR, coin_state, state
from cirf.text.normalise import normalise
from cirf.text.numerals import UNREAD, find_numbers, number_text, plain, plain_numbers
from cirf.text.sentences import BETWEEN_SENTENCES, whole_words

_COIN = re.compile(r"\bcoin\b[^?]*\b(?:heads|tails)\b", re.I)
_ANSWER_TO = re.compile(r"\banswer to\b[^.?!\n]*", re.I)
_LABEL = re.compile(  # a number in front of a colon: "Day 1: ...", "divide by 20: ...", or of a clue: "From clue 2, ..."
    r"(?P<lead>^[^\w\n]*(?:[A-Za-z]+\s)?|\b(?:by|day|week|month|year|round|case|part|step|row|line|box|person|option)\s)"
    r"\$?\d[\d,]*(?:\.\d+)?\s?(?=:(?:[\s*]|$))"
    r"|(?:^[^\w\n]*|\(|\b(?:from|by|using|per|to|with|in)\s)(?:the\s)?(?:clue|rule|premise|statement|fact|condition|constraint|hint|equation)s?"
    r"\s\(?\d+\)?(?:(?:,\s|\sand\s)\(?\d+\)?)*"
    r"|\b(?:alpha|beta|gamma|type|stage|grade|phase|class|group|level)\s\d+(?=\s[a-z])"
    r"|\b(?:equation|formula|eq\.|figure|fig\.|theorem|lemma|(?-i:Table|Section|Chapter|Appendix))\s\(?\d+\)?"  # "See Table 2"
    r"|(?:^|(?<=[.!?]\s))(?:case|box|line|row|column|item|statement)\s\(?\d+\)?(?=\s(?!is\sthe\b)[a-z])",  # "Case 1 is so"
    re.I | re.M,
)
_JUDGED = re.compile(  # a statement about a number: "91 is not prime"
    r"\d\s+(?:is|are|was|were)(?:n['’]t\b|\s(?:also\s|thus\s|therefore\s|indeed\s)?(?:not|an?|prime|composite|even|odd|divisible|greater"
    r"|larger|bigger|smaller|better|worse|less|more|fewer|higher|lower|equal|enough|sufficient|possible|impossible)\b)",
    re.I,
)
_ASIDE = re.compile(r"\s?\((?=[^()\n]*[^\W\d_]{3})[^()\n=]*\)")  # "9 digits (1 through 9)"
_NEGATIVE = re.compile(
    r"\b(?:loss(?:es)?|los[et]s?|losing|deficit|overdrawn|debt|owes?|in the red|down|below|falls?|fell|drops?|dropped|decreased?"
    r"|declined?|short(?:fall)?|minus|negative)\b|[0-9]\s?[-−–](?!\s?[\w(])",
    re.I,
)
_SMALL_LETTER = re.compile(r"\W*[a-z]\W")
_SUPPOSES = re.compile(  # "Let's say it is iron", "What if it were gold"
    r"\W*(?:(?:so|now|but|and|then|next|first|instead|alternatively|okay|ok|well),?\s+){0,3}(?:(?:let['’]?s|let\sus|we)\s+)?"
    r"(?:(?:first|now|can|could)\s+)?(?:suppose|assume|imagine|consider|presume|pretend|what\sif|(?<!we\s)say)\b(?!\W*(?:yes|no)\b)",
    re.I,
)
_IF = re.compile(r"\W*(?:(?:but|and|so|now|then),?\s)?(?:if|unless|assuming|supposing|were)\s[^,.\n]*", re.I)
_REPLIES = re.compile(r"\W*(?:yes|no)[,.!]", re.I)
_BY_WHOM = re.compile(
    r"(\bby\s(?:the\s)?[A-Z][^\W\d_][^\s,;()]*(?:\s[^\s,;()\d]+){0,4}?)\s(?:in\s(?:1\d|20)\d\d\b|\((?:1\d|20)\d\d\))"
)
_COMPARES_TIMES = re.compile(
    r"\b(?:when|years?|dates?|long|first|last|earli\w+|later?|old\w*|young\w*|new\w*|before|after|century)\b", re.I
)
_ARROW = re.compile(r"\s?(?:[-=]+>|[→⇒])\s?")
_GIVES_ONE = re.compile(
    r"[0-9)%]\s?(?:[-=]+>|[→⇒])\s(?:[a-z]{2,12}\s){1,2}(?:is\s|of\s|=\s)?(?P<number>-?[0-9][0-9,.]*)(?:\s[a-z]+)?[.!]?\s*\Z"
)


def produced(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The result of a step of any problem: the first of these that the step has.

    1. The letter of the option that it goes through: ``B`` in ``B. floor - one walks on it``.
    2. The number that it works out: ``24`` in ``48 / 2 = 24 km/h, so the answer is A.``, for that is what a model needs first.
    3. An equation that has no value yet, ``850+705+X=820*3``, or a comparison: ``3x>9``, ``Raj > Eve``.
    4. What it concludes with: a letter, *yes* or *no*, an answer in words.
    5. A date that is not known yet. The name of an unknown: ``X`` in ``Let X be the weight``, or a sum of it, such as ``X+5``.
    6. A number that it says in words: ``3`` in ``which leaves 3``.
    7. The side of a coin, where the question is about one.
    8. What it says something is: ``8`` in ``The greatest common divisor is 8.``
    9. The only number that neither the question nor a result before it has: ``7`` in ``A week has 7 days``.
    10. A calculation that it sets up: ``6*3`` in ``Revenue = 6 × 3``.
    11. Of a step without numbers, a state in a few words: ``off``, ``prey animals``.

    A step that names the side of the coin and answers too has the side. A number in front of a colon is a label (``Day 1:``),
    and one of which something is said (``91 is not prime``) is no result where the question asks for *yes* or *no*. A step that
    says what the answer is, or in a problem with a text for an answer singles something out, has no state. A sentence
    that supposes something (``Suppose it is iron``) or asks has no result in words.

    An amount such as ``24 km/h`` is a number, and the letter of the option that reads so only where the step says outright that
    it is the answer. Where the answer is negative, ``a loss of 3`` is ``-3``.
    """
    rest, found = without_reasons(segment), ""
    if rest != segment:  # an equation that it reasons from counts only where nothing firm follows
        if written_out(segment) or unsolved(segment):
            found = _produced(rest, problem, previous, firm=True)
        else:
            segment = rest
    found = found or _produced(segment, problem, previous)
    if UNREAD in found:  # of the text itself
        return ""
    negative = problem.answer.startswith("-") and found == problem.answer[1:] and _NEGATIVE.search(segment)
    return problem.answer if negative else found


def _produced(segment: str, problem: Problem, previous: tuple[str, ...], firm: bool = False) -> str:
    """As `produced`, of all of a step; ``firm``: without the rules that read what a step only mentions."""
    choices = problem.choices or ()
    number = None if choices else number_value(problem.answer)
    as_written = number is None or "/" in problem.answer or number_text(number) != problem.answer  # else decimals
    value = _worked_out(segment, problem.answer, as_written)
    letter = option_at_front(segment, problem) if choices else ""
    if letter and not (value and _SMALL_LETTER.match(segment)):  # "a) 3 + 4 = 7" numbers a step
        return letter
    if found := value or unsolved(segment) or compared(segment, judges(problem)):
        expected = problem.answer.replace(" ", "")
        if "e" in found and (worth := number_value(found)) is not None and worth == number_value(problem.answer):
            return problem.answer
        return problem.answer if expected in (found.replace(" ", ""), re.split("(?<![<>])=", found)[-1]) else found
    told, sure = asserted(segment), _unsupposed(segment, choices)
    outright = answers = bool(anchors(sure))
    coin = _COIN.search(problem.question) is not None
    if choices and len(problem.answer) == 1:
        found = _sole_option(sure, choices) or option_named(sure, choices if outright else worded(choices))
        answers = answers or (CONCLUDES.match(sure) is not None and len(_named(plain_step(sure), choices)) > 1)
    elif number is None:
        found = concluded(sure, problem, previous)
        if found and coin:
            found = coin_state(_ANSWER_TO.sub("", sure), problem, ()) or found
        found = found or ("" if outright else option_named(sure, worded(choices)) if choices else "")
        answers = answers or (not judges(problem) and _SINGLES_OUT.search(plain_step(sure)) is not None)
    else:
        outright = False  # the answer is what is calculated
    unknown = introduced(told)
    summary = "" if unknown else _LABEL.sub(lambda label: label["lead"] or "", told)
    summary = summary if _COMPARES_TIMES.search(problem.question) else _BY_WHOM.sub(r"\1", summary)
    summary = bare if numbers_in(bare := _ASIDE.sub("", summary)) else summary
    *_, after = _SO.split(summary) if numbers_in(summary) else [summary]
    judged = number is None and _JUDGED.search(plain(segment)) is not None
    supposed = sure.split() != told.split()
    sum_left = unworked(told, (*previous, unknown))
    found = (
        found
        or (statement[1].casefold() if (statement := _STATEMENT_IS.match(told)) else "")
        or ("" if outright else dated(told, problem, previous))
        or ("" if outright or judged else in_words(summary, previous, as_written))
        or (coin_state(segment, problem, previous) if coin else "")
        or (next(filter(None, row.groups())).strip() if (row := _TABLE_ROW.search(segment)) else "")
        or ("" if outright or judged else named_value(summary, as_written))
    )
    if found or firm:
        return found
    found = (
        ("" if judged else first_stated(summary, numbers_in(problem.question, *previous), as_written))
        or (sum_left if not unknown or re.search("[A-Za-z]", sum_left) else unknown)
        or (
            ""
            if answers or supposed or numbers_in(after if told == segment else segment) or UNREAD in plain_numbers(segment)
            else state(after, problem, previous)
        )
    )
    return next((chr(65 + place) for place, choice in enumerate(worded(choices)) if found and choice.casefold() == found), found)


def _unsupposed(segment: str, choices: tuple[str, ...]) -> str:
    """A step without the sentences that ask, and without those that suppose something (*let's say*, *if* or a question with an
    option) and what follows from them, up to a conclusion."""
    sentences = BETWEEN_SENTENCES.split(segment)
    kept, supposed = [], False
    for sentence in sentences:
        asks, given = ASKS.search(sentence.rstrip()) is not None, _IF.match(sentence)
        if _SUPPOSES.match(sentence) or ((asks or given) and _named(given[0] if given else sentence, worded(choices))):
            supposed = True
            continue
        supposed = supposed and not _REPLIES.match(sentence)
        if not asks and (not supposed or CONCLUDES.match(sentence) or anchors(sentence)):
            kept.append(sentence)
    return segment if len(kept) == len(sentences) else "\n".join(kept)


def _worked_out(segment: str, answer: str, as_written: bool) -> str:
    """What a step works out: before it is rounded, if that is the answer."""
    if (given := _GIVES_ONE.search(segment[-_NEAR:])) and (value := numbers_in(given["number"])):  # "= 0 → gcd 42."
        return number_text(value.pop())
    exact, rounded, _ = segment.rpartition("≈")  # "= 1/6 ≈ 0.167"
    return answer if rounded and written_out(exact, as_written) == answer else written_out(segment, as_written)


_TABLE_ROW = re.compile(  # "59" of "| Ivan | 37 | 59 |", "f" of "e -> f"
    r"(?:^|\n)(?:\|\s[^\n]*?\|\s(?P<last>[^|\n]{1,28}?)\s\||(?:[^\n:]{1,40}:\s)?(?:[\w'’-]+(?:\s[\w'’-]+)?\s?(?:->|→)\s?){1,9}(?P<to>[\w'’-]+(?:\s[\w'’-]+)?)[.;]?)\s*\Z"
)

_DATE = re.compile(
    r"\b(?:\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}|\d{4}-\d{2}-\d{2}|(?:\d{1,2}(?:\.|er)?\s(?:de\s)?)?(?:jan|feb|fév|mar|mär|apr|abr|avr"
    r"|may|mai|jun|juin|jul|juil|aug|ago|août|sep|setembro|oct|okt|outubro|nov|dec|dez|déc|dic|ene|fev)[a-zé]{0,7}\.?"
    r"(?:\s\d{1,2}(?:st|nd|rd|th)?)?,?\s(?:de\s)?\d{4})\b",
    re.I,
)
_DAY = re.compile(  # without a year
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\s\d{1,2}(?:st|nd|rd|th)?(?![\w:]|[.,]\d)"
)

_ASKS_WHEN = re.compile(r"\b(?:date|when|(?:what|which) (?:day|month|year))\b", re.I)


def dated(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The date that a step names last, unless it was known: ``January 3, 2020`` in ``In 7 days it is January 3, 2020.``"""
    if not any(map(_DATE.search, (problem.question, problem.answer, *(problem.choices or ())))) and not _ASKS_WHEN.search(
        problem.question
    ):
        return ""  # a date that only says when something was so
    said = plain_step(segment)
    found = _DATE.findall(said) or (_DAY.findall(said) if _ASKS_WHEN.search(problem.question) else [])
    return found[-1] if found and found[-1] not in previous and found[-1] not in problem.question else ""


_SAYS_YES_OR_NO = re.compile(
    r"\W*(?:(?:the|this)\s(?:statement|conclusion|claim)\s(?:is|must\sbe)\s)?(?:yes|no|true|false|valid|invalid)\b",
    re.I,
)
_CLOSED_SETS: Mapping[str, AnswerKind] = {
    **dict.fromkeys(("yes", "no"), "yesno"),
    **dict.fromkeys(("True", "False"), "truth"),
    **dict.fromkeys(("valid", "invalid"), "validity"),
}
_RIGHT_SIDE = re.compile(
    r"(?:=|[<>]\s?\S+\sis|(?:[-=]>|[→⇒])(?:\s(?:the\s)?answer(?:\sis)?)?|\bi(?:['’]d|\swould)\ssay):?\s"
    r"(yes|no|true|false|valid|invalid)\W*\Z",
    re.I,
)
_RIGHT = re.compile(
    r"(\b(?:statement|conclusion|claim|assertion)\s(?:is|was|must\sbe))\s(?:(right|correct)|wrong|incorrect)\b", re.I
)
_STATEMENT_IS = re.compile(  # "Statement 2 is false since ..."
    r"\W*(?:(?:the|this)\s)?(?:(?:first|second|third)\s)?(?:statement|claim|assertion)(?:\s\(?(?:\d{1,2}|[IVX]{1,4}|[A-Z])\)?)?"
    r"\s(?:is|must\sbe)\s(true|false)\b",
    re.I,
)
_VERDICT = re.compile(r"(refut|support|entail|contradict)(?:s|es|ed|ment|ion)?", re.I)
_SO = re.compile(r"[,;] (?:and )?(?:so|therefore|thus|hence) ", re.I)
_LONG = 9  # words
_OTHERWISE = re.compile(
    r"\?|\b(?:not|no|neither|nor|never|instead|unlike|lost|loses|last|than|whether|if|maybe|perhaps|but|while|or)\b|n['’]t\b",
    re.I,
)
_SINGLES_OUT = re.compile(r"\bonly\b|\bof the (?:above|given|listed)\b|\b(?:that|this|which) leaves\b", re.I)
_IS_SO = re.compile(
    r"\b(?:is|are|was|were|gives|means|becomes|equals|prints|outputs|returns|makes?|has|to|in|at|as|by|called|named)\s"
)
_ARTICLE = re.compile(r"\A(?:(?:in|on|at)\s+)?(?:(?:an?|the)\s+)?", re.I)


def concluded(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """For answers in words: an anchored answer, else a *yes* or *no* (*True*, *valid*, ...) that a sentence concludes with or
    opens with, else the answer where a sentence that concludes, or singles something out, names it, be it in the plural; empty
    where the step does not conclude. An anchored text counts only where it is the problem's answer."""
    kind = _CLOSED_SETS.get(problem.answer)
    if anchors(segment):
        said = parse_answer(kind or "text", segment) or ""
        return said if kind else problem.answer if said and _is_answer(said, problem.answer) else ""
    if kind:
        text = _RIGHT.sub(lambda match: f"{match[1]} {'true' if match[2] else 'false'}", plain_step(segment))
        for sentence in reversed(BETWEEN_SENTENCES.split(text)):
            if right := _RIGHT_SIDE.search(sentence):  # "not False = True"
                return parse_answer(kind, right[1]) or ""
            *_, said = _SO.split(sentence)  # "It follows, so the argument is valid."
            concludes = said != sentence or CONCLUDES.match(sentence) or _SAYS_YES_OR_NO.match(sentence)
            if concludes and (found := parse_answer(kind, said)):
                return found
        return ""
    _, label, content = plain_step(segment).rpartition(":")
    if label and problem.answer.strip() and " ".join(content.split()).strip(' .*`"') == " ".join(problem.answer.split()):
        return problem.answer
    spelt = "|".join(re.escape(text) for text in {problem.answer, _plain(problem.answer)})
    if verdict := _VERDICT.fullmatch(problem.answer):
        spelt += f"|{verdict[1]}(?:e?s|e?d)"
    named = re.compile(whole_words(f"(?:{spelt})(?:s|es)?", problem.answer), re.I) if problem.answer.strip() else None
    sentences = BETWEEN_SENTENCES.split(plain_step(segment).strip())
    for sentence in reversed(sentences):
        *_, said = _SO.split(sentence)
        concludes = said != sentence or CONCLUDES.match(sentence) or _SINGLES_OUT.search(sentence)
        if named is not None and concludes and named.search(said):
            return problem.answer
    amount = numbers_in(problem.answer) - numbers_in(problem.question)  # of "280 km", which "It drives 280 km." restates
    if amount and numbers_in(sentences[-1]) == amount and named is not None and named.search(sentences[-1]):
        return problem.answer
    verbs = [*_IS_SO.finditer(sentences[-1]), *[*_ARROW.finditer(sentences[-1])][-1:]]
    ends = (sentences[-1][verb.end() :] for verb in verbs)  # "The day after Monday is Tuesday."
    return problem.answer if named and any(len(end.split()) < _LONG and _is_answer(end, problem.answer) for end in ends) else ""


def answer_named(segment: str, problem: Problem) -> str:
    """The answer of a problem with a text for an answer, where its last sentence names it: ``Gus`` in ``Gus won the race.``"""
    if problem.choices or judges(problem) or number_value(problem.answer) is not None or not problem.answer.strip():
        return ""
    said = BETWEEN_SENTENCES.split(plain_step(segment).strip())[-1]
    named = re.search(whole_words(re.escape(_plain(problem.answer)), problem.answer), said, re.I)
    asides = said[: named.start()] + said[named.end() :] if named else ""
    return problem.answer if named and len(problem.answer) > 1 and not _OTHERWISE.search(asides) else ""


def judges(problem: Problem) -> bool:
    return problem.answer in _CLOSED_SETS


def _plain(text: str) -> str:
    return normalise(text) if "\\" in text or "$" in text else text


def _is_answer(found: str, answer: str) -> bool:
    """Whether a text is the answer, articles, the plural, LaTeX and the unit of a number apart."""
    found = COPULA.sub("", found)
    said, expected = (_ARTICLE.sub("", normalise_text(_plain(text))) for text in (found, answer))
    if not expected:  # nothing but signs
        return found.strip() == answer.strip()
    return said in (expected, f"{expected}s", f"{expected}es") or equal_answers("text", found, answer)


_LETTER_FRONT = re.compile(
    r"^\W*(?:(?:option\s+|choice\s+)?\(?([A-Z])(?:[).:](?=\s|$)|\s+-\s|\)|:)|(?:option|choice)\s+([A-Z])\b(?!['’]))", re.I
)
_LETTER_JUDGED = re.compile(  # "C is ruled out", "B (COX) fits"
    r"\W*([A-Z])\s(?:\((?P<text>[^()\n]{1,120})\)\s|(?:is|was|can(?:not)?|must)\s(?:[a-z]+\s){0,3}?"
    r"(?:wrong|incorrect|right|correct|out|eliminated|excluded|false|true)\b)"
)
_DIFFERENCE = re.compile(r"\W*[A-Za-z]\s+-\s+[$(]*(?:[0-9]|[A-Za-z]\b)")  # "B - 5 = 7" is no option

_FUNCTION_WORD = re.compile(
    r"\s*(?:an?|all|and|any|are|as|at|both|but|by|can|down|few|for|from|i[nst]?|left|many|march|may|more|most|none|no|off?|on|one|or"
    r"|out|over|right|so|some|the|to|under|up|was|well|will|with)\s*",
    re.I,
)
_BEFORE_CHOICE = re.compile(
    r"(?:\A|[.!?:\n]\s?|(?:\b(?:so|thus|hence|therefore|is|are|be|was|answer|say)\b,?|[→⇒>])\s)[\"'“‘(*]*\Z", re.I
)
_AFTER_CHOICE = re.compile(r"[\"'”’)*]*\s?(?:[.,;:!]|$)", re.M)
_SETTLES = re.compile(  # "Hence, C is the answer", "That points to B.", "only C is consistent", "Thus (b)."
    r"(?:\b(?:so|thus|hence|therefore|consequently|(?:that|this|which)\s(?:leaves|gives)|left\swith|points\sto|only)\b[,:]?\s+"
    r"(?:only\s+)?|^[^\w\n]*answer\s|(?:[a-z]:|[-=]>|[→⇒])\s(?=\(?[A-Z]\)?[.!]?$)|选项)"
    r"(?:(?:option|choice|answer)\s+)?(?:(?-i:([A-Z]))(?![A-Za-z'’])|\(([A-Za-z])\))(?:\s\([^()\n]{1,60}\))?"
    r"(?=\s?(?:[.;!:]?\s*$|[.;!:]\s|正确)|\s(?:remains?|works|fits|as\s(?:the|our|my)\b|(?:is|must\sbe)\s(?:the\s)?(?:only\s)?"
    r"(?:right|correct|answer|best|consistent|possible|left|valid)\b))",
    re.I | re.M,
)
_LETTERS = frozenset("ABCDEFGHIJ")
_LEAVES = re.compile(
    r"\b(?:(?:that|this|which)\sleaves|left\swith)\s(?:us\swith\s)?(?:only\s|just\s)?(?:the\s|an?\s)?[\"'“‘(]*\Z", re.I
)
_TAKES_BACK = re.compile(r"[.!?]\s+(?:but|however|wait|actually)\b", re.I)
_LISTED = re.compile(r",?\s(?:and|or)\b|,\s\w+(?:,|\s(?:and|or)\b)")
_NEAR = 40  # characters

_CONDITION = re.compile(r"(?:(?<=[:;.,]\s)|^)(?:if|when|whenever|unless|although|while)\s[^,.\n]*,", re.I | re.M)


def option_discussed(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The letter of the option a step is about or settles on; empty if it names none or several."""
    return option_at_front(segment, problem) or option_named(segment, problem.choices or ())


def option_at_front(segment: str, problem: Problem) -> str:
    """The letter that a step opens with, as in ``B) It is too far.`` and ``Option B is wrong.``"""
    text = plain(segment)
    front = _LETTER_FRONT.match(text)
    letter = (front[1] or front[2]).upper() if front and not _DIFFERENCE.match(text) else ""
    choices = problem.choices or ()
    if not letter and (judged := _LETTER_JUDGED.match(text)):
        own = choices[place] if (place := ord(judged[1]) - 65) < len(choices) else ""
        letter = judged[1] if judged["text"] is None or normalise_text(judged["text"]) == normalise_text(own) else ""
    return letter if letter and ord(letter) - 65 < len(choices) else ""


def option_named(segment: str, choices: tuple[str, ...]) -> str:
    """The letter of the option that a step begins with, settles on or names alone."""
    text = plain_step(segment)
    named = _named(text, choices)
    others = len(named) < len(mentions(text, choices))
    back = max((match.start() for match in _TAKES_BACK.finditer(text)), default=-1)
    settled = [ord((match[1] or match[2]).upper()) - 65 for match in _SETTLES.finditer(text) if match.start() > back]
    settled += [
        index
        for start, end, index in named
        if _LEAVES.search(text[max(0, start - _NEAR) : start]) and not _LISTED.match(text, end)
    ]
    if settled and settled[-1] < len(choices) and not anchors(segment):
        return chr(65 + settled[-1])
    last = BETWEEN_SENTENCES.split(text)[-1]
    *_, said = _SO.split(last)
    if said != last and (follows := _named(said, choices)) and not anchors(segment):  # "Ann thanks Beth, so Beth had helped"
        return chr(65 + follows[0][2]) if len({index for *_, index in follows}) == 1 and not _OTHERWISE.search(said) else ""
    if not anchors(segment):
        left = {index for *_, index in named}
        lone = (not _FUNCTION_WORD.fullmatch(choice) or index in left for index, choice in enumerate(choices))
        choices = tuple(choice if kept else "" for choice, kept in zip(choices, lone, strict=True))
    if named and not text[: named[0][0]].strip(" \"'“‘(-*"):  # the step begins with an option's text
        joined = len(named) > 1 and (
            re.fullmatch(r"\W*(?:and|or|nor|und|oder|et|ou|y|o|e|и|или)?\W*", text[named[0][1] : named[1][0]]) or PAIR.match(text)
        )
        return "" if joined and named[1][2] != named[0][2] else chr(65 + named[0][2])
    if others and not any(map(CONCLUDES.match, BETWEEN_SENTENCES.split(text))):  # "It excludes iron and both"
        named, choices = [], ("",) * len(choices)
    elif not (anchors(segment) or CONCLUDES.search(text) or _SINGLES_OUT.search(text)):  # "duress voids it" chooses no "void"
        conditions = [match.span() for match in _CONDITION.finditer(text)]
        named = [
            (start, end, index)
            for start, end, index in named
            if choices[index].casefold().endswith(text[start:end].casefold())
            and not any(first <= start < last for first, last in conditions)
        ]
        as_is = {index for _, _, index in named}
        choices = tuple(choice if index in as_is else "" for index, choice in enumerate(choices))
    concluded = parse_answer("option", segment, choices)
    if concluded:
        return concluded
    indices = {index for _, _, index in named}
    return chr(65 + indices.pop()) if len(indices) == 1 else ""


def only_mentioned(result: str, segment: str, problem: Problem) -> bool:
    """Whether a result is the letter of another option than the answer, which a step neither goes through nor settles on."""
    another = bool(problem.choices) and problem.answer in _LETTERS and result in _LETTERS and result != problem.answer
    if not another or anchors(segment) or option_at_front(segment, problem):
        return False
    return not any(CONCLUDES.match(sentence) and not NEGATION.search(sentence) for sentence in BETWEEN_SENTENCES.split(segment))


def _named(text: str, choices: tuple[str, ...]) -> list[tuple[int, int, int]]:
    """The places of options' texts, without those of a common word that does not stand alone: ``no`` in ``There is no rule.``"""
    return [
        (start, end, index)
        for start, end, index in mentions(text, choices)
        if not _FUNCTION_WORD.fullmatch(choices[index])
        or (
            _AFTER_CHOICE.match(text, end)
            and (_BEFORE_CHOICE.search(text[max(0, start - _NEAR) : start]) or CONCLUDES.match(text))
        )
    ]


def _sole_option(segment: str, choices: tuple[str, ...]) -> str:
    """The letter of the option whose text alone a step concludes with: of ``40 km/h`` in ``So 40 km/h.``"""
    text = plain_step(segment).strip()
    lead = CONCLUDES.match(text)
    said = normalise_text(text[lead.end() :].strip(" ,:.!")) if lead else ""
    found = [index for index, choice in enumerate(choices) if said and normalise_text(choice) == said]
    return chr(65 + found[0]) if len(found) == 1 else ""


def worded(choices: tuple[str, ...]) -> tuple[str, ...]:
    """The options' texts, empty where one is an amount: ``24 km/h`` in a step is what it works out, not what it chooses."""
    summary = [plain_numbers(choice) for choice in choices]
    return tuple("" if UNREAD in text or find_numbers(text) else choice for text, choice in zip(summary, choices, strict=True))
