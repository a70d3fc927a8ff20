"""What a step says that something now is: ``tails`` in ``It is tails up now``, ``prey animals`` in ``They are prey animals.``"""

import re

from cirf.records import Problem
from cirf.tasks.steps.calculations import plain_step
from cirf.text.numerals import plain
from cirf.text.sentences import BETWEEN_SENTENCES

_QUESTION = re.compile(  # or what is not known: "Nothing says that Bob is red"
    r"(?<![^.!?\n])[^.!?\n]*\?|\bwhether\b[^.!?\n]{0,40}?\b(?:heads|tails)(?: up)?\b"
    r"|(?<![^.!?\n])[^\w.!?\n]{0,5}(?:(?:nothing|no (?:rule|fact)) (?:says|states|tells)|we (?:do not|don['’]t|cannot) know"
    r"|it is (?:not known|unknown))\b(?:(?!,? (?:so|but|therefore|thus|hence)\b)[^.!?\n])*",
    re.I,
)
_SIDE = re.compile(r"(?<!\w)(heads|tails)(?!\w)", re.I)
_PAST = re.compile(r"\b(?:was|were|from|had been|instead of|rather than|initially|originally|before)\b(?:\s+\w+){0,3}\s*$", re.I)
_DENIES = re.compile(r"(?:\bnot|n['’]t|\bno longer|\bnever)(?:\s+(?:still|be|showing|facing|on|anymore|now|the))*\s*$", re.I)
_SAME = re.compile(
    r"\b(?:same|unchanged|no change|(?:does|do|did|is|are) not change|stays? (?:as|put)|remains? as|no effect|nothing changes)\b",
    re.I,
)


