"""Made-up segments and a tiny sentence embedding model, shared by the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from watching import Counting

from cirf.recipe import schema

WORDS = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "apples",
    "pears",
    "coins",
    "people",
    "total",
    "left",
    "each",
    "1",
    "2",
    "3",
    "4",
)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture(scope="session")
def segments() -> tuple[np.ndarray, np.ndarray]:
    """Vectors [120 x 12] of 30 rationales of 4 steps, and the rationale of each: a function, its question's theme, noise."""
    random = np.random.default_rng(5)
    functions, themes = random.normal(size=(6, 12)), 3 * random.normal(size=(30, 12))
    groups = np.repeat(np.arange(30), 4)
    vectors = functions[random.integers(0, 6, 120)] + themes[groups] + 0.1 * random.normal(size=(120, 12))
    return vectors.astype(np.float32), groups


@pytest.fixture(scope="session")
def small() -> schema.Codebook:
    """Settings that train in a blink."""
    return schema.Codebook(size=6, hidden=16, autoencoder_epochs=3, vq_epochs=3, batch_size=32, learning_rate=1e-2)


@pytest.fixture(scope="session")
def embedding_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a two-layer BERT of width 16 that knows a dozen words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("embedding-model")
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS)
    tokenizer = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder
