"""Which number format is computed with, by what a processor can do."""

from __future__ import annotations

import pytest
import torch

from cirf.cpu.number_formats import computed_in


@pytest.mark.parametrize(
    ("machine", "instructions", "extensions", "maker", "bfloat16", "float16"),
    [
        ("x86_64", "AVX512", {"bf16"}, "AuthenticAMD", "bfloat16", "float32"),
        ("AMD64", "AVX512", {"bf16", "fp16"}, "GenuineIntel", "float32", "float16"),
        ("x86_64", "AVX512", {"bf16", "fp16", "amx"}, "GenuineIntel", "bfloat16", "float16"),
        ("x86_64", "AVX512", set(), "GenuineIntel", "float32", "float32"),
        ("x86_64", "AVX512", set(), "AuthenticAMD", "float32", "float32"),
        ("x86_64", "AVX2", {"bf16", "fp16", "amx"}, "AuthenticAMD", "float32", "float32"),  # torch was told to keep to AVX2
        ("AMD64", "DEFAULT", set(), "AuthenticAMD", "float32", "float32"),
        ("arm64", "DEFAULT", set(), "", "bfloat16", "float16"),
    ],
)
def test_16_bits_are_computed_with_where_they_are_no_slower(
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    instructions: str,
    extensions: set[str],
    maker: str,
    bfloat16: str,
    float16: str,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: "amx" in extensions)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: "bf16" in extensions)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: "fp16" in extensions)
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: f"vendor_id\t: {maker}\n")
    assert computed_in("bfloat16", "cpu") == bfloat16
    assert computed_in("float16", "cpu") == float16
    assert {computed_in("float32", device) for device in ("cpu", "cuda:1", "mps")} == {"float32"}
    assert computed_in("bfloat16", "cuda:1") == computed_in("bfloat16", "mps") == "bfloat16"


def test_a_processor_whose_maker_no_file_tells_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr("pathlib.Path.read_text", nothing)
    for summary, expected in (
        ("Intel64 Family 6 Model 207 Stepping 2, GenuineIntel", "float32"),
        ("AMD64, AuthenticAMD", "bfloat16"),
    ):
        monkeypatch.setattr("platform.processor", lambda summary=summary: summary)
        assert computed_in("bfloat16", "cpu") == expected
