"""Public benchmarks with a row a question: how a row is read, and the task.

Whatever a reader raises as ``ValueError`` or ``KeyError`` is reported with the row's place.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cirf.records import Problem
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.parsing.latex import tidy_latex
from cirf.tasks.steps import calculated, calculated_or_stated, coin_state, option_discussed, produced
from cirf.tasks.task import HubPart, HubSource, LeftOutError, Task
from cirf.text.numerals import number_text


# GSM8K: grade-school word problems with human solutions, one line a step (Cobbe et al., 2021).
def read_gsm8k(row: Mapping[str, Any]) -> Problem:
    """``question``; ``answer`` = solution lines, then ``#### 72``. Calculator annotations stay: results are read from them."""
    solution, mark, final = row["answer"].rpartition("####")
    answer = parse_answer("number", final)
    if not mark or answer is None:
        raise ValueError("answer: no number after ####")
    return Problem(id="", task="", question=row["question"].strip(), answer=answer, rationale=solution.strip())


GSM8K = Task(
    name="gsm8k",
    title="GSM8K",
    summary="grade-school word problems of 2-8 steps",
    answer="number",
    rule=calculated,
    version=10,
    row=read_gsm8k,
    licence="mit",
    hub=HubSource("openai/gsm8k", "main"),
)


# SVAMP: one-step word problems with misleading wording (Patel et al., 2021).
_CONDITION = re.compile(r"(?:if|when|after|since|while)\b", re.I)


def read_svamp(row: Mapping[str, Any]) -> Problem:
    """``Body`` and ``Question`` as one text; ``Answer`` is a float."""
    answer = number_text(Fraction(str(row["Answer"])))
    return Problem(id=str(row.get("ID") or ""), task="", question=join(row["Body"], row["Question"]), answer=answer)


def join(body: str, question: str) -> str:
    """Story and question as prose: a story that breaks off in a condition goes on with a comma, any other ends in a full stop."""
    body, question = " ".join(body.split()), " ".join(question.split())
    if not body or body[-1] in ".?!":
        return f"{body} {question}".strip()
    last = re.split(r"(?<=[.?!])\s+", body)[-1]
    if _CONDITION.match(last) and re.match(r"(?:How|What|Which|Who|When|Where)\b", question):
        return f"{body.rstrip(',')}, {question[0].lower()}{question[1:]}"
    return f"{body.rstrip(',')}. {question}"


SVAMP = Task(
    name="svamp",
    title="SVAMP",
    summary="one-step word problems with misleading wording",
    answer="number",
    rule=calculated_or_stated,
    version=10,
    row=read_svamp,
    licence="mit",
    hub=HubSource("ChilleD/SVAMP"),
)


# MultiArith: two-step word problems (Roy and Roth, 2015). A few questions occur in both official splits; loading drops them.
def read_multiarith(row: Mapping[str, Any]) -> Problem:
    answer = parse_answer("number", str(row["final_ans"]))
    if answer is None:
        raise ValueError("final_ans: no number")
    return Problem(id="", task="", question=row["question"].strip(), answer=answer)


MULTIARITH = Task(
    name="multiarith",
    title="MultiArith",
    summary="word problems of two or more operations",
    answer="number",
    rule=calculated,
    version=10,
    row=read_multiarith,
    licence="mit",
    hub=HubSource("ChilleD/MultiArith"),
)


# MATH-500: 500 competition problems whose answers are LaTeX (Hendrycks et al., 2021; the selection of Lightman et al., 2023).
# For evaluation only. Answers are compared by value, so that ``0.5``, ``1/2`` and ``\frac12`` are the same.
def read_math500(row: Mapping[str, Any]) -> Problem:
    """``problem``, ``solution``, ``answer``, ``unique_id``; the subject is ``subject`` or, as first released, ``type``."""
    answer = tidy_latex(row["answer"])
    if not answer:
        raise ValueError("answer: empty")
    subject = row["subject"] if "subject" in row else row["type"]
    return Problem(
        id=str(row.get("unique_id") or "").removeprefix("test/").removesuffix(".json"),
        task="",
        question=row["problem"].strip(),
        answer=answer,
        rationale=row["solution"].strip() or None,
        subset=subject,
    )


MATH500 = Task(
    name="math500",
    title="MATH-500",
    summary="competition mathematics with answers in LaTeX; evaluation only",
    answer="latex",
    rule=calculated,
    version=8,
    row=read_math500,
    licence="mit",
    hub=HubSource("HuggingFaceH4/MATH-500", splits={"test": "test"}),
    cap=512,  # the paper's; matrices and unions of intervals are long too
)


# Coin Flip: is the coin still heads up after some people flip it and some do not (Wei et al., 2022)?
# Every training row has two people and every test row four: the test problems are longer than those trained on.
def read_coin_flip(row: Mapping[str, Any]) -> Problem:
    """``inputs`` = ``Q: A coin is heads up. ...`` and ``targets`` = yes or no."""
    answer = parse_answer("yesno", row["targets"])
    if answer is None:
        raise ValueError("targets: neither yes nor no")
    question = " ".join(row["inputs"].strip().removeprefix("Q:").split())
    return Problem(id="", task="", question=question, answer=answer)


COIN_FLIP = Task(
    name="coin_flip",
    title="Coin Flip",
    summary="tracking the state of a coin; two people in training, four in the test",
    answer="yesno",
    rule=coin_state,
    version=8,
    row=read_coin_flip,
    licence="mit",
    hub=HubSource("skrishna/coin_flip"),
)


# CommonsenseQA: five options a question (Talmor et al., 2019). The official test hides its answers: validation replaces it.
def read_commonsense_qa(row: Mapping[str, Any]) -> Problem:
    """``question``, ``choices`` = ``{"label": [...], "text": [...]}`` and ``answerKey``; letters follow the texts' order."""
    labels, texts = list(row["choices"]["label"]), list(row["choices"]["text"])
    if row["answerKey"] not in labels:
        raise ValueError(f"answerKey: {row['answerKey']!r} is none of the labels")
    letter = chr(65 + labels.index(row["answerKey"]))
    return Problem(id=str(row.get("id") or ""), task="", question=row["question"].strip(), answer=letter, choices=tuple(texts))


COMMONSENSE_QA = Task(
    name="commonsense_qa",
    title="CommonsenseQA",
    summary="five options a question; answers need everyday knowledge",
    answer="option",
    rule=option_discussed,
    version=9,
    row=read_commonsense_qa,
    licence="mit",
    hub=HubSource("tau/commonsense_qa", splits={"train": "train", "test": "validation"}),
)


# ScienceQA: school science with two to five options (Lu et al., 2022).
# For evaluation only, and only questions without a picture.
def read_scienceqa(row: Mapping[str, Any]) -> Problem:
    """``question``, ``choices``, ``answer`` (the place of the right one) and ``hint``, the context, which comes first."""
    if row.get("image") is not None:
        raise LeftOutError("the question has a picture")
    choices, place = tuple(choice.strip() for choice in row["choices"]), row["answer"]
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(choices):
        raise ValueError(f"answer: {place!r} is the place of none of {len(choices)} choices")
    parts = (str(row.get("hint") or "").strip(), row["question"].strip())
    return Problem(
        id=str(row.get("id") or ""),
        task="",
        question="\n".join(part for part in parts if part),
        answer=chr(65 + place),
        choices=choices,
    )


SCIENCEQA = Task(
    name="scienceqa",
    title="ScienceQA",
    summary="school science, two to five options, questions without a picture; evaluation only",
    answer="option",
    rule=produced,
    version=9,
    row=read_scienceqa,
    licence="cc-by-nc-sa-4.0",
    hub=HubSource("derek-thomas/ScienceQA", splits={"test": "test"}),
)


# StrategyQA: yes or no after reasoning steps that the question does not name (Geva et al., 2021).
# For evaluation only, with all rows whose answers are public: the official training and development parts, which hub copies split
# differently. A mirror folder holds the original release's files (``answer`` is true or false).
def read_strategyqa(row: Mapping[str, Any]) -> Problem:
    """``qid``, ``question`` and ``answer``: true or false, or in words. Some copies call the question ``input``."""
    given = row["answer"]
    answer = ("yes" if given else "no") if isinstance(given, bool) else parse_answer("yesno", str(given))
    if answer is None:
        raise ValueError("answer: neither yes nor no")
    question = row["question"] if "question" in row or "input" not in row else row["input"]
    return Problem(id=str(row.get("qid") or ""), task="", question=" ".join(question.split()), answer=answer)


STRATEGYQA = Task(
    name="strategyqa",
    title="StrategyQA",
    summary="yes/no questions whose steps are not in the question; evaluation only",
    answer="yesno",
    rule=produced,
    version=9,
    row=read_strategyqa,
    licence="mit",
    hub=HubSource(
        "ChilleD/StrategyQA",
        revision="705562638fe1d8ca6bb98c66fc8f94d45fda8c83",
        splits={"test": (HubPart("test", file="dev"), HubPart("train"))},
    ),
)
