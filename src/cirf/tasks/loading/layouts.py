r"""Converts the layouts of rows that people and tools write to one: ``question``, ``answer``, ``rationale``, ``choices``.

They are recognised by their fields (the tables of docs/how-to/own-formats.md), whose names are read without regard to case,
blanks and underscores. Conversations are in `cirf.tasks.loading.conversations`, options in `cirf.tasks.loading.choices`, and the
parting of rationale and answer in `cirf.tasks.loading.targets`.
"""

import contextlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from cirf.store.jsonl import RowError
from cirf.tasks.loading.choices import chosen, has_options, judged, with_choices
from cirf.tasks.loading.conversations import (
    are_turns,
    conversation,
    first_text,
    inside,
    is_text,
    logged,
    marked_turns,
    role_of,
    thought_of,
    turn_of,
)
from cirf.tasks.loading.targets import LAST_LINE, from_sentence, is_bare_answer, opened_with, split_answer, worked_program
from cirf.tasks.parsing.anchors import anchors, states_answer_only
from cirf.tasks.parsing.answers import normalise_text, number_value
from cirf.tasks.parsing.texts import without_marks
from cirf.tasks.parsing.thoughts import declared, split_thoughts
from cirf.tasks.steps import numbers_in, worked_out
from cirf.text.sentences import BETWEEN_SENTENCES, whole_words

