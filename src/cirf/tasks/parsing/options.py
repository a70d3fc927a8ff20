"""Options: a separate letter, or an option's own text."""

import itertools
import re
from collections.abc import Sequence

from cirf.tasks.parsing.anchors import SAID, SeveralError, anchors, first_sentence, last_sentence, settled
from cirf.tasks.parsing.texts import normalise_text
from cirf.text.numerals import plain
from cirf.text.sentences import whole_words

_BEST_IS = re.compile(r"\b(?:answer|choice|option|fit)\b[^.:\n]{0,200}\bis:\s*" + SAID, re.I)
CHOICE_IS = re.compile(
    r"\b(?:(?:best|correct|right|final|only|likely|suitable|appropriate|logical|reasonable|my|our|chosen|selected)\s+)"
    r"(?:choice|option|fit|letter|selection|pick)\b\s*(?:\*\*)?\s*"
    r"(?:\b(?:is|would be|must be|should be|will be)\b|:|=)\s*:?\s*" + SAID,
    re.I,
)
_CHOOSE = re.compile(
    r"(?<!not )(?<!n't )(?<!n’t )(?<!never )(?<!cannot )\b(?:choose|chose|pick|select|go with|going with)\s+"
    r"(?:option\s+|answer\s+|choice\s+)?" + SAID,
    re.I,
)
IS_RIGHT = re.compile(
    r"(?<!if )(?<!whether )(?<!n't think )(?<!not think )(?<!\b[A-Z] or )(?<!\b[A-Z]\) or )(?<!\b[A-Z] and )(?<!\b[A-Z]\) and )"
    r"(?:\b(?:[Aa]ntwort|[Oo]pción|[Oo]pção|[Rr]éponse|[Rr]espuesta|[Rr]esposta|[Oo]pzione)\s+)?"
    r"((?:\boption\s+|\bchoice\s+)?\(?\b[A-Z]\b\)?)\W{0,4}\s(?:(?:is|would be) (?:the |clearly )?(?:correct|right|best|most)"
    r"|(?:(?:ist|est|es|é|è|está)\s)?(?:la\s)?(?:richtig|korrekt|correcte|correcta|correta|corretta|juste|bonne))\b"
)
_LONE = r"(?:\([a-z]\)|[b-h]\b(?!['’-])|a(?=[.,;:)]|\sis\b|\s*$))"
_SMALL = re.compile(  # "option (b)", "choice c is right", "(b) is correct"; not "an option a person has"
    rf"(?<=\boption ){_LONE}|(?<=\bchoice ){_LONE}|\([a-z]\)(?=\s(?:is|would be)\s(?:the\s|clearly\s)?(?:correct|right|best)\b)",
    re.I | re.M,
)
NEGATION = re.compile(
    r"\b(?:not|never|cannot|unlike|rather than|instead of|neither|nor|wrong|incorrect|rule out|eliminate)\b|n[’']t\b", re.I
)


def mentions(text: str, choices: Sequence[str]) -> list[tuple[int, int, int]]:
    """Where options' texts occur in ``text`` as whole words: ``(start, end, index)`` in order, longer options first. A leading
    article of an option may be missing, and a plural ``s`` may be there or not. If one option's text is inside another's, the
    longer one counts."""
    spans: list[tuple[int, int, int]] = []
    for index, choice in enumerate(choices):
        words = re.sub(r"^(?:an?|the)\s+(?=\S)", "", " ".join(choice.split()), flags=re.I)
        if not words:
            continue
        singular = words[:-1] if re.search(r"[^\Ws]{3}s$", words) else words
        pattern = r"\s+".join(re.escape(word) for word in singular.split(" "))
        found = re.finditer(whole_words(f"{pattern}(?:e?s)?", words), text, re.I)
        spans.extend((match.start(), match.end(), index) for match in found)
    outer, reach = [], -1  # the furthest end of matches that begin earlier, or as early and are longer
    for (start, end), group in itertools.groupby(sorted(spans, key=lambda s: (s[0], -s[1])), key=lambda s: s[:2]):
        if reach < end:
            same = list(group)
            outer += [
                each for each in same if " ".join(choices[each[2]].split()).casefold() == text[start:end].casefold()
            ] or same
            reach = end
    return sorted(outer)


