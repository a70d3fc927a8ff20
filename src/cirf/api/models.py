"""A language model that learns functional tokens, writes them and is evaluated (paper 3.2 eq. 11, 3.3)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from cirf.api.traces import Row, field, functional_method, listed, plain_method, problems_of, settings, steps_with_codes
from cirf.assets import resolve
from cirf.codebook.codebook import Codebook
from cirf.codebook.functions import describe, find_model
from cirf.errors import CirfError
from cirf.evaluation import harness
from cirf.evaluation.harness import Score
from cirf.lm import backbone, vocabulary
from cirf.lm.decoding import generate as decode
from cirf.lm.prompt import prompt_text, settle_template
from cirf.lm.saving import save_model
from cirf.lm.training.batches import Row as TrainingRow
from cirf.lm.training.batches import sft_rows
from cirf.lm.training.finetune import finetune
from cirf.lm.training.history import History
from cirf.lm.training.spec import TrainingSpec
from cirf.methods.base import Method
from cirf.methods.cirf.cirf import TraceSettings
from cirf.methods.saved import vectors_of
from cirf.progress import for_terminal
from cirf.recipe import schema
from cirf.records import AnswerKind
from cirf.store.files import to_json, write_atomic, write_rows
from cirf.store.integrity import check_model
from cirf.store.paths import user_path
from cirf.tasks.task import with_options

_OF_RUNS = ("learning_rates", "trial_epochs", "min_well_formed", "overrides")
"""Keys of ``finetune`` for the stages of a run, not for a single training."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's output for a question.

    ``trace`` is the text between the delimiters and ``steps`` its parts, ``(code, result)`` each (text before the
    first functional token has the code ``None``); ``answer`` is the text after it. ``tokens`` counts all generated tokens with
    the end token; ``truncated``: `generate` stopped at ``max_new_tokens``.
    """

    trace: str
    steps: list[tuple[int | None, str]]
    answer: str
    tokens: int
    truncated: bool


def load(model: str | Path, **keys: Any) -> tuple[Any, Any]:
    """A language model and its tokenizer, ready for all functions here.

    Args:
        model: a folder with a model, a run's folder (its CIRF model), a hub id or ``bundled:NAME``.
        **keys: keys of the recipe's ``backbone``, such as ``dtype="float32"`` to train every weight, or ``device="cpu"``.

    Raises:
        CirfError: no such model, or one that reasons in vectors (`cirf ask` and `cirf evaluate` load it).
    """
    chosen = settings(schema.Backbone, keys, "load", ("model",))
    path = user_path(model)
    source = find_model(path) if path.is_dir() else resolve(str(model), for_terminal())
    if Path(source).is_dir() and vectors_of(Path(source)):
        raise CirfError(f"{model}: the model reasons in vectors, which is not supported here; use `cirf ask` or `cirf evaluate`")
    if Path(source).is_dir():
        check_model(Path(source).resolve())
    tokenizer = backbone.load_tokenizer(source, chosen)
    return backbone.load_model(source, chosen), tokenizer


def extend_model(
    model: Any,
    tokenizer: Any,
    codebook: Codebook,
    traces: Iterable[Mapping[str, Any]] = (),
    *,
    alpha: float | Literal["mean"] = "mean",
    seed: int = 1,
) -> list[int]:
    """Add ``<cirf>``, ``</cirf>`` and one token a code to model and tokenizer, both changed in place (eq. 11).

    Args:
        codebook: with codes as wide as the model's input embeddings.
        traces: from `write_traces`; then a token's row starts at the words of its steps, else at its code vector.
        alpha: norm of the new rows; ``mean``: the mean norm of the model's own.

    Returns:
        The ids of start, end and the codes in order. The chat template ends a prompt with ``<cirf>`` from now on.

    Raises:
        CirfError: codes of another width.
    """
    where = "extend_model"
    pairs = steps_with_codes(traces, where)
    codes = codebook.codes.numpy()
    width = model.get_input_embeddings().weight.shape[1]
    if pairs and codes.shape[1] == width:
        if max(code for code, _ in pairs) >= len(codes):
            raise CirfError(f"{where}: the traces have codes outside the codebook of {len(codes)}; use the codes of its fit")
        codes = vocabulary.word_rows(model, tokenizer, codes, pairs)
    settle_template(tokenizer)
    section = settings(schema.Vocabulary, {"init": "codebook", "alpha": alpha}, where)
    ids = vocabulary.extend(model, tokenizer, codes, section, len(codes), seed)
    functional_method({}, len(codes)).settle(tokenizer, training=True)
    return ids


def train(
    model: Any,
    tokenizer: Any,
    traces: Iterable[Mapping[str, Any]],
    *,
    validation: Iterable[Mapping[str, Any]] = (),
    checkpoints: str | Path | None = None,
    seed: int = 1,
    **keys: Any,
) -> tuple[Any, History]:
    """Fine-tune on the completions of ``traces`` by next-token cross-entropy (eq. 14). The model is changed in place.

    Args:
        traces, validation: rows with ``prompt`` and ``completion``, as `write_traces` gives them; or any others.
        checkpoints: a folder to keep them in; the same call resumes from the last one. ``None``: none are kept.
        **keys: keys of the recipe's ``finetune``: ``learning_rate``, ``epochs``, ``batch_size``, ``adaptation="full"`` for every
            weight (of a model in float32) in place of adapters, and so on.

    Returns:
        The model, merged and plain, and its `History`, where ``losses`` holds the loss of every update and
        ``validation`` those on the held-out rows.

    Raises:
        CirfError: a row without prompt or completion, unknown functional tokens, a loss that is not a number, or
            no memory.
    """
    where = "train"
    section = settings(schema.Finetune, keys, where, _OF_RUNS)
    if section.adaptation == "full" and next(model.parameters()).dtype != torch.float32:
        raise CirfError(f"{where}: adaptation='full' needs weights in float32; load the model with dtype='float32'")
    settle_template(tokenizer)
    names = vocabulary.names_in(tokenizer)
    new_ids = tokenizer.convert_tokens_to_ids(list(names.all)) if names else []
    rows = _rows(listed(traces, where, "traces"), tokenizer, where)
    held_out = _rows(list(validation), tokenizer, f"{where}, validation")
    with _folder(checkpoints) as work:
        spec = TrainingSpec(section, "cirf_full" if names else "direct_sft", new_ids, work, seed)
        trained, history, _ = finetune(model, tokenizer, rows, held_out, spec, for_terminal())
    return trained.eval(), history


def generate(
    model: Any,
    tokenizer: Any,
    questions: Iterable[str | Row],
    *,
    max_new_tokens: int = 160,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 1,
    batch_size: int = 32,
    **steering: Any,
) -> list[Answer]:
    """Answer questions, each with its trace, in their order.

    Args:
        questions: texts, or rows with ``question`` and ``choices``.
        max_new_tokens: most tokens of trace and answer together.
        temperature: 0 is greedy; else answers are sampled from the nucleus ``top_p`` by ``seed``.
        **steering: settings of the method that constrain answers to the form of traces: ``grammar=True``, ``budget=8`` functional
            tokens, ``results=False``, ``calculator=True`` and so on (`cirf methods cirf_full` lists them).

    Raises:
        CirfError: no question, a setting that does not exist, or no memory.
    """
    where = "generate"
    method = _method(tokenizer, steering, where)
    prompts = []
    for number, row in enumerate(listed(questions, where, "questions")):
        text = row if isinstance(row, str) else field(row, "question", where, number)
        if not isinstance(text, str) or not text.strip():
            raise CirfError(f"{where}, row {number}: there is no question; leave the row out")
        choices = () if isinstance(row, str) else field(row, "choices", where, number) or ()
        prompts.append(prompt_text(tokenizer, with_options(text.strip(), choices)))
    decoding = decode.Decoding(temperature, top_p, seed, steer=method.steer(model, tokenizer))
    outputs = decode.generate(model.eval(), tokenizer, prompts, max_new_tokens, decoding, batch_size)
    return [_answer(method, output) for output in outputs]


def evaluate(
    model: Any,
    tokenizer: Any,
    rows: Iterable[Row],
    *,
    answer: AnswerKind | None = None,
    max_new_tokens: int = 160,
    batch_size: int = 32,
    output_dir: str | Path | None = None,
    **steering: Any,
) -> Score:
    """Answer questions greedily and judge the answers as `cirf run` does.

    Args:
        rows: questions with their right answers.
        answer, max_new_tokens, batch_size, steering: as in `write_traces` and `generate`.
        output_dir: a folder for one row a question (prompt, output, the parsed answer, whether it is right) and
            ``scores.json``; the same call resumes from what is there. ``None``: nothing is kept.

    Returns:
        A `Score` with ``accuracy``, its 95 % ``interval``, mean ``tokens`` an answer, and the shares ``truncated`` and
        ``unparsed``.

    Raises:
        CirfError: as `generate`, and for a row that does not fit.
    """
    where = "evaluate"
    method = _method(tokenizer, steering, where)
    tasks, problems = problems_of(rows, where, answer)
    test = {name: [problem for problem in problems if problem.task == name] for name in tasks}
    section = settings(schema.Evaluate, {"batch_size": batch_size}, where)
    decoding = decode.Decoding(steer=method.steer(model.eval(), tokenizer))

    def write(prompts: list[str], cap: int, run: int) -> list[decode.Output]:
        return decode.generate(model, tokenizer, prompts, max_new_tokens, decoding, batch_size)

    with _folder(output_dir) as work:
        answerer = harness.Answerer(method, write, partial(prompt_text, tokenizer))
        return harness.evaluate(answerer, harness.Questions(tasks, test), section, work, for_terminal()).overall


def save(
    model: Any,
    tokenizer: Any,
    folder: str | Path,
    traces: Iterable[Mapping[str, Any]] = (),
    dtype: Literal["bfloat16", "float32", "float16"] = "bfloat16",
) -> None:
    """Save a plain checkpoint, which transformers, vLLM, `cirf ask` and `load` read. The model is converted to ``dtype``.

    ``traces``: its training rows; then the labels of its tokens (``functions.json``) and the rows as text for other trainers
    (``sft.jsonl``) are saved with it. ``CirfError`` if the disk is full.
    """
    where, names, place = "save", vocabulary.names_in(tokenizer), user_path(folder)
    rows = list(traces)
    written, pairs = _rows(rows, tokenizer, where), steps_with_codes(rows, where)
    delimiters = names.start.strip("<>") if names else None
    save_model(model, tokenizer, place, dtype, delimiters)
    if names and delimiters:
        functions = describe(pairs, len(names.codes), delimiters, str(model.config.name_or_path))
        write_atomic(place / "functions.json", to_json(functions))
    if rows:
        known = tokenizer.convert_tokens_to_ids(list(names.all)) if names else ()
        write_rows(place / "sft.jsonl", sft_rows(written, tokenizer, known))


def _rows(rows: list[Mapping[str, Any]], tokenizer: Any, where: str) -> list[TrainingRow]:
    names = vocabulary.names_in(tokenizer)
    size = len(names.codes) if names else 0
    found = []
    for number, row in enumerate(rows):
        prompt, completion = (field(row, name, where, number) for name in ("prompt", "completion"))
        if not isinstance(prompt, str) or not isinstance(completion, str):
            raise CirfError(f"{where}, row {number}: prompt and completion must be texts; write_traces gives such rows")
        if max(row.get("codes", ()), default=-1) >= size:
            raise CirfError(f"{where}, row {number}: the model has {size} functional tokens; call extend_model first")
        answer = row.get("answer")
        length = len(answer) if answer and completion.endswith(answer) else None
        found.append(TrainingRow(prompt_text(tokenizer, prompt), completion, length, problem=f"row {number}"))
    return found


def _method(tokenizer: Any, steering: Mapping[str, Any], where: str) -> Method:
    """How the model of this tokenizer writes and is read."""
    settle_template(tokenizer)
    names = vocabulary.names_in(tokenizer)
    settings(TraceSettings, steering, where)  # so that messages name this function
    if names is None:
        if steering:
            raise CirfError(f"{where}: {', '.join(steering)}: steers functional tokens, but this model has none")
        return plain_method()
    delimiters: Literal["cirf", "think"] = "cirf" if names.start == "<cirf>" else "think"
    return functional_method(steering, len(names.codes), delimiters, vocabulary.opened_by_prompt(tokenizer, names))


def _answer(method: Method, output: decode.Output) -> Answer:
    trace, answer = harness.read(method, output)
    steps = vocabulary.parse_trace(trace) if method.functional else []
    return Answer(trace, steps, answer.strip(), output.tokens, output.truncated)


@contextmanager
def _folder(given: str | Path | None) -> Iterator[Path]:
    """A folder of the user's, or a temporary one."""
    if given is not None:
        yield user_path(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
