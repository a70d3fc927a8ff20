"""The recipe: one YAML file describes one experiment; this schema defines all its keys.

Every key carries its meaning, unit and default here, and the place in the paper where it has one; the tables of the
documentation and ``cirf recipes --schema`` are written from these texts. ``load.py`` reads and writes recipes.
"""

from __future__ import annotations

import math
import re
from copy import copy
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator


def key(default: Any, meaning: str, *, unit: str = "", paper: str = "", **limits: Any) -> Any:
    """A recipe key: its default, what it means, its unit and its place in the paper."""
    return Field(default, description=meaning, json_schema_extra={"unit": unit, "paper": paper}, **limits)


class Section(BaseModel):
    """A group of keys. Unknown keys and wrong types are errors; a section never changes once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, protected_namespaces=())


S = TypeVar("S", bound=Section)


def with_defaults(section: type[S], **defaults: Any) -> type[S]:
    """The same keys, some with another default."""
    fields: dict[str, Any] = {}
    for name, default in defaults.items():
        field = copy(section.model_fields[name])
        field.default = default
        fields[name] = (field.annotation, field)
    return create_model(section.__name__, __base__=section, __doc__=section.__doc__, **fields)


NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
"""What can name a folder."""
Positive = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Threshold = Annotated[float, Field(ge=0.0)]
Epochs = Annotated[float, Field(gt=0.0)] | Literal["auto"]


class Architecture(Section):
    """Facts the backbone must have; a mismatch stops the run before any work."""

    hidden_size: Positive | None = key(None, "Width of the model's embeddings; null: any.", paper="Table hyper-parameters, Step 4")
    layers: Positive | None = key(None, "Number of layers; null: any.", paper="Table hyper-parameters, Step 4")
    heads: Positive | None = key(None, "Number of attention heads; null: any.", paper="Table hyper-parameters, Step 4")


class Backbone(Section):
    model: str = key("bundled:smollm2-135m-instruct", "The language model: a hub id, a folder, or bundled:NAME (see `cirf env`).", paper="A.2 Backbone models")
    revision: str | None = key(None, "Branch, tag or commit on the hub; null: the default branch.")
    dtype: Literal["bfloat16", "float32", "float16"] = key("bfloat16", "Number format of the weights when generating. On a processor without fast 16-bit products they are computed in float32.")
    device: str = key("auto", "auto (cuda, then mps, then cpu) or a torch device.")
    attn_implementation: Literal["auto", "sdpa", "eager", "flash_attention_2"] = key("auto", "Attention kernel; auto: what transformers picks, on a CPU plain attention to train on short rows and grouped queries to answer, where these are faster.")
    threads: Positive | None = key(None, "CPU threads of torch; null: one for each core that other processes leave free when the command starts, or OMP_NUM_THREADS.", le=1024)
    empty_system: bool = key(True, "Send an empty system message where the chat template would insert a long default one; saved in the model's template too.")
    trust_remote_code: bool = key(False, "Run Python code that comes with the model. Only for sources you trust.")
    architecture: Architecture = key(Architecture(), "Required shape of the model.")


FIELDS = ("question", "answer", "rationale", "choices", "context", "id", "completion", "messages")
"""What ``columns`` may name a column for; ``context`` comes before the question, ``completion`` is a rationale and an answer in one
text."""


class TaskEntry(Section):
    task: str = key(..., "A task's name (see `cirf tasks`), or jsonl for a file of your own. Or the path of a Python file, ending in .py, that defines TASK; it is run as code.")
    name: str | None = key(None, "The name in tables; null: the task's own, or the Python file's. Needed when one task occurs twice.", pattern=f"^{NAME}$")
    train_file: str | None = key(None, "jsonl: rows with question, answer and optionally rationale, choices, id, or in another layout (see how-to/own-formats), as JSON lines, a JSON list, CSV or Parquet, also gzipped; or hub:ORG/NAME, a data set of the hub, or hub:ORG/NAME@REVISION:CONFIG:SPLIT. A Python file: rows that its TASK reads. Else none.")
    test_file: str | None = key(None, "As train_file: rows to test on; null: cut from train_file by the seed.")
    columns: dict[str, str] = key({}, "jsonl only: names of the file's columns where they are not detected, such as {question: exercise, answer: solved}; context: what comes before the question; completion: rationale and answer in one text. Also choices, id, messages. A path leads into objects and lists: qa.answers.0.")
    delimiter: list[str] = key([], "jsonl only: what sets thoughts off in the file's texts where it is not detected: [\"|||\"] between thoughts and answer (the last one counts, one on a line of its own first), or a pair of marks around the thoughts.")
    answer: Literal["number", "option", "yesno", "latex", "text"] | None = key(None, "jsonl only: the kind of answers; latex: formulas, compared by value; null: detected from the rows.")
    train: Positive | None = key(None, "Training problems to take, drawn by the seed; null: all.", unit="rows")
    rows: Positive | None = key(None, "Training problems to use of those with a rationale that fits, drawn by the seed; null: all. The held-out ones shrink in proportion.", unit="problems")
    test: Positive | None = key(None, "Test problems to take, the first ones; null: all.", unit="rows", paper="not said; its accuracies are multiples of 1/600, which 200 questions and three runs give")
    test_from_train: int = key(0, "Problems of the training split to test on besides, drawn by the seed and not trained on: for a small test split.", unit="rows", ge=0)
    options: dict[str, int | float | str | bool] = key({}, "Settings of a generated task, such as the number of people.")

    @field_validator("columns")
    @classmethod
    def _are_fields(cls, columns: dict[str, str]) -> dict[str, str]:
        wrong = columns.keys() - set(FIELDS)
        if wrong:
            raise ValueError(f"columns: {min(wrong)} is not a field of a row; name {', '.join(FIELDS)}")
        return columns

    @field_validator("delimiter")
    @classmethod
    def _are_marks(cls, delimiter: list[str]) -> list[str]:
        if len(delimiter) > 2 or len(set(delimiter)) < len(delimiter) or not all(len(mark.strip()) > 1 for mark in delimiter):
            raise ValueError("delimiter: expected one mark of two or more characters, or two different ones, an opening and a closing")
        return delimiter

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_file(cls, given: Any) -> Any:
        """A Python file without a name in tables is named after the file."""
        task = given.get("task") if isinstance(given, dict) else None
        if isinstance(task, str) and task.endswith(".py") and given.get("name") is None:
            return {**given, "name": re.sub(r"^[^A-Za-z0-9_]|[^A-Za-z0-9._-]", "_", PurePath(task).stem)}
        return given


class Problems(Section):
    tasks: tuple[TaskEntry, ...] = key(..., "What to train on and test on; one model learns them all.", paper="4.1", min_length=1)
    data: str | None = key(None, "Folder of benchmark data (TASK/SPLIT.jsonl with the hub's columns); null: what `cirf data get` fetched, else the hub. --data sets it.")
    limit: Positive | None = key(None, "Most test problems per task, the first ones, overriding its test and the protocol; null: no limit. --limit sets it. It does not change how a test is split from a training file.", unit="rows")
    near_duplicates: Literal["report", "drop"] = key("report", "Training questions that share 13 words in a row with a test question: only reported, or also dropped. Those that are a test question are always dropped. Near ones stay by default: tasks made from templates share long passages between different questions, and dropping them would give a model other training questions than those it is compared with.")
    max_unusable_share: Fraction = key(0.05, "Largest share of a file's rows that may be unusable, such as lines that are not JSON, or answers that are none of the choices. They are dropped, counted and listed; above it the run stops. It holds for each file of questions or rationales; 0: the run stops at the first.")
    validation: float = key(0.05, "Share of the training problems held out for validation loss.", paper="A.2 Functional Token Construction", ge=0, lt=1)


LOCAL = "local"
"""The url of an endpoint whose model runs in this process."""


class Endpoint(Section):
    """One server of a fleet; servers of the same model share its questions."""

    url: str = key(..., "Base URL of an OpenAI-compatible server, such as http://localhost:8000/v1; local: the model is loaded into this process.", pattern=r"^(https?://.+|local)$")
    model: str = key(..., "The model's name on the server; for url: local a hub id, a folder or bundled:NAME.")
    api_key_env: str | None = key(None, "Environment variable with the API key; null: none.")
    allow_http: bool = key(False, "Send the API key over plain http to another machine, where others on the network can read it.")
    concurrency: Positive = key(8, "Concurrent requests; for url: local, questions answered at once. For more than 100, name the server twice.", unit="requests", le=100)

    @field_validator("url")
    @classmethod
    def _holds_no_secret(cls, url: str) -> str:
        """A recipe is saved, archived and published with the run, and the client does not send an address's name and password."""
        if "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]:
            raise ValueError("url: holds a user's name or password, which would be kept with the run; an API key goes by api_key_env")
        if re.search("[?#]", url):
            raise ValueError("url: ends in a query, which would be kept with the run and may be a key; an API key goes by api_key_env")
        return url