_QUESTIONS = (
    *("prompt", "problem", "instruction", "query", "input", "statement", "claim", "question_stem"),
    *("stem", "goal", "ctx", "sentence", "text", "review", "tweet", "headline", "utterance", "email", "ticket", "message_1"),
)
_CONTEXTS = ("context", "passage", "hint", "body", "article", "story", "theory", "document", "paragraph", "table")
_BESIDE = (  # the same next to a `question`, where they hold several words; else they may be notes
    *("text", "sentence", "review", "tweet", "headline", "utterance", "email", "ticket", "input", "code", "snippet", "schema"),
    *("abstract", "excerpt", "transcript", "dialogue", "dialog", "conversation", "scenario", "clause", "report"),
)
_OF_CODE = re.compile(  # but not about writing it
    r"\A(?!.*\b(?:write|implement|define)\b).*\b(?:code|program|script|snippet|outputs?|prints?|returns?)\b", re.I | re.S
)
_OF_A_TEXT = re.compile(r"\b(?:review(?:er)?s?|report(?:s|ed)?|customer|author|writer|this|these|it|its|above|following)\b", re.I)
_ASKED_ABOUT = {"code": _OF_CODE, "snippet": _OF_CODE, "review": _OF_A_TEXT, "report": _OF_A_TEXT}
"""What a question has that is about code, a review or a report; else these are a solution or a note on the row."""
_REPORT = ("pre_text", "table", "post_text")  # FinQA's: all of them
_TARGETS = (
    *("completion", "response", "output", "solution", "target", "generated_solution", "generation", "chosen"),
    *("deepseek_solution", "r1_solution_1", "message_2"),
)
_GENERATIONS = ("generations", "responses", "completions", "samples")  # several of a question
_ANSWERS = (
    *("final_answer", "answer_key", "correct_answer", "correct_option", "correct", "is_correct"),
    *("gold", "gold_label", "final_decision", "final", "label", "cop", "expected_answer", "ground_truth"),
    *("answer_idx", "answer_index", "correct_idx", "correct_index", "correct_answer_index", "correct_choice"),
    *("answers", "exe_ans", "gold_answer", "reference_answer", "expected_output", "ideal", "labels"),
    *("answers_spans", "ra"),
)
_VERDICTS_NAMED = ("verdict", "stance", "sentiment", "intent", "emotion", "diagnosis")  # the answer where no other has it
_CLASSES = (  # the same, if the rationale ends with it; else it may be a note on the row
    *("category", "class", "classification", "topic", "department", "priority", "risk", "severity", "rating", "score", "stars"),
    *("outcome", "decision", "prediction"),
)
_DENIES = re.compile(r"\b(?:not|no|never|nor)\b|n['’]t\b", re.I)
_RATES = re.compile(r"\b(?:rat|scor|star|priorit|severit|level|class)", re.I)
_RATIONALES = (
    *("cot", "reasoning_content", "reasoning", "explanation", "chain_of_thought", "thinking", "thought", "think"),
    *("reasoning_details", "long_answer", "exp"),
    *("reason", "justification", "reasoning_steps", "solution_steps", "reasoning_trace", "thought_process", "thoughts"),
    *("worked_solution", "working", "analysis", "derivation", "explanation_1", "deepseek_reasoning", "thinking_trajectories"),
    *("cot_content", "complex_cot", "long_cot", "abstractive_explanation", "proof", "support", "why", "steps"),
)
_NOTES = ("reason", "justification", "working", "analysis", "proof", "support", "why", "steps")
"""Rationales only with several words."""
_LESS_LIKELY = (  # names of questions, and of other things
    *("goal", "ctx", "sentence", "text", "review", "tweet", "headline", "utterance", "email", "ticket"),
)
_STEPS = ("steps", "facts")
_FACT = re.compile(r"fact_?\d|combined_?fact")  # one of several, each in a column
JUDGEMENTS = ("correct", "is_correct", "label")
"""Columns that may say whether a solution is right, by true, false, 1 or 0."""
_VERDICTS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_VERDICTS |= {"correct": True, "right": True, "incorrect": False, "wrong": False}
_FIELDS = ("question", "answer", "rationale", "choices", "options", "id")
_PAIRS = (("premise", "hypothesis"), ("premises", "conclusion"), ("sentence1", "sentence2"), ("question1", "question2"))
_TURNS = ("messages", "conversations", "conversation", "contents", "dialog", "dialogue", "turns")
_SYSTEM = ("system", "system_prompt", "system_instruction")
_COLUMNS = (*_FIELDS, *_QUESTIONS, *_CONTEXTS, *_REPORT, *_TARGETS, *_ANSWERS, *_RATIONALES, *_STEPS, *_TURNS, *_SYSTEM)
_NAMES = (*_COLUMNS, *_BESIDE, "evidence", *_VERDICTS_NAMED, *_CLASSES, "program", *(name for pair in _PAIRS for name in pair))
_KNOWN = {name.replace("_", ""): name for name in _NAMES}
_ELSEWHERE = {  # in other languages, and ECQA's
    "question": "frage aufgabe pregunta pergunta domanda вопрос задача 问题 题目 題目 質問 問題 질문 문제 qtext",
    "answer": "antwort réponse respuesta resposta risposta ответ 答案 回答 答え 정답 답변 답 qans",
    "rationale": "begründung erklärung lösungsweg rechenweg rechnung weg raisonnement explication razonamiento explicación taskb "
    "raciocínio explicação ragionamento spiegazione объяснение обоснование рассуждение 解析 推理 分析 解説 説明 理由 풀이 해설",
    "solution": "lösung solución solução soluzione решение 解答",
    "choices": "antwortmöglichkeiten optionen opciones opções opzioni варианты 选项 選択肢 선택지 보기",
}
_KNOWN |= {name: ours for ours, names in _ELSEWHERE.items() for name in names.split()}
_NOTED = re.compile(r"topic|category|subject|source|type|role|level|split|\bid|date|lang|model", re.I)
_CLOSING = 80  # characters of a text in which its conclusion is looked for
_NAMED = 12  # names of columns in a message
_SENTENCE, _READ = 4, 0.5  # mean words of a column with texts, and the share of their pairs from which on it counts as read
_REPEATED = 0.9  # share of a rationale's pairs that the column it is read from has; one with fewer is quoted
_ASKED, _ASKED_TURNS = ("question", *(pair[0] for pair in _PAIRS), *_QUESTIONS), ("prompt", "input")
_CODE = re.compile(r"[(){}=]")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")  # of scripts without spaces a sign
_SAID = ("text", "thought", "content", "fact", "step", "value", "output")  # the column of texts of a step's object
_NO_TEXT = re.compile(r"\W*\d*\W*|(?i:positive|negative|neutral|true|false)")  # a step's number or rating