_MARK = r"(?:\((?P<round>[{0}])\)|\[(?P<square>[{0}])\]|(?P<close>[{0}])\s?\)|(?P<dot>[{0}])[.:](?=\s))\s*"
_MARKS = {
    "line": re.compile(rf"(?m:^)[ \t]*(?:[-*•][ \t]+)?\**(?:option )?{_MARK.format('A-Za-z')}", re.I),
    "within": re.compile(rf"(?<![^\s,;:?.]){_MARK.format('A-Za-z')}(?=\S)"),
}
_AFTER_LIST = re.compile(
    r"\n[ \t]*\n|\n(?=[ \t]*(?:answer|choose|please|select|let|hint|note|pick|reply|respond|give|think|explain)\b)", re.I
)
_FEWEST_IN_A_LINE = {"round": 2, "square": 2, "close": 2, "dot": 3}


def listed_options(text: str) -> tuple[str, ...]:
    """The texts of the options that a text lists: ``A) ...`` to ``D) ...`` on lines of their own, or one after another; the last
    such list. Empty where there is none."""
    for layout, pattern in _MARKS.items():
        runs: list[list[re.Match[str]]] = []
        for match in pattern.finditer(text):
            letter, kind = match[match.lastgroup or 0], match.lastgroup or ""
            if letter in "aA":
                runs.append([match])
            elif runs and runs[-1][0].lastgroup == kind:
                last = runs[-1][-1][kind]
                if ord(letter) == ord(last) + 1:
                    runs[-1].append(match)
        for run in reversed(runs):
            if len(run) >= (_FEWEST_IN_A_LINE[run[0].lastgroup or ""] if layout == "within" else 2):
                ends = [match.start() for match in run[1:]] + [len(text)]
                parts = [_AFTER_LIST.split(text[match.end() : end], 1)[0] for match, end in zip(run, ends, strict=True)]
                found = tuple(" ".join(part.replace("**", "").split()).strip(" ,;") for part in parts)
                if all(found):
                    return found
    return ()


def without_letters(choices: Sequence[str]) -> tuple[str, ...]:
    """Options' texts without the letters in front, where each has its own: ``A) apple``, ``B) chair``."""
    found = [re.match(r"\s*\(?([A-Za-z])\s?[).:]\s*(?=\S)", choice) for choice in choices]
    if not all(match and match[1].upper() == chr(65 + index) for index, match in enumerate(found)):
        return tuple(choices)
    return tuple(choice[match.end() :] for choice, match in zip(choices, found, strict=True) if match)


_CONTRAST = re.compile(
    r",\s*(?:and\s+)?not\s+(?!only)|(?:,|(?<![\s,]))\s*\b(?:rather than|instead of)\s", re.I
)  # what follows is denied


def parse_option(text: str, choices: Sequence[str] | None) -> str | None:
    """The letter of the option that a text decides for; ``None`` for none or several."""
    count = len(choices) if choices else 26
    text = _SMALL.sub(lambda match: match[0].upper(), text)
    anchored = anchors(text, _BEST_IS, CHOICE_IS, _CHOOSE, IS_RIGHT)
    letter, last_word = settled(anchored, lambda _, said: _option_at_front(_opening(said), choices or (), count))
    if letter or last_word:
        return letter
    whole = plain(text).strip()
    letter = _letter_alone(whole, count) or _only_mention(whole, choices or (), whole=True) or _lone_line(whole, count)
    if letter:
        return letter
    marked = {m[1] for m in re.finditer(r"(?:^|\n)[ \t]*(?:[-•*]\s*)?\(?([A-Z])[).:](?=\s|$)|\(([A-Z])\)", whole)} - {None}
    front = re.match(r"\(?([A-Z])(?:[).:](?=\s)|,?\s(?=(?:because|since)\b))", whole)
    if front and _in_range(front[1], count) and marked <= {front[1]}:
        return None if _is_another(whole[front.end() :], front[1], choices or ()) else front[1]
    last = _CONTRAST.split(plain(last_sentence(text)), 1)[0]
    if NEGATION.search(last) or _ends_in_a_list(whole, choices or ()):
        return None
    verdict = _VERDICT.fullmatch(last)
    if verdict and _in_range(verdict[1], count):
        return verdict[1]
    named = {found for m in re.finditer(r"\(([A-Z])\)|\b(?:[Oo]ption|[Cc]hoice) ([A-Z])\b", last) if (found := m[1] or m[2])}
    if named:
        return named.pop() if len(named) == 1 and all(_in_range(found, count) for found in named) else None
    return _only_mention(last, choices or (), whole=False)


