"""A saved model that reads images, too, has what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.saving import save_model
from cirf.lm.vocabulary import extend
from cirf.recipe import schema


def test_a_model_with_a_vision_tower_keeps_its_processors(tiny: Any, tmp_path: Path) -> None:
    import transformers

    t: Any = transformers

    source, folder = tmp_path / "source", tmp_path / "saved"
    torch.manual_seed(0)
    text = t.Gemma3TextConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        query_pre_attn_scalar=8, vocab_size=448, sliding_window=32, bos_token_id=None, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    vision = t.SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    tokenizer = tiny.build_tokenizer()
    images = {"image_token": "<image>", "boi_token": "<boi>", "eoi_token": "<eoi>"}
    tokenizer.add_tokens(list(images.values()), special_tokens=True)
    ids = dict(
        zip(
            ("image_token_index", "boi_token_index", "eoi_token_index"),
            map(tokenizer.convert_tokens_to_ids, images.values()),
            strict=True,
        )
    )
    t.Gemma3ForConditionalGeneration(
        t.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **ids)
    ).save_pretrained(source)
    tokenizer.save_pretrained(source)
    settings = json.loads((source / "tokenizer_config.json").read_text()) | {"extra_special_tokens": images}
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    reads = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}}
    (source / "preprocessor_config.json").write_text(json.dumps(reads))
    (source / "processor_config.json").write_text(
        json.dumps({"image_seq_length": 4, "processor_class": "Gemma3Processor", "chat_template": "Old"})
    )

    section = schema.Backbone(dtype="float32", device="cpu")
    model, tokenizer = load_model(source, section, training="full"), load_tokenizer(source, section)
    extend(model, tokenizer, None, schema.Vocabulary(alpha="mean", init="random"), 4, 0)
    save_model(model, tokenizer, folder, "float32", "cirf")
    processor = t.AutoProcessor.from_pretrained(folder)
    assert type(processor).__name__ == "Gemma3Processor" and processor.image_seq_length == 4
    assert processor.image_processor.size == t.AutoProcessor.from_pretrained(source).image_processor.size
    assert processor.chat_template == processor.tokenizer.chat_template == tokenizer.chat_template
    save_model(load_model(folder, section), load_tokenizer(folder), tmp_path / "again", "float32")
    assert (tmp_path / "again" / "preprocessor_config.json").is_file()
    (source / "preprocessor_config.json").write_text("[" * 100_000)
    with pytest.raises(CirfError, match=r"preprocessor_config\.json: not valid JSON"):
        save_model(model, tokenizer, folder, "float32", "cirf")


def test_a_model_of_text_alone_is_saved_without(tiny: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    tiny.build_model().save_pretrained(source)
    tiny.build_tokenizer().save_pretrained(source)
    (source / "preprocessor_config.json").write_text("{}")
    section = schema.Backbone(dtype="float32", device="cpu")
    save_model(load_model(source, section), load_tokenizer(source, section), tmp_path / "saved", "float32")
    assert not (tmp_path / "saved" / "preprocessor_config.json").exists()