class Patience(Section):
    """How long answers of a server are waited for."""

    max_retries: int = key(8, "How often a request is sent again after 429, 5xx, a time-out, a cut connection or half a body.", ge=0)
    timeout: float = key(600.0, "Longest wait for an answer; also the upper limit of a server's Retry-After.", unit="seconds", gt=0)


class AnsweringEndpoint(Patience, Endpoint):
    """The server that answers for a method."""

    max_new_tokens: Positive | None = key(None, "Most tokens of an answer, reasoning included, in place of the method's cap, for a model that thinks long. evaluate.max_completion_tokens lowers it, too. Null: the method's cap.", unit="tokens")


class RequestSettings(Patience):
    """Requests to language models."""

    endpoints: tuple[Endpoint, ...] = key((), "The servers to ask.")
    unanswered: Literal["stop", "drop"] = key("stop", "A question that still fails after all retries, or that every server refuses: end the run once the others are answered, to retry next time, or continue without it and count it.")


class Teacher(RequestSettings):
    """Language models that write rationales, for source: teacher."""

    endpoints: tuple[Endpoint, ...] = key((), "The servers to ask; every question goes to each of their models.", paper="A.2 CoT Collection: Gemma 3 27B and Llama 3.1 70B")
    prompt: str | None = key(None, "Text file with the prompt, {question} in the question's place; null: the paper's, 'Solve the following problem step by step:{question}'.", paper="A.2 CoT Collection")
    samples: Positive = key(1, "Most answers of one model to one question; another one is requested while too few are right and can be cut into steps.", unit="answers")
    ask: Literal["needed", "all"] = key("needed", "Ask for samples one after the other until per_problem of them are usable, or for all of them.")
    temperature: float = key(0.7, "Sampling temperature.", paper="Table hyper-parameters, Step 1", ge=0)
    top_p: Fraction = key(0.95, "Top-p of nucleus sampling.", paper="Table hyper-parameters, Step 1")
    max_tokens: Positive = key(4096, "Cap of a rationale.", unit="tokens", paper="Table hyper-parameters, Step 1")


Part = Literal["auto", "thoughts", "explanation"]


class Rationales(Section):
    source: Literal["auto", "dataset", "files", "teacher"] = key("auto", "dataset: the solutions that come with the problems; files: `files`; auto: both, files first; teacher: language models write them.")
    files: tuple[str, ...] = key((), "JSONL files with question, rationale and optionally answer, id. Relative to the data folder if not found as given.")
    per_problem: Positive = key(1, "How many rationales of one problem to keep. With more teachers than that, each is preferred for equally many problems; right answers come first.", unit="rationales")
    part: Part = key("auto", "Of a text with thoughts (<think>...</think>, reasoning_content) and an explanation after them, which is the rationale. auto: the explanation if it has at least two sentences, else the thoughts. explanation: the explanation, unless it only states the answer. It holds for all sources.")
    check: Literal["drop", "keep"] = key("drop", "What to do with a rationale that ends in another answer than the problem's.")
    teacher: Teacher = key(Teacher(), "Who writes them.")


