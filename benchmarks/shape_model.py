"""Models, rows and device limits for `benchmarks.shape`: random weights of a known shape, and rows of the paper's lengths."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    # config.json of Qwen/Qwen3-8B: 8,190,735,360 parameters.
    "qwen3-8b": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": False,
    },
    # config.json of meta-llama/Llama-3.3-70B-Instruct: 70,553,706,496 parameters.
    "llama-70b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        "tie_word_embeddings": False,
    },
    "tiny": {
        "vocab_size": 640,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
    },
}

PROMPT = 130
"""Mean tokens of a prompt of GSM8K in Qwen's tokenizer."""

_WORDS = 512
_CODES = 32


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens that a method writes for one question, the end token included, and how many of them are functional."""

    written: int
    functional: int = 0


def paper_lengths(task: str = "gsm8k") -> dict[str, Lengths]:
    """Tokens a question of four methods, of the paper's tables for Qwen3-8B.

    Tokens of chain-of-thought and functional tokens are in the paper's table of data sets. It does not give the tokens of
    results. The total of each CIRF variant is therefore its time in the table of main results, divided by the time a token of
    chain-of-thought.
    (On CommonsenseQA, where Fast keeps hardly any result, that gives 11.6 tokens; 8.2 functional ones, two delimiters, the
    answer and the end token are 12.2.)
    """
    from cirf.analysis.source import published

    (counts,) = (row for row in published("statistics") if row["task"] == task)
    seconds = {row["method"]: row["seconds"] for row in published("main") if row["task"] == task and row["model"] == "Qwen3-8B"}
    a_token = seconds["sft_cot"] / counts["cot_tokens"]
    functional = round(counts["functional_tokens"])
    made = {name: Lengths(max(functional + 4, round(seconds[name] / a_token)), functional) for name in CIRF}
    return made | {"cot": Lengths(round(counts["cot_tokens"]))}


CIRF = ("cirf_full", "cirf_fast", "cirf_faster")


def build_model(shape: str, device: str, dtype: str, seed: int = 0) -> Any:
    """A model with random weights, created on the device, in evaluation mode. Raises ``torch.OutOfMemoryError``."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    with torch.device(device):
        make: Any = AutoModelForCausalLM.from_config
        model = make(AutoConfig.for_model(**{"model_type": "qwen3"} | SHAPES[shape]), dtype=getattr(torch, dtype))
    return model.eval()


def build_tokenizer() -> Any:
    """A tokenizer of made words, a token each, with the plain template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from cirf.lm.prompt import settle_template

    words = {name: place for place, name in enumerate(["<unk>", "<end>", *(f"w{number}" for number in range(_WORDS))])}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", pad_token="<end>", clean_up_tokenization_spaces=False
    )
    settle_template(tokenizer)
    return tokenizer


def never_end(model: Any, tokenizer: Any) -> None:
    """Make an untied model never generate an end token, so that every answer reaches the limit. With a zero row the logit is 0,
    and some of the many others are larger."""
    import torch

    from cirf.lm.prompt import stop_ids

    with torch.no_grad():
        model.get_output_embeddings().weight[stop_ids(model, tokenizer)] = 0.0


def prompts(count: int, tokens: int, seed: int = 0) -> list[str]:
    """Prompts of so many tokens each."""
    chance = random.Random(f"prompts {seed}")
    return [_text(chance, tokens) for _ in range(count)]


def rows(count: int, lengths: Lengths, prompt: int, seed: int = 0) -> list[Any]:
    """Training rows: prompts and targets of half to one and a half times the mean lengths, evenly spread."""
    from cirf.lm.training.batches import Row
    from cirf.lm.vocabulary import token_names

    chance, names = random.Random(f"rows {seed}"), token_names(_CODES)
    made = []
    for number in range(count):
        asked = chance.randint(prompt - prompt // 2, prompt + prompt // 2)
        written = chance.randint(lengths.written - lengths.written // 2, lengths.written + lengths.written // 2)
        if lengths.functional:
            words = max(1, written - lengths.functional - 4)  # two delimiters, the answer and the end
            share = [words // lengths.functional + (place < words % lengths.functional) for place in range(lengths.functional)]
            steps = (f"{chance.choice(names.codes)} {_text(chance, part)}" for part in share)
            target = f"{names.start} {' '.join(steps)} {names.end} {_text(chance, 1)}"
        else:
            target = _text(chance, max(1, written - 1))
        made.append(Row(_text(chance, asked), target, problem=f"row {number}"))
    return made


def new_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Add delimiters and functional tokens to the model; returns their ids."""
    from cirf.lm.vocabulary import extend
    from cirf.recipe.schema import Vocabulary

    return extend(model, tokenizer, None, Vocabulary(alpha="mean", init="random"), _CODES, 0)