# A last sentence with only words of judgement and a letter: "Therefore, C", "I'd say it is definitely (C)."
_VERDICT = re.compile(
    r"(?:\W*\b(?:therefore|thus|so|hence|consequently|finally|overall|in conclusion|then|i|we|you|would|will|must|should|can|be|"
    r"am|us|leaves|leaving|remaining|remains|say|think|believe|guess|conclude|choose|pick|select|go|going|with|for|it|that|this|"
    r"which|is|not only|the|my|our|best|"
    r"better|correct|right|only|final|most|likely|suitable|appropriate|logical|reasonable|option|choice|answer|letter|definitely|clearly|"
    r"certainly|probably|obviously|surely|simply|indeed|[sdm]|ll|selected|chosen)\b)+(?-i:\W+([A-HJ-Z]))\W*",
    re.I,
)


def _lone_line(text: str, count: int) -> str | None:
    """The capital letter that is alone in the last line; ``None`` if another one is in another line."""
    alone = [match[1] for line in text.splitlines() if (match := re.fullmatch(r"[\W_]*([A-Z])[\W_]*", line))]
    lines = [line for line in text.splitlines() if line.strip()]
    last = bool(alone) and re.fullmatch(r"[\W_]*[A-Z][\W_]*", lines[-1]) is not None
    repeated = re.fullmatch(r"\W*([A-Z])(?:\W+\1)+\W*", text)
    letter = repeated[1] if repeated else alone[-1] if last and len(set(alone)) == 1 else ""
    return letter if letter and _in_range(letter, count) else None


def _ends_in_a_list(text: str, choices: Sequence[str]) -> bool:
    lines = [line for line in text.splitlines() if line.strip()][-2:]
    marked = [re.fullmatch(r"\W*([A-Z])[).:]\s+(.*)", line.strip()) for line in lines]
    texts = {chr(65 + index): normalise_text(choice) for index, choice in enumerate(choices)}
    return len({match[1] for match in marked if match and texts.get(match[1]) == normalise_text(match[2])}) == 2


def _in_range(letter: str, count: int) -> bool:
    return 0 <= ord(letter) - 65 < count


def _letter_alone(text: str, count: int) -> str | None:
    match = re.fullmatch(r"(?:[Oo]ption|[Cc]hoice|[Ll]etter)?[\s(\[{\"'$]*\b([A-Za-z])[\s)\]}.:,\"'$!。]*", text)
    letter = match[1].upper() if match else ""
    return letter if letter and _in_range(letter, count) else None


def _opening(said: str) -> str:
    """The first sentence, which the full stop of ``A.`` at its front does not end."""
    mark = re.match(r"\W*[A-Z]\.\s+", said)
    return said[: mark.end()] + first_sentence(said[mark.end() :]) if mark else first_sentence(said)


_HEDGE = re.compile(
    r"^(?:(?:probably|most likely|likely|definitely|clearly|certainly|obviously|surely|simply|indeed|therefore|thus|hence|either|"
    r"both|(?:the )?(?:letter|options?|choices?))\b\W*)+",
    re.I,
)
_FRONT = re.compile(
    r"\(([A-Za-z])\)|([A-Z])(?=[).:,;/&\]\"'”’。，、]|\s*$|\s+-|\s*\(|\s+(?:because|since|is|or|and)\b)|([A-Z])(?=\s)"
)
_JOINS = re.compile(
    r"\W{0,3}(?:(?P<strong>/|&|\+|,?\s*\b(?:and/or|or|as well as)\b)|(?P<weak>[,;]|,?\s*\band\b))\W{0,3}"
    r"(?:(?:or|and|also|perhaps|possibly|maybe|either|options?|choices?|the|an?)\s+)*[\"'“‘(*]*"
)
_SAYS_MORE = re.compile(
    r"(?:[\"'”’)*]*(?:,\s*|\s+(?:and|or)\s+)\(?[A-Z]\b){0,4}[\"'”’)*]*\s+"
    r"(?:is|are|was|were|would|can|could|do|does|has|have|seems?|being|because|since)\b"
)