class Segments(Section):
    by: Literal["auto", "ordinal", "line", "sentence", "option", "function"] = key("auto", "Where a step ends: at 'Step k' and 'k.' marks, at line ends, at sentence ends, at options, or where long prose turns to something else (paragraphs; words such as wait, alternatively, let me check); auto: what the row holds.", paper="3.2")
    equations: Literal["keep", "split"] = key("keep", "A step that computes several numbers: kept as one, or split at the sentence ends between them, so that each number has its own functional token.")
    options: Literal["each", "together"] = key("each", "A rationale that goes through the options of its question one by one: one step per option, or one step for all of them before the conclusion; then there are fewer functional tokens, and none for single options.")
    min_characters: Positive = key(20, "by: function: a shorter step is joined to a neighbour.", unit="characters")
    max_characters: int = key(600, "by: function: a longer step is cut at a sentence end, or at a blank.", unit="characters", ge=40)
    redundant: Literal["keep", "drop"] = key("keep", "Steps of a rationale cut by function that repeat earlier ones, or come after its answer is settled: kept, or left out, except the last conclusion. The stage's report counts the tokens left out by function, and gives the log-likelihood of the answers with and without them.")
    adjacent: Literal["each", "merge"] = key("each", "Adjacent steps of one code: one functional token each, or one for all, with the last non-empty result.")
    minimum: Positive = key(1, "Fewest steps a rationale may have; others are dropped and counted.", unit="steps")
    maximum: Positive | None = key(None, "Most steps a rationale may have; others are dropped and counted. Null: 32, or 1,000 if it is cut by function.", unit="steps")

    def most(self, rule: str) -> int:
        """The most steps of a rationale that a rule cut."""
        return self.maximum or (1000 if rule == "function" else 32)


class Embeddings(Section):
    model: str = key("bundled:all-minilm-l6-v2", "Sentence embedding model: a hub id, a folder, or bundled:NAME.", paper="Table hyper-parameters, Step 3")
    revision: str | None = key(None, "Branch, tag or commit on the hub.")
    batch_size: Positive = key(64, "Segments embedded at once.", unit="segments")
    max_length: Positive | None = key(256, "Tokens of a segment that are read; null: all the model can.", unit="tokens")
    dtype: Literal["float32", "float16"] = key("float32", "Number format of the stored embeddings.")
    numbers: Literal["keep", "mask"] = key("keep", "Embed segments unchanged, or with every number as N: a step's numbers depend on the question, not on its function.")
    choices: Literal["keep", "mask"] = key("keep", "If a question has choices: embed segments unchanged, or with the choices' letters and texts as `it`; else codes encode the option instead of what is said about it.")
    closing: Literal["keep", "drop"] = key("keep", "Embed the last segment unchanged, or without the closing statement, from the first line that opens like a conclusion (`At the end of these steps, ...`), never the first of all. With it last steps share codes, whatever they do. Results and rows keep it.")
    words: Positive | Literal["all"] = key("all", "Embed only this many first words of a segment. In long thinking they show its function (`wait, is that`); the rest is about the question.", unit="words")


_MOST_CODES, _WARMEST = 65_536, 1e6


class Sinkhorn(Section):
    temperature: float = key(0.05, "λ: smaller is sharper.", paper="eq. 6; Table hyper-parameters, Step 3", ge=1e-6)
    iterations: Positive = key(3, "Rounds of column and row scaling; each round ends on the rows.", le=100_000, paper="Table hyper-parameters, Step 3")
    scale: Literal["mean", "none"] = key("mean", "Divide squared distances by their mean (mean) or leave them unchanged (none, as the paper writes).")

    @field_validator("temperature")
    @classmethod
    def _distinguishes(cls, temperature: float) -> float:
        if temperature > _WARMEST:
            raise ValueError(f"codebook.sinkhorn.temperature: {temperature:g} makes all codes alike; use at most {_WARMEST:g}")
        return temperature


class SizeTrials(Section):
    """The trial of each candidate of ``codebook.size: auto``."""

    questions: Positive = key(200, "Held-out questions (problems.validation) that each trained candidate answers, the first ones; never test questions.", unit="problems")
    steps: Positive = key(300, "Updates of each candidate's training; the whole training if that has fewer.", unit="updates")