def plain_row(
    raw: Mapping[str, Any],
    where: str,
    columns: Mapping[str, str] | None = None,
    answered: bool = True,
    delimiter: Sequence[str] = (),
) -> dict[str, Any]:
    """A row in the common layout; other fields stay. ``columns``: names of the columns by field, if they are not detected;
    ``delimiter``: what sets thoughts off, as of `declared`. Unless ``answered``, a target need not have an
    answer. ``RowError`` for a missing column, a conversation without an answer, and a target without an answer."""
    row = _renamed(raw, where, columns or {})
    passages = [name for name in _BESIDE if is_text(row.get("question")) and name not in (columns or {}).values()]
    target = (text := _target(row, where)) and declared(text, delimiter)
    row |= {name: declared(row[name], delimiter) for name in ("answer", "rationale") if is_text(row.get(name))}
    marks = _marks(row, target, where if answered else None)
    if row.get("answer") is None and (answer := _answer(row, target, marks)) is not None:
        row["answer"] = answer
    elif target is None and not columns and _is_long(row.get("answer")) and _is_value(row.get("final_answer")):
        target, row["answer"] = row["answer"], row["final_answer"]
    if row.get("rationale") is None:
        steps, facts = map(_lines, map(row.get, _STEPS))
        summary, worked = _summary(row, target), worked_program(str(row.get("program")))
        if steps is not None:
            row["rationale"] = steps
        elif worked is not None and _is_value(row.get("exe_ans")):
            row |= {"rationale": worked, "answer": row["exe_ans"]}
        elif summary is not None and target is not None:
            target = f"<think>{summary}</think>{target}"
        elif summary is not None:
            row["rationale"] = summary
        elif facts is not None and target is None:
            row["rationale"] = facts
    if target is None and row.get("rationale") is None and is_text(row.get("answer")) and _has_working(row["answer"]):
        target = row.pop("answer")
    if target is not None and row.get("answer") is None:
        rationale, answer = _both(row, target, where, answered)
        if answer is None and answered:
            message = "no answer is found in its text; end it with `#### ANSWER`, \\boxed{ANSWER} or `The answer is ANSWER.`"
            raise RowError(where, message, "no answer is found in its text")
        row |= {"answer": answer} if answer is not None else {}
        row["rationale"] = row.get("rationale") or rationale
    elif row.get("rationale") is None and target is not None:
        again = target.split() == str(row["answer"]).split()
        if not again and (len(target.split()) > 1 or "=" in target):
            row["rationale"] = target
    elif row.get("answer") is None and is_text(why := row.get("rationale")) and all(two := _both(row, str(why), where, answered)):
        row["rationale"], row["answer"] = two
    elif answered and row.get("answer") is None and (verdict := first_text(row, _VERDICTS_NAMED) or _class(row)):
        row["answer"] = verdict
    if row.get("rationale", "") is None:
        del row["rationale"]
    for field in ("question", "answer") if answered else ():
        if field not in row:
            raise missing(raw, field, where)
    if is_text(row.get("answer")) and is_text(row.get("rationale")) and not has_options(row):
        row["answer"] = from_sentence(row["answer"], row["rationale"], str(row.get("question", "")))
    if is_text(row.get("answer")):
        row["answer"] = without_marks(_beside(row["answer"], delimiter) if delimiter else row["answer"])
    _put_context_first(row, where, columns or {}, passages)
    return with_choices(row, where)


def _both(row: Mapping[str, Any], text: str, where: str, guess: bool) -> tuple[str | None, str | None]:
    """The rationale and the answer of a text; of a row with options the letter of the one that it names, if only in passing where
    it may ``guess``."""
    rationale, answer = split_answer(text)
    return rationale, chosen(row, text, answer, where) if guess or answer is not None else None


def _beside(answer: str, delimiter: Sequence[str]) -> str:
    """An answer beside a rationale without what a delimiter sets off before it, or a delimiter after it."""
    last = "</think>" if len(delimiter) > 1 else delimiter[0]
    barer = answer.strip().removesuffix(last).rstrip()
    return split_thoughts(barer, own_names=False)[1] or barer or answer


def _class(row: Mapping[str, Any]) -> str | None:
    """The first of `_CLASSES` with whose words the rationale ends, but for one more: ``a refund request``. A number is a class
    where the sentence rates, as in ``The guest gives 1 star``; a sentence that denies has none."""
    lines = str(row.get("rationale") or "").strip().splitlines()
    last = BETWEEN_SENTENCES.split(lines[-1])[-1] if lines else ""
    said = "" if _DENIES.search(last) else _words(last)
    endings = (said, said.rstrip().rpartition(" ")[0] + " ")
    for value in (str(row[name]) for name in _CLASSES if _is_value(row.get(name))):
        rated = _RATES.search(last) if number_value(value) is not None else value.strip()
        if rated and _words(value).strip() and "-" not in value and any(end.endswith(_words(value)) for end in endings):
            return value
    return None


