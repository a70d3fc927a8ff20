"""Tiny language models of families that keep their past otherwise than as keys and values, or read their inputs in a way of
their own."""

from __future__ import annotations

from typing import Any

import torch


def build(kind: str, rows: int = 448, seed: int = 0, scale: float = 4.0) -> Any:
    """A random model of a family: 2 layers (more where the family has to), float32. Matrices are larger than usual, so that
    its answers differ from question to question."""
    import transformers

    t: Any = transformers

    ids: dict[str, Any] = {"vocab_size": rows, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    size: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    delta: dict[str, Any] = {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    }
    experts: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
    states: dict[str, Any] = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
    made: dict[str, Any] = {
        "qwen3_5": lambda: t.Qwen3_5TextConfig(**size, head_dim=8, **delta, **ids),
        "qwen3_next": lambda: t.Qwen3NextConfig(**size, head_dim=8, **delta, **experts, **ids),
        "lfm2": lambda: t.Lfm2Config(**size, layer_types=["conv", "full_attention"], **ids),
        "granite_hybrid": lambda: t.GraniteMoeHybridConfig(
            **size, layer_types=["mamba", "attention"], **states, num_local_experts=0, shared_intermediate_size=64, **ids
        ),
        "falcon_h1": lambda: t.FalconH1Config(**size, head_dim=8, mamba_d_ssm=64, **states, **ids),
        "jamba": lambda: t.JambaConfig(
            **size,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            mamba_d_state=8,
            mamba_dt_rank=8,
            use_mamba_kernels=False,
            **ids,
        ),
        "mamba": lambda: t.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, **ids),
        "mamba2": lambda: t.Mamba2Config(
            hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=16, **ids
        ),
        "falcon_mamba": lambda: t.FalconMambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8, **ids),
        "recurrent_gemma": lambda: t.RecurrentGemmaConfig(
            **{key: value for key, value in size.items() if key != "max_position_embeddings"},
            lru_width=32,
            attention_window_size=64,
            block_types=["recurrent", "attention"],
            **ids,
        ),
        "rwkv": lambda: t.RwkvConfig(hidden_size=32, num_hidden_layers=2, attention_hidden_size=32, context_length=512, **ids),
        "minimax": lambda: t.MiniMaxConfig(
            **size, layer_types=["linear_attention", "full_attention"], num_local_experts=2, **ids
        ),
        "gemma4": lambda: t.Gemma4TextConfig(
            **size,
            head_dim=8,
            global_head_dim=8,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
            vocab_size_per_layer_input=rows,
            hidden_size_per_layer_input=8,
            num_kv_shared_layers=0,
            **ids,
        ),
        "gemma3n": lambda: t.Gemma3nTextConfig(
            **{**size, "num_hidden_layers": 2, "intermediate_size": [64, 64]},
            head_dim=8,
            sliding_window=32,
            layer_types=["sliding_attention", "full_attention"],
            vocab_size_per_layer_input=rows,
            hidden_size_per_layer_input=8,
            num_kv_shared_layers=0,
            laurel_rank=4,
            activation_sparsity_pattern=[0.0, 0.0],
            altup_num_inputs=2,
            **ids,
        ),
        "llama4": lambda: t.Llama4TextConfig(
            **{**size, "num_hidden_layers": 4}, head_dim=8, intermediate_size_mlp=64, num_local_experts=2, **ids
        ),
        "phimoe": lambda: t.PhimoeConfig(**size, num_local_experts=2, **ids),
        "opt": lambda: t.OPTConfig(
            hidden_size=32,
            ffn_dim=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
            word_embed_proj_dim=16,
            do_layer_norm_before=False,
            **(ids | {"pad_token_id": 0}),
        ),
    }
    torch.manual_seed(seed)
    model = t.AutoModelForCausalLM.from_config(made[kind]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(scale)
    return model.eval()
