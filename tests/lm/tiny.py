"""Tiny language models and a tokenizer with a chat template, built on the spot."""

from __future__ import annotations

from typing import Any

import torch

from cirf.lm.training.batches import Feature

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful little assistant with a long introduction<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
"""Like Qwen3's: a default system message, and an empty think block when thinking is switched off."""

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' if message['role'] == 'user' "
    "else message['content'] + eos_token }}{% endfor %}"
)
"""Like Mistral's first: no system role, no generation prompt."""

_TEXTS = [
    "What is 12 plus 7? The answer is 19.",
    "Anna has 3 apples and buys 4 more. How many apples are there now?",
    "A coin is heads up. Bob flips the coin. Is the coin still heads up? yes no",
    "system user assistant Question: Answer: 0 1 2 3 4 5 6 7 8 9",
]


def build_tokenizer(template: str | None = CHATML) -> Any:
    """A byte-level BPE of about 400 tokens with ChatML's special tokens; any text can be encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


def build_model(
    kind: str = "llama", tied: bool = True, rows: int = 448, seed: int = 0, scale: float = 4.0, width: int = 32
) -> Any:
    """``llama``, ``qwen2``, ``gpt2`` or ``gemma2`` (scaled embeddings, soft-capped logits): 2 layers, 4 heads, float32."""
    import transformers as t

    torch.manual_seed(seed)
    common = {"vocab_size": rows, "tie_word_embeddings": tied, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    grouped = {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    config: Any
    if kind == "llama":
        config = t.LlamaConfig(**common, **grouped)
    elif kind == "qwen2":
        config = t.Qwen2Config(**common, **grouped)
    elif kind == "gemma2":
        config = t.Gemma2Config(**common, **grouped, head_dim=width // 4, final_logit_softcapping=5.0, sliding_window=64)
    else:
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = t.GPT2Config(**common, n_embd=width, n_layer=2, n_head=4, n_positions=256, **quiet)
    model = t.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa" if kind != "gemma2" else "eager")
    with torch.no_grad():  # larger than usual, so that a tiny model's outputs differ and its logits cap
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model.eval()


def build_adapted(dtype: torch.dtype = torch.float32, dropout: float = 0.0, kind: str = "qwen2") -> Any:
    """A model in training whose adapters (r = 4) do something."""
    from cirf.lm.adapters import put_adapters
    from cirf.recipe import schema

    torch.manual_seed(1)
    model = put_adapters(build_model(kind).to(dtype), schema.Lora(rank=4, alpha=8, dropout=dropout)).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    return model


class Thinks:
    """A curriculum of rows that all have ``count`` thoughts before ``end``; ``validation`` is the first ``watched`` of them."""

    def __init__(self, lessons: Any, end: int, count: int, watched: int = 2) -> None:
        self.rows = []
        for feature in (lesson.feature for lesson in lessons):
            ids = (*feature.ids[: feature.start], end, *feature.ids[feature.start :])
            self.rows.append(Feature(ids, feature.start + 1, thoughts=(feature.start, count)))
        self.validation = self.rows[:watched]

    def feature(self, index: int, update: int) -> Feature:
        return self.rows[index]

    def fresh(self, update: int) -> bool:
        return False

    def summary(self) -> dict[str, Any]:
        return {}