def _words(text: str) -> str:
    return " ".join(["", *re.findall(r"[^\W_]+", text.casefold()), ""])


def _put_context_first(row: dict[str, Any], where: str, named: Mapping[str, str], passages: Sequence[str]) -> None:
    """Put the context, or else the first of the ``passages`` that is one, and the system prompt of a row before its question,
    unless the question has them."""
    wanted = "context" in named or "question" not in named
    evidence = ("evidence",) if "claim" in row else ()
    sources = ("context",) if "context" in named else (*_CONTEXTS, *evidence, "premise", "premises")
    context = _context(row, sources) if wanted and is_text(row.get("question")) else None
    if context is None and "context" in named and row["context"] is not None:
        raise RowError(where, f"{named['context']} is no text and no list of texts", "its context is no text")
    if context is None and wanted and "context" not in named:
        context = next((row[name] for name in passages if _is_passage(name, row)), None)
    system = _system(row) if wanted and not _conversed(row) else None
    for before in filter(None, (context, system)):
        if before.strip() not in row["question"]:
            row["question"] = f"{before.strip()}\n\n{row['question']}"


def _is_passage(name: str, row: Mapping[str, Any]) -> bool:
    """Whether a column holds a text of several words or code, and no prompt or solution, which repeats the question or the
    rationale or works out the answer, nor code or a note that the question does not mention."""
    value, asked = row.get(name), row["question"]
    if not isinstance(value, str) or not is_text(value) or (name in _ASKED_ABOUT and not _ASKED_ABOUT[name].search(asked)):
        return False
    worth = number_value(str(row.get("answer")))
    solves = worth is not None and worth in map(number_value, worked_out(value)) and worth not in numbers_in(asked)
    said, *others = (_words(str(each or "")) for each in (value, asked, row.get("rationale")))
    long = len(value.split()) >= _SENTENCE or _CODE.search(value) is not None
    return long and not solves and not any(other.strip() and other in said for other in others)


def _summary(row: Mapping[str, Any], target: str | None) -> str | None:
    """The text of the first column that holds a rationale. Notes such as ``reason: verified``, and those beside a solution or
    working, are none."""
    worked = target is not None or "####" in str(row.get("answer"))
    for name in _RATIONALES:
        value = row.get(name)
        if is_text(value) and (name not in _NOTES or (not worked and len(_WORD.findall(str(value))) >= _SENTENCE)):
            return str(value)
    return None


def _marks(row: Mapping[str, Any], target: str | None, where: str | None) -> list[str]:
    """The columns that say whether the row's solution is right, ``label`` only next to no answer and to a target or a rationale
    that calls another number the answer. ``RowError`` at ``where`` for a solution that is wrong."""
    solution, answered = target or row.get("rationale") or _summary(row, target), row.get("answer") is not None
    found = []
    for name in JUDGEMENTS if is_text(solution) and not is_text(row.get("hypothesis")) else ():
        value, options = row.get(name), has_options(row)
        verdict = _verdict(value)
        states = target is not None or any(number_value(said) not in (None, 0, 1) for _, said in anchors(str(solution)))
        marks = name != "label" and not (options and str(value).strip().isdigit()) if answered else states and not options
        if verdict is None or not marks:
            continue
        found.append(name)
        if not verdict and where is not None:
            other = "rename the column" if answered else "name the column answer"
            message = f"{name} is {value!r}: leave the row out if that marks a wrong solution, else {other}"
            raise RowError(where, message, f"{name} says that its solution is wrong")
    return found


def _verdict(value: Any) -> bool | None:
    return _VERDICTS.get(str(value).strip().casefold())


def _answer(row: Mapping[str, Any], target: str | None, marks: Sequence[str]) -> Any:
    """The value of the first column that holds an answer, not one of ``marks``; ``None`` without one."""
    values = (row.get(name) for name in _ANSWERS if name not in marks)
    return next((value for value in values if _is_value(value) and not (target and isinstance(value, bool))), None)