def _option_at_front(said: str, choices: Sequence[str], count: int) -> str | None:
    """The option that a text begins with: a separate letter, or an option's own text. ``SeveralError`` for several."""
    said = _HEDGE.sub("", plain(said).strip().lstrip("\"'“‘$*: ")).lstrip("\"'“‘$*: ")
    alone = _letter_alone(said, count)
    if alone:
        return alone
    match = _FRONT.match(said)
    letter = next((part for part in match.groups() if part), "").upper() if match else ""
    rest = said[match.end() :] if match else said
    own = _mention_at_front(rest, choices)
    if letter and _in_range(letter, count) and match:
        bare = match[3] is not None  # "A roof": the letter or the article?
        if not bare or own == letter or (letter not in "AI" and own is None):
            _refuse_a_second(rest, letter, choices, count)
            if _is_another(rest, letter, choices):
                raise SeveralError
            return letter
    found = _mention_at_front(said, choices)
    if found:
        _refuse_a_second(said, found, choices, count)
    return found or _only_mention(said, choices, whole=False, negated=bool(NEGATION.search(said)))


def _is_another(text: str, letter: str, choices: Sequence[str]) -> bool:
    """Whether the text behind a letter is that of another option: ``B) 12`` where A is 12."""
    same = [normalise_text(choice) == normalise_text(text) for choice in choices]
    return any(same) and not same[ord(letter) - 65]


def _refuse_a_second(rest: str, letter: str, choices: Sequence[str], count: int) -> None:
    """Raise ``SeveralError`` if what follows a letter, and perhaps its option's text, joins another option to it. *B or C*, *A,
    B* and *the roof or the floor* do; *C, A is wrong* and *C, since A or B is wrong* do not."""
    named = mentions(rest, choices)
    lead = re.match(r"\W*(?:(?:an?|the)\s+)?\W*", rest, re.I)
    own = next((end for start, end, index in named if chr(65 + index) == letter and lead and start <= lead.end()), 0)
    for place in {0, own}:
        joint = _JOINS.match(rest, place)
        if joint is None:
            continue
        other = re.compile(r"([A-Z])(?![\w'’])").match(rest, joint.end())
        there = [(end, chr(65 + index)) for start, end, index in named if start == joint.end()]
        text = next((one for one in there if one[1] == letter), there[0] if there else None)  # its own, if it occurs twice
        if text and text[1] != letter and not (joint["weak"] and _SAYS_MORE.match(rest, text[0])):
            raise SeveralError
        if other is None or other[1] == letter or not _in_range(other[1], count):
            continue
        ends = re.match(r"[\"'”’*]*\s*(?:$|[).:,;!?/&\]}]|(?:or|and)\b)", rest[other.end() :])
        if (ends or (joint["strong"] and other[1] not in "AI")) and not (joint["weak"] and _SAYS_MORE.match(rest, other.end())):
            raise SeveralError


def _mention_at_front(text: str, choices: Sequence[str]) -> str | None:
    lead = re.match(r"\W*(?:(?:an?|the)\s+)?\W*", text, re.I)
    offset = lead.end() if lead else 0
    starts = {index for start, _, index in mentions(text, choices) if start <= offset}
    return chr(65 + starts.pop()) if len(starts) == 1 else None


def _only_mention(text: str, choices: Sequence[str], whole: bool, negated: bool = False) -> str | None:
    if whole:
        summary = normalise_text(text)
        same = [index for index, choice in enumerate(choices) if normalise_text(choice) == summary]
        return chr(65 + same[0]) if len(same) == 1 else None
    named = {index for _, _, index in mentions(text, choices)}
    return chr(65 + named.pop()) if len(named) == 1 and not negated else None
