"""Loading: the right number format, and one clear sentence for everything that can be wrong. A saved model that reads images,
too, has what reads them.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.errors import CirfError
from cirf.lm.backbone import check_weights, embedding_width, load_model, load_tokenizer, no_pickles, pick_device, prompt_text
from cirf.lm.saving import check_tokenizer, save_model
from cirf.lm.vocabulary import extend
from cirf.recipe import schema


@pytest.fixture
def saved(tiny: Any, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    tiny.build_model().save_pretrained(folder)
    tiny.build_tokenizer().save_pretrained(folder)
    return folder


def multiplies(monkeypatch: pytest.MonkeyPatch, sixteen_bits: bool) -> None:
    monkeypatch.setattr("cirf.cpu.number_formats.is_fast", lambda dtype: sixteen_bits or dtype == "float32")


def test_formats_follow_what_the_model_is_for(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiplies(monkeypatch, True)
    section = schema.Backbone(device="cpu")
    formats = {None: torch.bfloat16, "lora": torch.bfloat16, "full": torch.float32}
    for training, expected in formats.items():
        model = load_model(saved, section, training=training)  # type: ignore[arg-type]
        assert model.dtype is expected and not model.training
    assert embedding_width(saved, section) == 32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("training", [None, "lora"])
def test_without_instructions_for_16_bits_the_same_values_are_computed_with_in_32(
    saved: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, training: Any
) -> None:
    section = schema.Backbone(device="cpu", dtype=dtype)  # type: ignore[arg-type]
    multiplies(monkeypatch, True)
    new = load_model(saved, section, training=training)
    multiplies(monkeypatch, False)
    old = load_model(saved, section, training=training)
    assert (new.dtype, old.dtype) == (getattr(torch, dtype), torch.float32)
    assert new.config.dtype == old.config.dtype == new.dtype
    assert all(torch.equal(one.float(), other) for one, other in zip(new.parameters(), old.parameters(), strict=True))


def test_the_tokenizer_comes_settled(saved: Path) -> None:
    assert "long introduction" not in prompt_text(load_tokenizer(saved), "Hi?")
    assert "long introduction" in prompt_text(load_tokenizer(saved, schema.Backbone(empty_system=False)), "Hi?")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for x in", "chat template fails"),
        ("{{ none.x }}", "it leaves the question out"),
        ("{{ 'a' * 10**10 }}", "MemoryError"),
        ("{{ 'a' * 10**6 }}{{ messages[0].content }}", "it writes 1,000,013 characters around a question"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "it takes more than 2 seconds"),
        ("{{ 1/0 }}", "division by zero"),
        ("{{ raise_exception('only images') }}", "only images"),
    ],
)
def test_a_chat_template_that_fails_is_one_sentence(saved: Path, template: str, said: str) -> None:
    (saved / "chat_template.jinja").write_text(template)
    with pytest.raises(CirfError, match=said) as summary:
        load_tokenizer(saved)
    assert str(summary.value).startswith(f"{saved}: its chat template fails") and "\n" not in str(summary.value)


@pytest.mark.parametrize(("key", "value"), [("hidden_size", 64), ("layers", 3), ("heads", 8)])
def test_another_architecture_than_the_recipes_is_refused(saved: Path, key: str, value: int) -> None:
    with pytest.raises(CirfError, match=rf"backbone.architecture.{key}: the recipe says {value}, but"):
        load_model(saved, schema.Backbone(device="cpu", architecture={key: value}))  # type: ignore[arg-type]
    fitting = schema.Architecture(hidden_size=32, layers=2, heads=4)
    load_model(saved, schema.Backbone(device="cpu", architecture=fitting))


def test_wrong_places_are_one_sentence(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("{")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "no-such-kind"}')
    (saved / "model.safetensors").rename(tmp_path / "weights.bin")
    places = [tmp_path / name for name in ("gone", "empty", "bad", "other")]
    for place in [*places, saved, "nobody/nothing-here", "not a / name!"]:
        with pytest.raises(CirfError) as caught:
            load_model(place, schema.Backbone(device="cpu"))
        assert str(caught.value).startswith(str(place)) and "\n" not in str(caught.value)
    with pytest.raises(CirfError, match="is a file"):
        load_tokenizer(tmp_path / "weights.bin")
    with pytest.raises(CirfError, match="no tokenizer could be loaded"):
        load_tokenizer("nobody/nothing-here")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["[1]", "7", "{"])
def test_a_file_of_a_model_that_holds_no_object_is_one_sentence(saved: Path, name: str, text: str) -> None:
    (saved / name).write_text(text)
    with pytest.raises(CirfError) as caught:
        load_tokenizer(saved)
    assert str(caught.value).startswith(f"{saved / name}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("config.json", {"attention_bias": None}, "Validation error for field 'attention_bias': TypeError.*expected bool"),
        ("config.json", {"hidden_size": "32"}, "field 'hidden_size'"),
        ("config.json", {"quantization_config": []}, "no model could be loaded"),
        ("config.json", {"auto_map": 1}, "no model could be loaded"),
        ("config.json", {"head_dim": 0}, "no model could be loaded"),
        ("config.json", {"architectures": [1]}, "holds a 1, not a causal language model"),
        ("tokenizer_config.json", {"model_max_length": "long"}, "no tokenizer could be loaded"),
        ("generation_config.json", {"suppress_tokens": 1}, "no model could be loaded"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(saved: Path, name: str, values: dict[str, Any], said: str) -> None:
    file, section = saved / name, schema.Backbone(device="cpu")
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    with pytest.raises(CirfError, match=said) as summary:
        load_model(saved, section) if name != "tokenizer_config.json" else load_tokenizer(saved, section)
    assert "\n" not in str(summary.value)


def test_devices() -> None:
    assert pick_device("cpu") == "cpu"
    assert torch.device(pick_device("auto")).type in ("cpu", "cuda", "mps")
    with pytest.raises(CirfError, match="'quantum' is not a device"):
        pick_device("quantum")
    if not torch.cuda.is_available():
        with pytest.raises(CirfError, match="no cuda device"):
            pick_device("cuda")
    for name, count in (("cuda:99", torch.cuda.device_count()), ("cpu:1", 1), ("meta", 0)):
        with pytest.raises(CirfError, match=f"{name}, but this machine has {count or 'no'} "):
            pick_device(name)


def test_a_sentence_embedder_is_no_backbone(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    with pytest.raises(CirfError, match="holds a BertModel, not a causal language model"):
        load_model(saved, schema.Backbone(device="cpu"))


def test_damaged_weights_are_one_sentence_before_any_work(saved: Path) -> None:
    check_weights(saved)
    weights, whole = saved / "model.safetensors", (saved / "model.safetensors").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\xff" * 100):
        weights.write_bytes(damaged)
        for read in (check_weights, lambda folder: load_model(folder, schema.Backbone(device="cpu"))):
            with pytest.raises(CirfError, match="no model could be loaded") as caught:
                read(saved)
            assert "\n" not in str(caught.value)
    weights.write_bytes(whole)
    weights.rename(saved / "model-00001-of-00002.safetensors")  # a part, without the index that names the others
    with pytest.raises(CirfError, match=r"model\.safetensors is missing"):
        check_weights(saved)
    weights.write_bytes(whole)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"hidden_size": 2 * config["hidden_size"]}))
    with pytest.raises(CirfError, match="weights have other shapes"):
        load_model(saved, schema.Backbone(device="cpu"))
    (saved / "tokenizer.json").write_text('{"version": 1, "model": {"type": "Torn"}}')
    with pytest.raises(CirfError, match="no tokenizer could be loaded"):
        load_tokenizer(saved)


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


def test_threads_that_refuse_pickles_at_once_leave_the_loader_as_it_was() -> None:
    original, entered, leave, left = torch.load, threading.Event(), threading.Event(), threading.Event()

    def refuse(begun: threading.Event, until: threading.Event) -> None:
        with no_pickles("a model"):
            begun.set()
            until.wait(10)

    one = threading.Thread(target=refuse, args=(entered, leave))
    other = threading.Thread(target=refuse, args=(threading.Event(), left))
    one.start()
    entered.wait(10)
    other.start()
    other.join(0.2)  # without a lock it enters now, and in the end puts back what the first one set
    leave.set()
    one.join(10)
    left.set()
    other.join(10)
    assert torch.load is original


def test_a_tokenizer_that_cannot_be_loaded_again_is_one_sentence_and_no_question(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one with code of its own, transformers saves the code under a name that it does not find."""
    shutil.copytree(saved, tmp_path / "own")
    settings = json.loads((saved / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": [None, "own.Own"]}, "tokenizer_class": "Own"}
    (tmp_path / "own" / "tokenizer_config.json").write_text(json.dumps(settings))
    code = "from transformers import PreTrainedTokenizerFast\nclass Own(PreTrainedTokenizerFast): pass\n"
    (tmp_path / "own" / "own.py").write_text(code)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    section = schema.Backbone(trust_remote_code=True)
    model, tokenizer = load_model(tmp_path / "own", section), load_tokenizer(tmp_path / "own", section)
    assert type(tokenizer).__name__ == "Own"
    with pytest.raises(CirfError, match="its tokenizer, once saved, cannot be loaded"):
        check_tokenizer(model, tokenizer)