class Codebook(Section):
    reuse: str | None = key(None, "A saved codebook folder to use instead of training one (same embedding model and same width).")
    size: Positive | Literal["auto"] = key(64, "K: number of functional tokens. auto: the one of `sizes` with which a short training of cirf_full answers most held-out questions correctly (see `size_trials`).", unit="codes", paper="A.2: 32, 64, 128 or 256 by validation accuracy")
    size_trials: SizeTrials = key(SizeTrials(), "size: auto: the trial of each candidate.")
    chosen: bool = key(False, "Leave at false: a run sets it in its own recipe if `size` was auto; `size` is then the chosen value, chosen again if its inputs change.")
    sizes: tuple[Positive, ...] = key((), "Further sizes of codebooks to build, to compare their use and errors; `size` is the one trained with, or chosen among them.", unit="codes", paper="Table hyper-parameters, Step 3")
    dimension: Literal["backbone"] | Positive = key("backbone", "Width of a code; it must be the backbone's.", paper="Table hyper-parameters, Step 3")
    representation: Literal["mean_centered", "raw", "question_centered", "random"] = key("mean_centered", "What is quantised: segment minus the mean of its rationale, the bare segment, segment minus question, or noise.", paper="eq. 5; C")
    single_step: Literal["corpus_mean", "zero"] = key("corpus_mean", "A rationale of one step has itself as mean: subtract the corpus mean instead, or leave zero.")
    hidden: Positive = key(1024, "Hidden width of encoder and decoder.", le=65536, paper="Table hyper-parameters, Step 3")
    autoencoder_epochs: int = key(30, "Epochs of encoder and decoder before any code.", unit="epochs", paper="Table hyper-parameters, Step 3", ge=0, le=100_000)
    vq_epochs: int = key(10, "Epochs of the VQ-VAE; steps are reassigned before each, as `reassign` says.", unit="epochs", paper="Table hyper-parameters, Step 3", ge=0, le=100_000)
    batch_size: Positive = key(128, "Segments an update.", unit="segments", paper="Table hyper-parameters, Step 3")
    learning_rate: float = key(1e-4, "Adam's learning rate.", paper="Table hyper-parameters, Step 3", gt=0)
    max_grad_norm: float = key(1.0, "Largest norm of a gradient.", paper="Table hyper-parameters, Step 3", gt=0)
    beta: float = key(1.0, "β: weight of the commitment term.", paper="eq. 10; Table hyper-parameters, Step 3", ge=0)
    initialiser: Literal["sinkhorn", "kmeans", "random"] = key("sinkhorn", "How the first codes are found.", paper="3.2; C Codebook construction")
    reassign: Literal["sinkhorn", "nearest"] = key("sinkhorn", "Codes of the steps of training rationales before each VQ epoch: balanced by Sinkhorn whatever the initialiser, or the nearest code, for a codebook that is not balanced at all (with initialiser: kmeans or random, and assign: nearest).", paper="3.2; C Codebook construction")
    assign: Literal["sinkhorn", "nearest"] = key("sinkhorn", "Final code of a step of a training rationale: the balanced argmax or the nearest code. A new step always gets its nearest.", paper="eq. 8-9")
    gradient: Literal["straight_through", "decoder_only"] = key("straight_through", "Whether the reconstruction error reaches the encoder.", paper="eq. 10")
    sinkhorn: Sinkhorn = key(Sinkhorn(), "The balanced assignment.")

    @model_validator(mode="after")
    def _fits_a_vocabulary(self) -> Codebook:
        for name, size in (("size", self.size), *(("sizes", size) for size in self.sizes)):
            if size != "auto" and size > _MOST_CODES:
                raise ValueError(f"codebook.{name}: {size:,} functional tokens are too many; use at most {_MOST_CODES:,}")
        return self

    @property
    def auto(self) -> bool:
        """Whether K is, or was, chosen among ``sizes``."""
        return self.size == "auto" or self.chosen

    @property
    def codes(self) -> int:
        """K; where it is still to be chosen, the largest candidate."""
        return max(self.sizes) if self.size == "auto" else self.size


class ResultWriter(RequestSettings):
    """The language model that writes results, for by: llm."""

    endpoints: tuple[Endpoint, ...] = key((), "The servers to ask; all must have the same model.", paper="3.3")
    prompt: str | None = key(None, "Text file with the prompt; {question}, {answer}, {steps} and {count} are replaced. Null: the shipped one.", paper="3.3")
    temperature: float = key(0.2, "Sampling temperature.", paper="Table hyper-parameters, Step 2", ge=0)
    top_p: Fraction = key(0.9, "Top-p of nucleus sampling.", paper="Table hyper-parameters, Step 2")
    max_tokens: Positive = key(2048, "Cap of an answer.", unit="tokens", paper="Table hyper-parameters, Step 2")


class Results(Section):
    by: Literal["rule", "none", "file", "llm"] = key("rule", "Source of results: the task's rule, none (codes alone), `file`, or a language model (rows it fails on use the rule).", paper="3.3")
    values: Literal["last", "used"] = key("last", "by: rule, where a step holds several equations: only its last value, or before it also those used later.", paper="3.3")
    units: Literal["drop", "keep"] = key("drop", "by: rule, where a result is a number: bare, or with the noun that follows it in the step (24 clips).")
    working: Literal["drop", "keep"] = key("keep", "by: rule, where a result is a number: bare, or after the calculation it comes from (63-57=6, 1555+X=2460). Bare values cost the comparison's 0.5B 11 points.")
    last: Literal["drop", "keep"] = key("keep", "The last step's result, mostly the answer: kept, or left out, so that the answer follows the last functional token.", paper="eq. 3: left out")
    dropout: float = key(0.0, "Share of the training rows, drawn by the seed, without any result, so that a model also learns to answer from functional tokens alone. Validation rows keep theirs.", ge=0, lt=1)
    file: str | None = key(None, "JSONL with problem, sample and results (one a step), for by: file.")
    max_characters: Positive = key(40, "A longer result is left empty.", unit="characters")
    writer: ResultWriter = key(ResultWriter(), "The language model that writes results.")


class Vocabulary(Section):
    init: Literal["codebook", "words", "random"] = key("words", "Initial embeddings of the functional tokens, rescaled to `alpha`: the code vectors, the mean embedding of the words in a code's steps minus that of all steps, or noise.", paper="eq. 11: codebook; C")
    alpha: Rate | Literal["mean"] = key("mean", "α: norm of a functional token's initial embedding; mean: the mean norm of the model's own embeddings.", paper="eq. 11; Table hyper-parameters, Step 3: 0.01")
    delimiters: Literal["cirf", "think"] = key("cirf", "Tokens around the trace: <cirf> </cirf>, or <think> </think>.")
    opening: Literal["prompt", "written"] = key("prompt", "Who writes the opening delimiter, with which every trace begins: the chat template at the end of the prompt, so that the model need not learn it, or the model.", paper="eq. 13: written")
    init_from_token: str | None = key(None, "A token of the model, such as a line break, from whose embedding new tokens start: delimiters at that embedding, functional tokens at its sum with their own of norm `alpha`. Null: delimiters at the mean embedding, functional tokens at their own.")


class Lora(Section):
    rank: Positive = key(32, "r: rank of an adapter. 32 with α = 64 learns faster in few updates than the paper's 128 and 32.", paper="A.3: 128")
    alpha: Positive = key(64, "α: its scale.", paper="A.3: 32")
    dropout: Fraction = key(0.0, "Dropout before an adapter.")
    target_modules: str = key("all-linear", "Which layers get one: all-linear, or a comma-separated list of names.")