def _text(chance: random.Random, tokens: int) -> str:
    return " ".join(f"w{chance.randrange(_WORDS)}" for _ in range(tokens))


def synchronise(device: str) -> None:
    """Wait until a device has finished its work; a CPU always has."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def fastest(device: str, work: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the fastest of some calls, after one that is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        synchronise(device)
        started = time.perf_counter()
        work()
        synchronise(device)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def matmul_peak(device: str, dtype: str) -> float:
    """Floating-point operations a second of square matrix products, the best of some sizes."""
    import torch

    sizes = (4096, 8192, 16384) if torch.device(device).type == "cuda" else (256, 512)
    best = 0.0
    for size in sizes:
        a, b = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        best = max(best, 2 * size**3 / fastest(device, lambda a=a, b=b, out=out: torch.mm(a, b, out=out)))  # type: ignore[misc]
    return best


def bandwidth(device: str, dtype: str) -> float:
    """Memory bandwidth of the device in bytes a second: the better of a copy and a matrix-vector product, the main operation of
    decoding one answer."""
    import torch

    rows, width = (2**19, 4096) if torch.device(device).type == "cuda" else (2**12, 1024)
    matrix = torch.ones(rows, width, device=device, dtype=getattr(torch, dtype))
    vector = torch.ones(width, device=device, dtype=matrix.dtype)
    other = torch.empty_like(matrix)
    size = matrix.numel() * matrix.element_size()
    copied = 2 * size / fastest(device, lambda: other.copy_(matrix), 10)
    return max(copied, size / fastest(device, lambda: torch.mv(matrix, vector), 10))


def decode_bytes(model: Any, batch: int, context: int) -> int:
    """Bytes that a decoding step must read: all weights, and the keys and values of ``context`` tokens an answer. Of the input
    embeddings it reads a row an answer, or all of them if they are tied to the output."""
    from cirf.lm.vocabulary import is_tied

    config, inner = model.config.get_text_config(), model.get_input_embeddings().weight
    read = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if not is_tied(model):
        read -= (inner.shape[0] - batch) * inner.shape[1] * inner.element_size()
    kept = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * inner.element_size()
    return int(read + batch * context * kept)


def training_flops(model: Any, lengths: Sequence[tuple[int, int]], adapters: int | None) -> float:
    """Floating-point operations that training on rows needs, each given as (tokens, targets among them).

    A weight of a linear layer takes 2 a token forwards, 2 backwards for its input's gradient, 2 for its own where it is trained;
    the head is asked at targets alone; attention counts half its square (it is causal), three times. ``model`` is plain;
    ``adapters``: weights of LoRA adapters, its own being frozen; ``None``: its own are trained. What gradient
    checkpointing computes again is not counted.
    """
    import torch

    config, head = model.config.get_text_config(), model.get_output_embeddings()
    linear = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, torch.nn.Linear) and layer is not head)
    a_weight = 6 if adapters is None else 4
    width = config.num_attention_heads * config.head_dim
    total = 0.0
    for tokens, targets in lengths:
        total += tokens * (a_weight * linear + 6 * (adapters or 0)) + targets * a_weight * head.weight.numel()
        total += 3 * config.num_hidden_layers * 2 * tokens**2 * width
    return total
