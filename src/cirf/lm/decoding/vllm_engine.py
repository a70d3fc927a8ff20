"""Batched decoding by vLLM in this process, for evaluations of many questions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cirf.distributed import world_size
from cirf.errors import CirfError
from cirf.lm.decoding.generate import Output, output_of
from cirf.lm.decoding.sampling import NO_VOTE, draw, seed_of
from cirf.lm.prompt import encode, stop_ids
from cirf.recipe import schema

LONGEST = 8192
"""Most tokens of a prompt and its answer, unless the model has fewer: vLLM keeps memory for one sequence of this length."""


class VllmEngine:
    """A saved model in vLLM. Its outputs are those of `cirf.lm.decoding.generate.generate`, except where two tokens are as likely
    but for rounding."""

    def __init__(self, source: Path | str, tokenizer: Any, section: schema.Backbone) -> None:
        """``tokenizer``: the model's, whose prompts are answered. Raises ``CirfError`` where vLLM is not installed, or cannot
        load the model."""
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        try:
            import vllm
        except ImportError as error:
            raise CirfError(f"evaluate.engine: vllm is not installed ({error}); pip install 'cirf[vllm]'") from None
        from transformers import AutoConfig, GenerationConfig

        config = AutoConfig.from_pretrained(source, trust_remote_code=section.trust_remote_code)
        length = min(LONGEST, getattr(config.get_text_config(), "max_position_embeddings", None) or LONGEST)
        try:
            own = GenerationConfig.from_pretrained(source)
        except OSError:
            own = None
        if world_size() > 1:
            raise CirfError("evaluate.engine: vllm divides the work itself; start `cirf run` as one process")
        self._length = length
        self.version = f"vLLM {vllm.__version__}"
        self._sampling = vllm.SamplingParams
        self._tokenizer = tokenizer
        self._stops = stop_ids(_Ending(own), tokenizer)
        try:
            self._engine = vllm.LLM(
                str(source),
                dtype=section.dtype,
                load_format="safetensors",  # else pickles, where it finds no safetensors
                max_model_len=length,
                trust_remote_code=section.trust_remote_code,
                generation_config="vllm",  # no sampling settings or penalties of the model's own
            )
        except Exception as error:  # vLLM raises errors of many kinds, with the reason in its log
            raise CirfError(
                f"{source}: vLLM cannot load this model ({_line(error)}); use evaluate.engine: transformers"
            ) from None

    def generate(
        self, prompts: Sequence[str], cap: int, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0
    ) -> list[Output]:
        """Outputs of rendered prompts, in their order; the arguments are those of `cirf.lm.decoding.generate.generate`.

        Raises:
            CirfError: a prompt leaves no room for an answer of ``cap`` tokens.
        """
        how = [
            self._sampling(
                temperature=temperature,
                top_p=top_p,
                max_tokens=cap,
                stop_token_ids=self._stops,
                skip_special_tokens=False,
                seed=seed_of(draw(seed, prompt, NO_VOTE)) % 2**31 if temperature > 0 else None,
            )
            for prompt in prompts
        ]
        given = [{"prompt_token_ids": encode(self._tokenizer, prompt)} for prompt in prompts]
        longest = max((len(one["prompt_token_ids"]) for one in given), default=0)
        if longest + cap > self._length:
            raise CirfError(
                f"a prompt of {longest:,} tokens and an answer of up to {cap:,} are more than the {self._length:,} that vLLM is "
                "started with; use evaluate.engine: transformers"
            )
        try:
            made = self._engine.generate(given, how, use_tqdm=False)
        except ValueError as error:
            raise CirfError(f"vLLM refuses a prompt ({_line(error)}); use evaluate.engine: transformers") from None
        return [output_of(self._tokenizer, list(one.outputs[0].token_ids), self._stops) for one in made]

    def close(self) -> None:
        """End the engine's processes and free its memory."""
        self._engine.llm_engine.engine_core.shutdown()


@contextlib.contextmanager
def engine(source: Path | str, tokenizer: Any, section: schema.Backbone) -> Iterator[VllmEngine]:
    """An engine while the context lasts."""
    made = VllmEngine(source, tokenizer, section)
    try:
        yield made
    finally:
        made.close()


class _Ending:
    """What `stop_ids` reads of a model."""

    def __init__(self, generation_config: Any) -> None:
        self.generation_config = generation_config


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