class Override(Section):
    """Keys that differ for one method; each trained method gets the same number of trials."""

    learning_rate: float | None = key(None, "Peak learning rate of this method.", gt=0)
    epochs: Epochs | None = key(None, "Epochs of this method.")
    batch_size: Positive | None = key(None, "Rows a forward pass of this method.", unit="rows")
    gradient_accumulation_steps: Positive | None = key(None, "Forward passes an update of this method.")
    weight_decay: float | None = key(None, "AdamW's weight decay for this method.", ge=0)
    lr_scheduler_type: Literal["cosine", "linear", "constant"] | None = key(None, "Course of this method's learning rate.")
    warmup_steps: int | None = key(None, "Warm-up updates of this method; a tenth of the training if that has no more updates.", unit="updates", ge=0)
    min_lr_ratio: Fraction | None = key(None, "Last learning rate of this method as a share of the peak (cosine only).")
    new_token_lr_multiplier: float | None = key(None, "Learning rate of this method's new embeddings as a multiple of the other weights'.", gt=0)
    functional_token_loss_weight: float | None = key(None, "Weight of a functional token in this method's loss.", gt=0)
    max_grad_norm: float | None = key(None, "Largest norm of a gradient of this method.", gt=0)
    lora: Lora | None = key(None, "Adapters of this method, where adapters are trained; other keys have their defaults.")


FEWEST_EPOCHS, MOST_EPOCHS = 2, 30
"""Of ``finetune.epochs: auto``: the paper's number, and a bound for very few rows."""

TOO_FEW_UPDATES = 60
"""With fewer updates many answers are not well-formed: after 36, 47 % of some free text (docs/research/analyses.md)."""


FULL_LEARNING_RATE = 2e-5
"""Peak learning rate where every weight is trained: adapters take larger steps."""


class Finetune(Section):
    adaptation: Literal["full", "lora"] = key("lora", "Train every weight, or adapters and the new tokens' embeddings. The saved model is merged and plain either way.", paper="A.3")
    lora: Lora = key(Lora(), "The adapters.")
    epochs: Epochs = key("auto", "Passes over the rows; auto: as many as make `min_steps` updates, from 2 to 30.", unit="epochs", paper="A.2; Table hyper-parameters, Step 4: 2")
    min_steps: Positive = key(150, "epochs: auto: updates that new tokens need to be learned; with many rows two passes make more.", unit="updates")
    batch_size: Positive = key(4, "Rows a forward pass on one device.", unit="rows", paper="Table hyper-parameters, Step 4")
    gradient_accumulation_steps: Positive = key(8, "Forward passes an update. Several processes share them.", paper="Table hyper-parameters, Step 4")
    learning_rate: float = key(1e-4, "Peak learning rate; for adaptation: full 2e-5 unless it is set. Models below a billion parameters take 2e-4 to 4e-4.", paper="Table hyper-parameters, Step 4: 2e-5", gt=0)
    learning_rates: tuple[Rate, ...] = key((), "Peak learning rates to try: every trained method is trained with each for `trial_epochs`, and then, from the start, with the one of the lowest last validation loss. Empty: learning_rate alone. A method whose learning rate is set in overrides or by its preset is trained with that alone.")
    trial_epochs: float = key(1.0, "Passes of a trial, which only chooses the learning rate.", unit="epochs", gt=0)
    weight_decay: float = key(0.1, "AdamW's weight decay.", paper="Table hyper-parameters, Step 4", ge=0)
    adam_beta1: Decay = key(0.9, "Adam's β1.", paper="Table hyper-parameters, Step 4")
    adam_beta2: Decay = key(0.999, "Adam's β2.", paper="Table hyper-parameters, Step 4")
    adam_epsilon: float = key(1e-8, "Adam's ε.", paper="Table hyper-parameters, Step 4", gt=0)
    lr_scheduler_type: Literal["cosine", "linear", "constant"] = key("cosine", "Course of the learning rate.", paper="Table hyper-parameters, Step 4")
    warmup_steps: int = key(100, "Warm-up updates; a tenth of the training if that has no more updates.", unit="updates", paper="Table hyper-parameters, Step 4", ge=0)
    min_lr_ratio: Fraction = key(0.1, "Last learning rate as a share of the peak (cosine only).", paper="Table hyper-parameters, Step 4")
    new_token_lr_multiplier: float = key(10.0, "Learning rate of the embeddings of new tokens, such as the functional ones, as a multiple of the other weights'. With few updates they hardly change at 1.", gt=0)
    min_well_formed: Fraction = key(0.1, "End a training early, with a warning, where a smaller share of its answers to held-out questions is well-formed after the first epoch, or the first by which a third of the training is done; 0: never.")
    functional_token_loss_weight: float = key(1.0, "Weight of a functional token in the loss; every other target has weight 1.", gt=0)
    max_grad_norm: float = key(1.0, "Largest norm of a gradient.", paper="Table hyper-parameters, Step 4", gt=0)
    bf16: bool = key(True, "Compute in bfloat16; master weights stay float32. On a processor without fast bfloat16 products: float32.", paper="A.2")
    gradient_checkpointing: bool = key(False, "Recompute activations in the backward pass: slower, less memory.")
    max_length: Positive = key(1024, "A longer row is dropped and counted.", unit="tokens")
    group_by_length: bool = key(True, "Put rows of similar length in one batch.")
    save_steps: Positive = key(200, "Updates between two checkpoints to resume from.", unit="updates")
    eval_steps: Positive | None = key(None, "Updates between two validation losses; null: once an epoch.", unit="updates")
    report_to: tuple[str, ...] = key((), "Trackers of the Trainer: tensorboard, wandb, ...")
    overrides: dict[str, Override] = key({}, "Keys of single methods, such as direct_sft: {learning_rate: 3.0e-4}.")

    @model_validator(mode="after")
    def _of_all_weights(self) -> Finetune:
        if self.adaptation == "full" and "learning_rate" not in self.model_fields_set:
            object.__setattr__(self, "learning_rate", FULL_LEARNING_RATE)  # sections are frozen
        return self

    def an_epoch(self, rows: int) -> int:
        """The updates of one pass over ``rows`` rows."""
        return math.ceil(math.ceil(rows / self.batch_size) / self.gradient_accumulation_steps)

    def settled(self, rows: int) -> Finetune:
        """The section with a number of epochs in place of auto, as needed for ``rows`` rows."""
        if self.epochs != "auto" or rows < 1:
            return self
        passes = math.ceil(self.min_steps / self.an_epoch(rows))
        return self.model_copy(update={"epochs": float(min(max(passes, FEWEST_EPOCHS), MOST_EPOCHS))})

    def tried(self, method: str, preset: Override) -> tuple[float, ...]:
        """The learning rates to choose from for a method; none if it or its preset has one."""
        given = (self.overrides.get(method, Override()).learning_rate, preset.learning_rate)
        return tuple(dict.fromkeys(self.learning_rates)) if given == (None, None) else ()

    def alone(self, method: str, rate: float, epochs: float | None = None) -> Finetune:
        """The section for one training of a method at one learning rate, for ``epochs`` passes if given."""
        passes = {} if epochs is None else {"epochs": epochs}
        override = self.overrides.get(method, Override()).model_copy(update={"learning_rate": rate} | passes)
        return self.model_copy(update={"learning_rates": (), "overrides": {**self.overrides, method: override}} | passes)

    def resolved(self, method: str, preset: Override) -> Finetune:
        """The section for one method: its overrides, then its preset's keys, then the section's own."""
        chosen = preset.model_dump(exclude_none=True) | self.overrides.get(method, Override()).model_dump(exclude_none=True)
        lora = {"lora": Lora(**chosen["lora"])} if "lora" in chosen else {}
        return self.model_copy(update=chosen | lora | {"overrides": {}})