def _context(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """What comes before a question: a text, texts, the rows of a table, PubMedQA's ``{"contexts": [...]}``, or HotpotQA's titles
    with sentences."""
    if "pre_text" in row and "table" in names:
        return "\n".join(filter(None, (_flat(row.get(part)) for part in _REPORT)))
    found = next(filter(None, (_flat(row.get(name)) for name in names)), None)
    return None if row["question"].startswith(("Premise:", "Premises:")) else found


def _flat(value: Any) -> str | None:
    """A text, texts, rows of cells and titles with sentences as lines; ``None`` of anything else."""
    if isinstance(value, Mapping):
        pairs: list[Any] = [value.get("title"), value.get("sentences")]
        titled = all(isinstance(each, list) for each in pairs) and len(pairs[0]) == len(pairs[1])
        rows = [value.get("header"), *value["rows"]] if isinstance(value.get("rows"), list) else value.get("contexts")
        value = list(map(list, zip(*pairs, strict=True))) if titled else rows
    if isinstance(value, list) and value and all(isinstance(each, list) and each for each in value):
        titled = all(len(each) == 2 and isinstance(each[1], list) for each in value)
        value = [
            f"{each[0]}: {' '.join(str(part).strip() for part in each[1])}" if titled else " | ".join(map(str, each))
            for each in value
        ]
    return value if is_text(value) else _lines(value)


def _lines(value: Any) -> str | None:
    """A list as lines, be it of texts or of objects with texts (``{"step": 1, "thought": ...}``), or an object that numbers its
    texts (``step_1``, ``step_2``); ``None`` of anything else."""
    if isinstance(value, Mapping):
        value = list(value.values()) if all(str(name)[-1:].isdigit() for name in value) else value.get("steps")
    if not isinstance(value, list):
        return None
    lines = [_said(each) if isinstance(each, Mapping) else each.strip() for each in value if isinstance(each, (str, Mapping))]
    return "\n".join(lines) if value and len(lines) == len(value) and all(lines) else None


def _said(each: Mapping[str, Any]) -> str:
    """The text of an object in a list: what its column of texts says, else all texts that are no number or rating."""
    texts = {name: part.strip() for name, part in each.items() if is_text(part) and not _NO_TEXT.fullmatch(part)}
    return next((texts[name] for name in _SAID if name in texts), " ".join(texts.values()))


def _is_long(answer: Any) -> bool:
    return is_text(answer) and not is_bare_answer(answer.strip())


def _has_working(answer: str) -> bool:
    rationale, found = split_answer(answer)
    if split_thoughts(answer)[0] or "####" in answer or opened_with(answer):
        return True
    if rationale and worked_out(answer) and number_value(found or "") is not None:
        return True
    last = LAST_LINE.search(answer.strip())
    return last is not None and bool(anchors(last[1])) and (states_answer_only(last[1]) or "\\boxed" in last[1])


def _renamed(raw: Mapping[str, Any], where: str, columns: Mapping[str, str]) -> dict[str, Any]:
    row = _spelled(raw)
    row |= {} if columns else logged(row, where)
    if not columns and not any(isinstance(row.get(name), (str, list)) for name in (*_ASKED, *_TURNS)):
        row = _unfolded(row)
    for field, column in columns.items():
        value = raw[column] if column in raw else inside(raw, column)
        if value is None and column not in raw:
            message = f"no column {column!r}; columns (--columns) name it for {field}, and the row has {_names(raw)}"
            raise RowError(where, message, f"no column {column!r}")
        row[field] = value
    return _opened(row)


def _unfolded(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose question is in an object, with the fields of that beside its own: ``{"qa": {"question": ...}}``."""
    for name, value in row.items():
        if isinstance(value, Mapping) and _KNOWN.get(_squeezed(name), "question") in _ASKED:
            inner = _spelled(value)
            if any(isinstance(inner.get(each), (str, list)) for each in (*_ASKED, *_TURNS) if each not in _LESS_LIKELY):
                return inner | {other: each for other, each in row.items() if each is not value}
    return row


def paths(value: Any, name: str, depth: int = 6) -> list[str]:
    """The column of a value, or of an object and of a list of objects the paths of its parts."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        name, value = f"{name}.0", value[0]
    if isinstance(value, Mapping) and value and depth:
        return [path for part, inner in value.items() for path in paths(inner, f"{name}.{part}", depth - 1)]
    return [name]


def unread_columns(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """The columns with texts of several words that differ from row to row and are not in what the rows become, and those that may
    say whether a solution is right. ``rows``: each as it is in the file and in the common layout."""
    texts: dict[str, set[str]] = {}
    shares: dict[str, list[float]] = {}
    for raw, plain in rows:
        read = {pair for field in ("question", "answer", "choices") for pair in _pairs(_joined(plain.get(field)))}
        explained = {*_pairs(_joined(plain.get("rationale")))}
        for name, value in raw.items():
            settled = name in ("choices", "options") and plain.get("choices")
            settled = settled or (name in ("program", "answer", *_TARGETS, *_GENERATIONS) and plain.get("rationale"))
            settled = settled or ((_KNOWN.get(_squeezed(name)) in _TURNS or are_turns(value)) and _asks(value, plain))
            if (pairs := _pairs(text := _joined(value))) and not settled:
                texts.setdefault(name, set()).add(text)
                repeated = len(explained.intersection(pairs)) >= _REPEATED * len(explained) or explained.issuperset(pairs)
                found = read | explained if repeated else read
                shares.setdefault(name, []).append(sum(pair in found for pair in pairs) / len(pairs))
    marks = {name: {(_verdict(plain.get(name)), str(plain["answer"])) for _, plain in rows} for name in JUDGEMENTS}
    judging = [name for name, found in marks.items() if {verdict for verdict, _ in found} == {True, False} and len(found) > 2]
    return judging + [
        name
        for name, found in shares.items()
        if fmean(found) < _READ and len(texts[name]) > 1 and fmean(len(text.split()) for text in texts[name]) >= _SENTENCE
    ]


def _asks(turns: Any, plain: Mapping[str, Any]) -> bool:
    """Whether a conversation is the one that the row's question was read from: all of it is read, thoughts beside turns too."""
    asked, said = {*_pairs(plain["question"])}, {*_pairs(_joined(turns))}
    return len(asked & said) > _READ * len(asked)


def passage_columns(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """The columns that are put before a ``question`` though their names do not say that they belong there; ``rows`` as of
    `unread_columns`."""
    found = {
        name
        for raw, plain in rows
        for name, value in raw.items()
        if _KNOWN.get(_squeezed(name)) in _BESIDE
        and is_text(value)
        and "question" in raw
        and plain["question"] != raw["question"]
        and plain["question"].startswith(value.strip())
    }
    return sorted(found)


def _joined(value: Any) -> str:
    return value if isinstance(value, str) else _lines(value) or ""


def _pairs(text: str) -> list[tuple[str, str]]:
    return list(pairwise(re.findall(r"\w+", text.casefold())))


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    """The row with conversations as lists, which may be JSON text or a single turn, a list of lines as one rationale, and a lone
    answer in a list, or the letters of several right options, as an answer."""
    if _given(row) is None:
        row |= judged(row)
    for name in ("answer", *_ANSWERS):
        value = row.get(name)
        if isinstance(value, Mapping):  # TriviaQA's value and aliases, SQuAD's texts, DROP's spans
            inner = next((value[part] for part in ("value", "text", "spans") if part in value), None)
            value = (inner[:1] if "answer_start" in value else inner) if isinstance(inner, list) else [inner]
        if isinstance(value, list) and value and all(map(_is_value, value)):
            if len({normalise_text(str(each)) for each in value}) == 1:
                row[name] = value[0]
            elif (has_options(row) and all(str(each).isalpha() and len(str(each)) == 1 for each in value)) or (
                name == "labels" and all(map(is_text, value)) and _given(row) is None and first_text(row, _TARGETS) is None
            ):
                row[name] = ", ".join(value)
            elif name != "labels" and not any(isinstance(each, (str, bool)) for each in value):
                row[name] = json.dumps(value)
    asked = [name for name in _ASKED if is_text(row.get(name))]
    answered = _given(row) is not None or first_text(row, _TARGETS) is not None
    for name in (*_TURNS, *_ASKED_TURNS, *_TARGETS, "text"):
        value = row.get(name)
        if isinstance(value, str) and value.lstrip().startswith('[{"'):
            with contextlib.suppress(ValueError, RecursionError):
                row[name] = json.loads(value)
        elif isinstance(value, Mapping) and (name in _TURNS or role_of(value)):
            row[name] = [value]
        elif not isinstance(value, str) or (asked if name in _TARGETS else answered and {*asked} - {name}):
            continue
        elif turns := marked_turns(value, answered and name not in _TARGETS):
            said = turns if turns[-1] != {"role": "assistant", "content": ""} else turns[:-1]
            row["prompt" if said[-1]["role"] == "user" else "messages" if name in ("text", *_ASKED_TURNS) else name] = said
    if (best := _best_generation(row)) is not None:
        row["completion"] = best
    if facts := [value for name, value in row.items() if _FACT.fullmatch(str(name)) and is_text(value)]:
        row.setdefault("facts", facts)
    if (details := thought_of(row.get("reasoning_details"))) is not None:
        row["reasoning_details"] = details
    for name in ("rationale", *_RATIONALES[:-1], *_TARGETS):
        value = row.get(name)
        if not are_turns(value) and (lines := _lines(value)) is not None:
            row[name] = lines
    return row


def _best_generation(row: Mapping[str, Any]) -> str | None:
    """Of several solutions the first that is marked as right (``correctness_...``), else where none is marked, and there is no
    solution beside them, the first that ends in the row's answer, without an answer the first; ``None`` where there is none."""
    many = (row[name] for name in _GENERATIONS if isinstance(row.get(name), list) and all(map(is_text, row[name])))
    given: list[str] = next(many, [])
    lists = [value for name, value in row.items() if str(name).startswith(("correct", "is_correct")) and isinstance(value, list)]
    if marks := [each for each in lists if len(each) == len(given)]:
        return next((text for text, *said in zip(given, *marks, strict=True) if True in said), None)
    said = _given(row)
    right = (text for text in given if said is None or normalise_text(split_answer(text)[1] or "") == normalise_text(str(said)))
    return next(right, None) if first_text(row, _TARGETS) is None else None


def _spelled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the names that are read here in our spelling too: ``Final Answer`` as ``final_answer``."""
    row = dict(raw)
    for name, value in raw.items():
        if (known := _KNOWN.get(_squeezed(name))) is not None and known not in raw:
            row.setdefault(known, value)
    names = {_squeezed(name): value for name, value in raw.items()}
    if "q" in names and "question" not in row and "b" not in names:
        row |= {"question": names["q"], **({"answer": names["a"]} if "a" in names and "answer" not in row else {})}
    return row


def _squeezed(name: Any) -> str:
    return re.sub(r"[\s_-]+", "", str(name)).casefold()


def _names(row: Mapping[str, Any]) -> str:
    names = [path[:60] for name, value in row.items() for path in paths(value, str(name))]
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "") if names else "no fields"


def missing(row: Mapping[str, Any], field: str, where: str) -> RowError:
    """The error of a row without a question or an answer, which lists its fields."""
    advice = (
        f"every row needs question and answer, and this has {_names(row)}; "
        f"say which is which with --columns {shlex.quote(_guessed(row))} (in a recipe problems.tasks.*.columns)"
    )
    return RowError(where, f"the field {field} is missing; {advice}")


def _guessed(row: Mapping[str, Any]) -> str:
    """What to write behind ``--columns``. The question is the column that asks, else the longest text. The answer is the shortest
    value that another long text, then the rationale, has at its end, else the shortest that is no note on the row. Without an
    answer the first long text is the question, and the longest other one holds rationale and answer."""
    texts = {str(name): str(value).strip() for name, value in row.items() if _is_value(value)}
    unread = [name for name in texts if _squeezed(name) not in _KNOWN]
    asked, answered = (
        next((name for name in texts if _KNOWN.get(_squeezed(name)) in names), None) for names in (_ASKED, ("answer", *_ANSWERS))
    )
    long = [name for name in unread if len(texts[name].split()) >= _SENTENCE]
    asks = next((name for name in long if texts[name].endswith("?")), max(long, key=lambda name: len(texts[name]), default="..."))
    asks = asked or asks
    others = [name for name in unread if name not in (asks, *long) and not _NOTED.search(name)]
    if not (answered or others) and len(long) > 1:
        asks = asked or next((name for name in long if texts[name].endswith("?")), long[0])
        return f"question={asks},completion={max((name for name in long if name != asks), key=lambda name: len(texts[name]))}"
    ends = {name: texts[name][-_CLOSING:] for name in long if name != asks}
    concluded = [(name, text) for name in ([answered] if answered else others) for text in ends if _has(ends[text], texts[name])]
    answer, text = min(concluded, key=lambda pair: len(texts[pair[0]]), default=(None, None))
    answer = answer or answered or min(others, key=lambda name: len(texts[name]), default="...")
    return f"question={asks},answer={answer}" + (f",rationale={text}" if text else "")


def _has(text: str, value: str) -> bool:
    return re.search(whole_words(re.escape(value), value), text, re.I) is not None


def _target(row: dict[str, Any], where: str) -> str | None:
    """The text that holds rationale and answer, if the row has one; sets its ``question``."""
    if "question" in row:
        return first_text(row, _TARGETS)
    for pair in _PAIRS:
        texts = [row.get(name) if is_text(row.get(name)) else _lines(row.get(name)) for name in pair]
        if all(texts):
            titles = (re.sub(r"(\d)", r" \1", name).capitalize() for name in pair)
            row["question"] = "\n".join(f"{title}: {text}" for title, text in zip(titles, texts, strict=True))
            return first_text(row, _TARGETS)
    turns, unsaid = _conversed(row), False
    lists = {name: row[name] for name in _ASKED_TURNS if isinstance(row.get(name), list)}
    prompt = next((given for name, given in lists.items() if name == "prompt" or are_turns(given)), None)  # input may be data
    completion = next((row[name] for name in _TARGETS if is_text(row.get(name)) or are_turns(row.get(name))), None)
    if turns is None and isinstance(completion, list) and any(role_of(turn) == "user" for turn in completion):
        turns = completion
    elif turns is None and prompt is not None:
        unsaid = completion is None and _given(row) is not None  # the answer is in a column
        said = "-" if unsaid else completion
        turns = prompt + (completion if isinstance(completion, list) else [{"role": "assistant", "content": said}])
    if turns is not None:
        system = _system(row)
        row["question"], target = conversation([*([{"role": "system", "content": system}] if system else []), *turns], where)
        return None if unsaid else target
    name = next((name for name in _QUESTIONS if is_text(row.get(name))), None)
    if name is None or (name in _LESS_LIKELY and _has_other_question(row, name)):
        return None
    row["question"] = row[name]
    if name == "instruction" and is_text(row.get("input")):
        row["question"] = f"{row[name]}\n\n{row['input']}"
    if isinstance(completion, list):
        return conversation([{"role": "user", "content": row["question"]}, *completion], where)[1]
    if isinstance(row.get("history"), list) and row["history"]:  # pairs of what was asked and answered before
        before = [{"input": pair[0], "output": pair[1]} for pair in row["history"] if isinstance(pair, list) and len(pair) == 2]
        row["question"] = conversation([*before, {"input": row["question"], "output": "-"}], where)[0]
    return first_text(row, _TARGETS)


def _has_other_question(row: Mapping[str, Any], name: str) -> bool:
    """Whether a column that is not read looks more like the question: it ends in a question mark, or is a longer sentence."""
    others = (str(value).strip() for key, value in row.items() if _squeezed(key) not in _KNOWN and is_text(value))
    return any(other.endswith("?") or (len(other) > len(row[name]) and len(other.split()) >= _SENTENCE) for other in others)


def _conversed(row: Mapping[str, Any]) -> list[Any] | None:
    return next((row[name] for name in _TURNS if isinstance(row.get(name), list)), None)


def _system(row: Mapping[str, Any]) -> str | None:
    """The system prompt in a column of its own, a text or a turn."""
    given = next((row[name] for name in _SYSTEM if row.get(name)), None)
    return turn_of({"role": "system", **given}, "")[1] if isinstance(given, Mapping) else given if is_text(given) else None


def type_name(value: Any) -> str:
    """What a value of a row is, for messages."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    names = {dict: "an object", list: "a list", str: "a string", bool: "true/false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _given(row: Mapping[str, Any]) -> Any:
    return next((row[name] for name in ("answer", *_ANSWERS) if _is_value(row.get(name))), None)


def _is_value(value: Any) -> bool:
    return is_text(value) or isinstance(value, (int, float))