def coin_state(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """``heads`` or ``tails``: the state the step names last. States of the past ("from heads to", "was heads") count only
    where no other is named; "not heads" is tails; a step that names none but says that nothing changes keeps the last one."""
    text = _QUESTION.sub("", plain(segment))
    now, past = "", ""
    for match in _SIDE.finditer(text):
        side = match[1].lower()
        before = text[max(0, match.start() - 40) : match.start()]
        if _DENIES.search(before):
            side = "tails" if side == "heads" else "heads"
        if _PAST.search(before):
            past = side
        else:
            now = side
    if now or past:
        return now or past
    known = [state for state in previous if state]
    return known[-1] if known and _SAME.search(text) else ""


_WORDS_AT_MOST = 4
_CHARACTERS_AT_MOST = 28
_SENTENCES_READ = 3  # at most, from the last one back
_READ = 300  # characters of a sentence
_CONDITION = re.compile(
    r"\s*\b(?:(?:(?:at|in|from) the (?:start|beginning|end|first)|at first)\b,?"
    r"|(?:if|when|since|because|as|after|once|although|while|given that)\b[^,]*,)"
    r"|,\swho\b[^,]*,(?=\s(?:is|was|has|had|became)\b)",
    re.I,
)
_QUANTIFIED = re.compile(r"\W*(?:every|each|all|any|some|most)\s", re.I)  # "All cats are loud" says what cats are
_NOW = re.compile(r"\b(?:now|then) *\Z", re.I)
_REPORTS = re.compile(  # "The passage also says that ..."
    r"^(?:[^\s,;]+\s){1,6}?(?:is|was|says?|states?|tells?|told|mentions?|notes?|indicates?|shows?|explains?|means?|implies|knows?|reads?|reports?|learn)"
    r"(?:\sus)?\sthat\s(?=\S+\s\S)",
    re.I,
)
_CLAUSE = re.compile(r"[;:]\s|,?\s(?:so|but|therefore|thus|hence|which means)(?: that)?\s|,\s(?:and\s)?|\sand\s(?=now\s)", re.I)
_PREMISE = re.compile(r",?\s(?:so|therefore|thus|hence)(?: that)?\s")
_NOTHING = re.compile(  # is something: it says what is not so
    r"\W*(?:nothing|nobody|none|neither|no\s|not\s(?:every|all|each|any|many)\b|whether\b|issue:)", re.I
)
_FACING = re.compile(r"\bfac(?:es?|ing)\s(?:(?:now|due)\s)?((?:north|south|east|west)(?:[- ]?(?:east|west))?)\W*$", re.I)
_ASIDE = re.compile(
    r"\s(?:who|whose|whom|whoever|which|where|when|how\s(?:many|much)|that(?=\s(?:is|are|was|were|has|have|had|can|could|do|does|did|will|would|took)\b))\s.*",
    re.I,
)
_SAYS_WHAT = re.compile(
    r"""(?<=[\w"”'’)])(?<!\bthe)\s(?:
    (?P<copula>(?:must|will|has|have|had)\s(?:still\s)?(?:be|been)|is|are|was|were|becomes?|became|remains?|stays?
        |turn(?:s|ed)?(?:\s(?:it|them))?(?:\s(?:in)?to)?(?!\s[^.,;]{1,40}\s(?:in)?to\s))
    |(?:(?:chang|switch|mov|turn|convert|transform)(?:es?|ed|s)|goes|went|gives?|gave|swaps?|brings?|takes?)\b[^.,;]{0,40}?\s(?:in)?to
    |(?P<holds>has|have|had|holds?|contains?|includes?|requires?|lacks?|owns?|causes?|produces?|provides?|eats?|uses|features?|mentions?|concerns?|means|equals?|faces?
        |(?:suggests|indicates)(?!\s(?:that|it|he|she|they|what|how|why)\b))
    |(?:gives?|gave|yields?|makes?|spells?|forms?|returns?|prints?|outputs?)(?=\s["“'‘`])
    |(?:lives?|lived|lies?|starts?|sits?|stands?|belongs?|belonged|consists?|consisted|comes?|came|occurs?|occurred|originated|refers?
        |died)\s(?:in|on|at|to|of|from|as|by|with)|serve[sd]\sas
    )\s(?=\S)""",
    re.X | re.I,
)
_FILLERS = re.compile(
    r"(?:now|still|currently|then|also|mostly|usually|typically|primarily|generally|often|only|just|back|again|really|simply|very"
    r"|therefore|thus|hence|initially|originally|both|all|some|an?|the|its|his|her|their|said|considered|called|named(?: after)?"
    r"|known|to be|as"
    r"|(?:in|on|at|about)(?=\s(?:(?:an?|the|his|her|its|their)\s|(?-i:[A-Z]))))\s+",
    re.I,
)
_BY = re.compile(
    r"(?!(?:dis)?satisfied|pleased)(?:[a-z]+ed|made|born|built|held|written|given|led|found|taken|won|chosen|drawn)\s(?:as|after|by(?!\s[a-z]+ing\s)|from|into|of|to|with)\s"
    r"|(?:located|situated|born|held|set|found|based|placed|kept|stored|hidden)\s(?:in|on|at)\s",
    re.I,
)
_RELATED = re.compile(r"(?:associated|related|linked|connected)\s")  # "not related to Y" is not "not Y"
_ENDS = re.compile(
    r"[,;:()\n\"“”]|\s-\s|\s(?:too|as well|together|who|which|that|where|when|whose|how|what|because|since|while|after|before"
    r"|until|at the|unless|if|as|but|whereas|so|than|rather|and not"
    r"|due|during|without|through|such|like|therefore|thus|hence|now|again|anymore|afterwards|at first|including)(?=\W|$)"
    r"|(?<!ly)\s(?:[a-z]{3,}ed|used|held|made|dealt|built|known|born|found|set|written|worn|done)(?=\s(?:in|by|for|from|on|to|with|at|of"
    r"|up|around|as|out|between)\s|\W*$)|(?<!ly)\s[a-z]{3,}ing(?=\s(?:in|the|an?|at|on|of|from|with|by|two|three|about)\s)",
    re.I,
)
_PREPOSITION = re.compile(r"\s(of|in|on|at|for|from|to|by|into|about|between|among|over|under|around|near|per|with)\s", re.I)
_EMPTY = re.compile(
    r"(?:it|this|that|these|those|there|one|some|many|something|someone|able|not|no|likely|(?-i:true|false)|in|at|of|for|to|with|so|as|case|what"
    r"|how|why|part|type|example|way|same|different|thing|things|here|he|she|they|we|you|i|possible|used|said|words?|need|also|only"
    r"|all|none|both|each|more|less|answer|one of|result|subject|series|order|question|correct|right|wrong|choice|option|lot"
    r"|either|neither|well|home|each other|one another|to have .*|in total|(?:.*\s)?(?:among|for|of|with)\s(?:it|them))",
    re.I,
)
PAIR = re.compile(  # "Nia is before Ava", "the order has Nia before Ava", "Bo came ahead of Cy"
    r"""(?<![\w-])(?!(?:It|He|She|They|This|That|These|Those|We|You|I|There)\b)([A-Z][\w'’-]*)\s(?:(?:must|has\sto|will|would|should)\s)?(?:(?:is|was|be|sit|sat|stood|came|come|ran|run|went|spoke
    |[a-z]{2,}(?:s|ed))\s)?(?:(?:immediately|directly|right|just|still|to\sthe)\s){0,2}
    (before|after|above|below|behind|ahead\sof|next\sto|in\sfront\sof|left\sof|right\sof|[a-z]{3,}er\sthan)\s([A-Z][\w'’-]*)(?=\W*$)""",
    re.X,
)
HOLDS = re.compile(  # "Ann has the book and Bo has the ball", "Ann: book, Bo: ball"
    r"""(?<![\w-])([A-Z][\w'’-]*)(?::\s|(?<=\w\w)\s?=\s?|(?:\s(?:now|still|then))?\s(?:has|had|holds|gets|got|keeps|owns|plays
    |is\s(?:holding|playing|in|at|on|with)|(?:is\s)?danc(?:es|ing)\swith)\s)(?:(?:the|an?|his|her|now)\s)*
    ([\w'’-]+(?:\s(?!and\b|but\b)[\w'’-]+)?)(?=\s*(?:[,.;:!)|]|and\b|but\b|while\b|$))""",
    re.X,
)
_UNFINISHED = re.compile(
    r"(?:for|to|a person|and|or)\b.*|(?:.*\s)?(?:and|or|of|by|was|is|all|prior|that|which|an?|the|with)", re.I
)
_SAYS_LITTLE = re.compile(  # alone
    r"(?!(?:closed|opened|locked|unlocked|married|retired|tired|naked|sacred|wicked|hundred|infected|related|mixed)$)[a-z]{2,}(?<!e)ed"
    r"|(?!(?:family|early|friendly|deadly|ugly|elderly|lonely|jelly|belly|holy|oily|smelly|daily|unlikely)$)[a-z]{2,}ly"
    r"|clad|made|built|given|taken|shown|seen|sent|led|held|done|worn|kept|put|set|found|fact|equal|due|such|enough|much|most|few"
    r"|other|another|both|together|because|if|than|then|when|where|who|whom|whose|while"
)
_WORD = re.compile(r"[^\W_]+")
_SUM = re.compile(r"[√^=]|\b(?:plus|minus)\b")
_ITEM = r"[\"“'‘]?(?!(?:it|they|he|she|we|you|so|but|which|who)\b)[\w'’-]+(?: [\w'’-]+)?[\"”'’]?"
_PRONOUN = re.compile(r"\s(?:it|he|she|they|we|you|i|this|that|there|one)\Z|\b(?:it|he|she|they|we|you|i)['’](?:d|ll)\Z", re.I)
_ABOUT = re.compile(r"\s(?:mentions?|concerns?|requires?|refers)\b", re.I)  # who does so tells nothing
_LACKS = re.compile(r"(?:\b(?:not|never|no longer|cannot)|n['’]t)(?:\s(?:even|really|actually|yet|also))?\s?\Z", re.I)
_DEFINITE = re.compile(r"\W*(?:the|its|his|her|their)\s", re.I)  # "the city is Oslo"
_SERIES = re.compile(  # "Ann > Bo > Cy", "red, white and blue"
    rf"(?!(?-i:[a-z]{{3,}})\s?-?[>→])"  # no lower case: "met → yes" is a conclusion
    rf"({_ITEM}(?:\s?[<>→]\s?{_ITEM})+|{_ITEM}(?:, {_ITEM})+(?:,? and {_ITEM})|{_ITEM}(?:, {_ITEM}){{2,}})[.!]?",
    re.I,
)
_LABELLED = re.compile(  # "Reversed: t, a, c"
    r"(?!(?:To )?[Ff]ind\b|Wanted\b|Needed\b|Asked\b)"
    rf"[A-Z][\w'’-]*(?: [\w'’-]+){{0,3}}: ({_ITEM}(?:, {_ITEM}){{2,9}}(?:,? and {_ITEM})?|[\w'’-]+)[.!]?"
)
_QUOTED = re.compile(
    r"""(?:[:=]|\b(?:is|to|gives?|prints?|returns?))\s["'“‘`]([^"'“”‘’`\n]{1,28})["'”’`][.!]?\Z"""
)  # "it is 'cba'."
_LONGEST_SERIES = 40  # characters


def state(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """What a step says that something is, becomes or has, in at most four words; empty where it says none so short.

    ``Prey animals are food for predators.`` gives ``food for predators``, ``So the lamp turns off`` gives ``off``. Where that is
    what the question has, it is what it is said of: ``Cy`` in ``So Cy has the ball`` for *Who has the ball?* The last of a
    step's sentences that says one counts, and of it the last clause. Questions, conditions and steps with numbers say none.
    """
    text = _QUESTION.sub("", plain_step(segment))
    _, apart, asked = problem.question.rpartition("\n\n")  # after its passage, which is what steps find things in
    known = {_stem(word) for word in _WORD.findall(asked if apart and "?" in asked else problem.question)}
    for sentence in reversed(BETWEEN_SENTENCES.split(text.strip())[-_SENTENCES_READ:]):
        plain = _REPORTS.sub("", _CONDITION.sub("", " ".join(sentence[:_READ].split())))
        if len(held := HOLDS.findall(plain)) > 1:
            shared = {what.partition(" ")[2] for _, what in held}  # of "red ball" and "blue ball" the colours
            kept = ", ".join(f"{name}: {what.partition(' ')[0] if len(shared) == 1 else what}" for name, what in held)
            return kept if len(kept) <= _LONGEST_SERIES else ""
        if (quoted := _QUOTED.search(plain)) and not (" " in quoted[1] and quoted[1] in problem.question):
            return quoted[1]
        for verb in reversed(list(_SAYS_WHAT.finditer(plain))):
            series = _SERIES.fullmatch(plain, verb.end())
            if series:
                return series[1] if len(series[1]) <= _LONGEST_SERIES else ""
        if heading := _FACING.search(plain):
            return heading[1]
        for clause in reversed(_CLAUSE.split(_PREMISE.split(plain)[-1])):
            if _NOTHING.match(clause):
                continue
            if pair := PAIR.search(clause):
                return " ".join(pair.groups())
            clause = _ASIDE.sub("", clause)
            match = _SAYS_WHAT.search(clause)
            found = _complement(clause[match.end() :], match) if match else ""
            if match and found and match["holds"] and _LACKS.search(clause[: match.start() + 1]):
                return f"no {found.removeprefix('any ')}"
            offered = found and re.search(rf"\bor {re.escape(found)}\b|\b{re.escape(found)} or\b", asked, re.I)  # "on or off?"
            named = match and match["copula"] and clause.startswith(found, match.end()) and _DEFINITE.match(clause)
            if match and found and not (offered or named or _NOW.search(clause[: match.start() + 1])) and _is_known(found, known):
                about = "" if _QUANTIFIED.match(clause) else _subject(clause[: match.start()])
                found = (
                    ""
                    if _EMPTY.fullmatch(about) or _PRONOUN.search(about) or _ABOUT.match(match[0])
                    else about
                    if about and not _is_known(about, known)
                    else found
                )
            if found:
                return found
        if label := _LABELLED.fullmatch(plain):
            return label[1]
    return ""


def _complement(text: str, verb: re.Match[str]) -> str:
    """The complement of a verb, without articles and following text; empty if it has too many words."""
    if verb["holds"] and re.match(r"(?:to|not|[a-z]+(?:ed|en))\s", text):  # "has to pay", "has moved"
        return ""
    if re.match(r"between\s(?!.*\sand\s\S+\W*$)", text):  # "between Rome and several towns": what goes on is left out
        return ""
    if verb["copula"] and re.match(r"[a-z]+ing\s", text):  # "is walking home"
        return ""
    denied = re.match(r"(?:not|no longer|never)\s+", text) if verb["copula"] else None
    text = _strip(text[denied.end() :] if denied else text)
    if denied and _RELATED.match(text):
        text = re.split(r"\s(?:and|or)\s", text)[0]
    elif verb["copula"] and (by := _BY.match(text)):
        text = _strip(text[by.end() :])
    text = text.lstrip("\"“'‘*(")
    end = _ENDS.search(text)
    if end and end[0] == "(" and text[: end.start()][-1:].isalpha():  # "cos(x)"
        return ""
    words = _short_phrase((text[: end.start()] if end else text).strip(" .!*'’"))
    return f"not {words}" if words and denied else words


def _short_phrase(words: str) -> str:
    """A phrase cut down to four words: without what a preposition adds, else without adjectives; empty where nothing is left."""
    words = re.sub(r"\s(?:up|down)$", "", words)
    while not _fits(words) and (cuts := list(_PREPOSITION.finditer(words))):
        left, right = words[: cuts[-1].start()], _strip(words[cuts[-1].end() :])
        if " " not in left and cuts[-1][1].casefold() == "of":  # "subject of public controversy"
            return right if _fits(right) and not _says_little(right) else ""
        words = left
    if not _fits(words):
        words = re.split(r"\s(?:and|or)\s", words)[0]
    while not _fits(words) and " " in words and not re.match(r"no\s", words):  # "no rule against an appeal"
        words = words.partition(" ")[2]
    return "" if not _fits(words) or _EMPTY.fullmatch(words) or _says_little(words) or _SUM.search(words) else words


def _says_little(words: str) -> bool:
    """Whether a phrase breaks off (``animals and``) or is a lone word that needs more: ``transmitted``, ``fact``."""
    return _UNFINISHED.fullmatch(words) is not None or _SAYS_LITTLE.fullmatch(words) is not None


def _subject(text: str) -> str:
    text = re.sub(r"^(?:so|thus|therefore|hence|then|finally|and|but|now|that|where),?\s+", "", text.strip(), flags=re.I)
    text = _strip(text).strip(" \"“”'‘*")
    return text if _fits(text) and not re.search('["“”]', text) and not _says_little(text) else ""


def _is_known(words: str, asked: set[str]) -> bool:
    return all(_stem(word) in asked for word in _WORD.findall(words))


def _stem(word: str) -> str:
    return word.casefold().removesuffix("s")


def _strip(text: str) -> str:
    while match := _FILLERS.match(text):
        text = text[match.end() :]
    return text


def _fits(words: str) -> bool:
    return len(words) <= _CHARACTERS_AT_MOST and len(words.split()) <= _WORDS_AT_MOST