class Reward(Section):
    """Training by reward: a trained model answers training questions, and learns from each answer's reward relative to the others
    to the same question (GRPO, arXiv 2402.03300). It uses the number format, Adam's constants and the gradient's bound of
    `finetune`; a variant's own `reward` overrides these keys."""

    right: float = key(1.0, "Reward of a right answer that is not truncated; 0: none, for a control in which nothing is learned.")
    form: float = key(0.0, "Reward of a well-formed answer, where the method has a form.")
    token_price: float = key(0.0, "Subtracted from the reward for each generated token.", ge=0)
    function: str | None = key(None, "A Python file, ending in .py, that defines REWARD: a function of one answer (a dict: question, gold, output, trace, answer, parsed, correct, tokens, truncated, well_formed) whose number is added to the reward; it is run as code.", pattern=r"\.py$")
    shuffle: bool = key(False, "A control: the rewards of a question's answers are shuffled among them.")
    max_steps: Positive = key(200, "Updates of the weights.", unit="updates")
    questions: Positive = key(8, "Fewest questions per update whose answers have different rewards; others are counted and left out.", unit="questions")
    num_generations: int = key(8, "Answers sampled to each question.", unit="answers", ge=2)
    draws: Positive = key(4, "Most draws of questions for one update, up to twice as many at once; then it uses what there is.")
    choose: Literal["uniform", "success"] = key("uniform", "uniform: all training questions in turn, in another order in each pass. success: prefer those answered right about half the time so far.")
    temperature: float = key(1.0, "Temperature of the sampled answers.", gt=0)
    top_p: Fraction = key(1.0, "Top-p of the sampled answers.")
    max_completion_length: Positive | None = key(None, "Cap of a sampled answer; null: that of the evaluation.", unit="tokens")
    mask_truncated_completions: bool = key(False, "Leave truncated answers out; else they are trained on as wrong ones.")
    loss_type: Literal["dr_grpo", "grpo", "bnpo", "dapo"] = key("dr_grpo", "Divisor of a token's loss, as in TRL: dr_grpo: answers times the cap; grpo: answers times the answer's tokens; bnpo, dapo: all tokens of the update.")
    scale_rewards: Literal["none", "group", "batch"] = key("none", "Divisor of a reward's difference from its question's mean: none, or the standard deviation over the question's answers or over the update's.")
    epsilon: float = key(0.2, "Clipping range of the ratio of a token's new and old probability, below and above 1; the ratio is 1 in the first iteration.", gt=0)
    epsilon_high: float | None = key(None, "The same above 1; null: as epsilon.", gt=0)
    num_iterations: Positive = key(1, "Updates on the same answers.")
    beta: float = key(0.0, "Weight of the KL divergence from the start model; needs adaptation: lora.", ge=0)
    adaptation: Literal["lora", "full"] = key("lora", "Train adapters, or every weight. The saved model is merged and plain either way.")
    lora: Lora = key(Lora(), "The adapters. Dropout is ignored.")
    learning_rate: float = key(1e-4, "Learning rate, without weight decay; for adaptation: full about a tenth of this.", gt=0)
    warmup_steps: int = key(10, "Warm-up updates; then the learning rate is constant.", unit="updates", ge=0)
    eval_steps: Positive = key(25, "Updates between two validations: greedy answers to held-out questions (problems.validation). The model of the best one is kept.", unit="updates")
    eval_questions: int = key(100, "Held-out questions of a validation, the first ones; 0: none, and the last model is kept.", unit="questions", ge=0)
    max_fall: Fraction | None = key(0.15, "End the training if validation accuracy falls this far below the best; null: never.")
    min_entropy: float = key(0.01, "End the training if the mean entropy of a sampled token is lower; 0: never.", unit="nats", ge=0)
    save_steps: Positive = key(10, "Updates between two checkpoints to resume from.", unit="updates")


class SampledAnswers(Section):
    """Answers drawn besides the greedy ones."""

    runs: int = key(0, "Sampled runs besides the greedy one, each with its own seed; 0: none.", ge=0)
    temperature: float = key(0.7, "Temperature of these runs.", paper="Table hyper-parameters, Step 5", gt=0)
    top_p: Fraction = key(0.95, "Top-p of these runs.", paper="Table hyper-parameters, Step 5")


class Voting(Section):
    """Self-consistency: the majority of several sampled answers of one method."""

    votes: tuple[Positive, ...] = key((), "Numbers of votes to answer by; empty: none. The largest is drawn, the smaller ones are parts of it.", unit="votes")
    method: str = key("cirf_full", "The method that votes. Votes are compared with one answer of the recipe's sft_cot or cot.")
    temperature: float = key(0.7, "Temperature of a vote.", gt=0)
    top_p: Fraction = key(0.95, "Top-p of a vote.")
    problems: Positive | None = key(None, "Test problems per task to vote on, the first ones; null: all.", unit="problems")


class Probes(Section):
    """Answers after perturbed thoughts or functional tokens."""

    kinds: tuple[Literal["drop", "shuffle", "swap"], ...] = key((), "What is done to the vectors or functional tokens: drop them, shuffle them within a question, swap them with another question's. Empty, and truncate too: no probes.")
    truncate: tuple[Whole, ...] = key((), "Keep only the first k of them, once for each k.")
    results: Literal["follow", "keep"] = key("follow", "Results in a trace: each goes with its functional token, or all stay in their places and only the tokens are perturbed.")

    @property
    def names(self) -> tuple[str, ...]:
        """Each probe by its name, once."""
        return tuple(dict.fromkeys((*self.kinds, *(f"truncate-{count}" for count in self.truncate))))


class Evaluate(Section):
    protocol: Literal["own", "quick", "full", "paper"] = key("own", "own: as the keys say. Any other sets temperature, top_p, runs, sampled and every task's number of test problems, overriding these keys. quick: the first 50, greedy; full: all, greedy and in three sampled runs; paper: the first 200 (MultiArith 180) of tasks with training rows and 500 of the others, three sampled runs.", paper="A.2 Inference Settings")
    temperature: float = key(0.0, "0: greedy; else sampled.", paper="Table hyper-parameters, Step 5", ge=0)
    top_p: Fraction = key(1.0, "Top-p of nucleus sampling.", paper="Table hyper-parameters, Step 5")
    runs: Positive = key(1, "Runs of a sampled evaluation, each with its own seed.", paper="A.2 Inference Settings")
    sampled: SampledAnswers = key(SampledAnswers(), "Where the evaluation is greedy: additional sampled runs, reported on their own.")
    voting: Voting = key(Voting(), "Answers by majority.")
    probes: Probes = key(Probes(), "Perturbations of a method's vectors or functional tokens, to test whether answers depend on them. Always greedy.")
    batch_size: Positive = key(32, "Problems decoded at once; accuracy only, never latency. With engine vllm, 512 or more keep a GPU busy, and votes are drawn on as many problems at once.", unit="problems")
    engine: Literal["transformers", "vllm"] = key("transformers", "The engine of evaluations, votes and the samples of cirf_self; never of latency. vllm: vLLM in this process (pip install 'cirf[vllm]'). Methods that reason in vectors are always decoded by transformers; the report names the engine of each method.")
    endpoints: dict[str, AnsweringEndpoint] = key({}, "OpenAI-compatible servers that answer for methods, by the name in tables: {cot_70b: {url: 'http://localhost:8000/v1', model: served-name}}. Evaluations and votes only: such methods are not timed or probed.")
    max_unanswered_share: Fraction = key(0.05, "Largest share of a task's questions that a server of endpoints may refuse, or not answer after all retries. They count as wrong and unparsed, and their rows say why; above it the evaluation stops. The same holds for votes.")
    max_new_tokens: Positive = key(512, "Most tokens of a method that writes prose.", unit="tokens")
    max_trace_tokens: Positive = key(128, "Most tokens of a functional trace, on top of the task's own cap for the answer.", unit="tokens")
    max_completion_tokens: Positive | None = key(None, "One budget for every method, reasoning and answer together: no answer has more tokens, with functional tokens, results and vectors counted, and pauses in the prompt not. Larger caps (max_new_tokens, max_trace_tokens, a task's own) are lowered to it. Null: each method has its caps.", unit="tokens", paper="A.3: 512 for MATH-500")
    check_questions: int = key(50, "Held-out questions (problems.validation) that each trained model answers right after its training: whether its answers are well-formed, end, and are better than the most frequent answer. Faults give warnings in the log and at the top of the report; 0: no check.", unit="problems", ge=0)
    latency_questions: int = key(20, "Problems per task timed one at a time, all methods in turn; 0: none.", unit="problems", paper="A.2 Inference Settings", ge=0)
    latency_runs: Positive = key(1, "If answers are sampled: how often each of these problems is timed, each time with another draw, for a mean ± standard deviation over the runs.", paper="A.2 Inference Settings: 3")
    latency_warmup: int = key(2, "Warm-up problems of each method after loading, not counted.", unit="problems", ge=0)

    def served_cap(self, name: str) -> int | None:
        """The cap of the server that answers for a method, within the one budget; ``None``: the method's."""
        served = self.endpoints.get(name)
        if served is None or served.max_new_tokens is None:
            return None
        return min(served.max_new_tokens, self.max_completion_tokens or served.max_new_tokens)


class Compression(Section):
    """Pruning of results (3.4)."""

    fast: float = key(0.1, "γ of cirf_fast: largest rise of the answer's loss that removing a result may cost.", unit="nats", paper="A.2 CIRF Variants; Table hyper-parameters", ge=0)
    faster: float = key(0.2, "γ of cirf_faster.", unit="nats", paper="A.2 CIRF Variants; Table hyper-parameters", ge=0)
    gamma: tuple[Threshold, ...] = key((0.0, 0.1, 0.2), "Thresholds at which the report gives the results and tokens that are left.", unit="nats", paper="Table hyper-parameters")
    lean: Literal["fast", "faster"] | Threshold = key("fast", "Price of a token for cirf_lean: a result is removed if that costs less than its tokens; fast, faster: the price at which the training traces are as short as that method's.", unit="nats a token")
    dtype: Literal["float32", "bfloat16", "float16"] = key("float32", "Number format of the scoring model. 16-bit losses are less precise than the smallest rises that matter.")
    batch_tokens: Positive = key(2048, "Most tokens scored at once.", unit="tokens")


class Variant(Section):
    """A method under another name or with other settings."""

    method: str | None = key(None, "The method: a name (see `cirf methods`), or the path of a Python file, ending in .py, that defines METHOD; it is run as code. Null: the method of the variant's name.")
    preset: str | None = key(None, "Settings and training of a source: paper, official or semcot, if the method has it (see docs/reference/baselines.md); null: the method's defaults, trained as finetune says.")
    model: str | None = key(None, "Another method or variant of the recipe whose trained model answers, for settings that matter only when answering; null: it is trained itself.")
    settings: dict[str, Any] = key({}, "The method's own settings (see `cirf methods NAME`); they override the preset's.")
    reward: dict[str, Any] | None = key(None, "Train the model of `method`, which may be another variant, further by reward; with keys that override the recipe's `reward`, or {}. Null: no training by reward.")


class Recipe(Section):
    """One experiment."""

    name: str = key(..., "The experiment's name; also the run folder's, unless --out says otherwise.", pattern=f"^{NAME}$")
    notes: str = key("", "The reason for the values.")
    seed: int = key(1, "Seed of everything that is drawn at random.", ge=0, le=2**32 - 1)
    methods: tuple[str, ...] = key(("cirf_full", "direct_sft", "cot"), "What to compare: methods (see `cirf methods`), variants, or the path of a Python file, ending in .py, that defines METHOD.", min_length=1)
    variants: dict[str, Variant] = key({}, "Settings of methods, and methods of your own, by the name they have in tables: {pause_10: {method: pause, settings: {n: 10}}}. Every name in `methods` that is not a method must be defined here.")
    models: dict[str, str] = key({}, "Folders of saved models to evaluate instead of training them, by method: {cirf_full: runs/mine/models/cirf_full}.")
    backbone: Backbone = key(Backbone(), "The language model.")
    problems: Problems = key(..., "Questions and answers.")
    rationales: Rationales = key(Rationales(), "Worked solutions.")
    segments: Segments = key(Segments(), "Steps.")
    embeddings: Embeddings = key(Embeddings(), "Vectors of steps.")
    codebook: Codebook = key(Codebook(), "Functions of steps.")
    results: Results = key(Results(), "Results of steps.")
    vocabulary: Vocabulary = key(Vocabulary(), "Functional tokens.")
    finetune: Finetune = key(Finetune(), "Training of the language model.")
    reward: Reward = key(Reward(), "Training by reward, of variants with `reward`.")
    evaluate: Evaluate = key(Evaluate(), "Accuracy and latency.")
    compression: Compression = key(Compression(), "Pruning of results: cirf_zero, cirf_fast, cirf_faster, cirf_lean.")

    @model_validator(mode="after")
    def _names_differ(self) -> Recipe:
        names = [entry.name or entry.task for entry in self.problems.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"problems.tasks: {twice[0]} occurs twice; give each its own name")
        ends = sorted(name for name in names for end in ("_low", "_high") if name.removesuffix(end) in {*names} - {name})
        if ends:
            raise ValueError(f"problems.tasks: {ends[0]} is what tables call an end of an interval; give it another name")
        again = sorted({name for name in self.methods if self.methods.count(name) > 1})
        if again:
            raise ValueError(f"methods: {again[0]} occurs twice; name each once")
        for place, listed in (("methods", self.methods), ("variants", self.variants)):
            odd = [name for name in listed if not re.fullmatch(NAME, name)]
            if odd:
                raise ValueError(f"{place}: {odd[0]!r} cannot name a folder; use letters, digits, _, . and -")
        unknown = sorted(set(self.evaluate.endpoints) - set(self.methods))
        if unknown:
            raise ValueError(f"evaluate.endpoints: {unknown[0]} is none of the methods ({', '.join(self.methods)})")
        if self.segments.minimum > self.segments.most(self.segments.by):
            raise ValueError("segments.minimum: above segments.maximum, so that no rationale would fit; lower it")
        if self.segments.min_characters > self.segments.max_characters // 2:
            raise ValueError("segments.min_characters: more than half of segments.max_characters; lower it")
        if self.codebook.auto and (not self.codebook.sizes or self.codebook.reuse):
            raise ValueError("codebook.size: auto chooses among codebook.sizes; name some there, such as [32, 64], and no reuse")
        if self.codebook.reuse and set(self.codebook.sizes) - {self.codebook.size}:
            raise ValueError("codebook.sizes: a saved codebook has one size; leave sizes empty where codebook.reuse is given")
        return self


def with_own_methods(given: dict[str, Any]) -> dict[str, Any]:
    """A recipe's data in which Python files among the methods have become variants, named after the files. Their settings may
    be among the variants by that name."""
    named = given.get("methods")
    files = [name for name in named if isinstance(name, str) and name.endswith(".py")] if isinstance(named, list) else []
    variants = given.get("variants") or {}
    if not isinstance(named, list) or not files or not isinstance(variants, dict):
        return given
    stems = {path: re.sub(r"^[^A-Za-z0-9_]|[^A-Za-z0-9._-]", "_", PurePath(path).stem) for path in files}
    own = {
        stem: {"method": path} | section for path, stem in stems.items() if isinstance(section := variants.get(stem) or {}, dict)
    }
    return {**given, "methods": [stems.get(name, name) for name in named], "variants": variants | own}
