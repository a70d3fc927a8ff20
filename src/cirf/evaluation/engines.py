"""Who answers an evaluation instead of transformers: a model on an OpenAI-compatible server, or vLLM in this process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.distributed import world_size
from cirf.endpoints.fleet import ask
from cirf.endpoints.requests import Answer, Request
from cirf.errors import CirfError
from cirf.lm.decoding.generate import Output, output_of
from cirf.lm.decoding.sampling import NO_VOTE, draw, seed_of
from cirf.lm.prompt import encode, stop_ids, unloaded
from cirf.progress import SILENT, Progress
from cirf.recipe import schema
from cirf.store.files import RowLog
from cirf.user_code import may_run


@dataclass(frozen=True, slots=True)
class ServedOutput:
    """The output of a server's model. ``tokens`` as the server counts them, with reasoning. ``failed``: why there is no
    answer."""

    text: str
    tokens: int
    truncated: bool
    failed: str = ""


def asker(
    section: schema.Evaluate, name: str, log: RowLog, seed: int, closing: str | None, progress: Progress = SILENT
) -> Callable[..., list[ServedOutput]]:
    """A function of users' turns, a cap in tokens and the number of a run, or one number a turn where these are votes, which
    gives one output a turn, in order.

    Answers are kept in ``log``: a stopped evaluation requests only missing ones. A question that the server refuses,
    or does not answer after all retries, has an empty output, up to the share ``section.max_unanswered_share`` of the turns. An
    endpoint's own cap replaces the given one.
    ``closing``: the delimiter by which the reasoning and the answer, which servers return apart, are joined again; ``None``: the
    reasoning is thoughts, which begin the output as ``<think>...</think>``; empty: it is left out.

    ``CirfError``: as `cirf.endpoints.fleet.ask` does, for too many questions without an answer, or where a server does not count
    tokens.
    """
    endpoint, said = section.endpoints[name], set[str]()
    patience = {"max_retries": endpoint.max_retries, "timeout": endpoint.timeout}
    asked, own_cap = schema.RequestSettings(endpoints=(endpoint,), unanswered="drop", **patience), section.served_cap(name)

    def request(turn: str, cap: int, run: int) -> Request:
        own = hashlib.sha256(f"{seed}/{run}/{turn}".encode()).digest()
        number = int.from_bytes(own[:4], "big") >> 1 if section.temperature > 0 else seed
        return Request(endpoint.model, (("user", turn),), number, section.temperature, section.top_p, cap)

    def output(answer: Answer) -> ServedOutput:
        if answer.tokens is None:
            raise CirfError(f"{endpoint.url}: its answers have no token count (usage.completion_tokens)")
        return ServedOutput(_joined(answer, closing), answer.tokens, answer.finish == "length")

    def generate(turns: Sequence[str], cap: int, run: int | Sequence[int]) -> list[ServedOutput]:
        numbers = [run] * len(turns) if isinstance(run, int) else run
        requests = [request(turn, own_cap or cap, number) for turn, number in zip(turns, numbers, strict=True)]
        answers, refused = ask(requests, asked, log, progress, f"{name} at {endpoint.url}", said)
        if sum(each.key in refused for each in requests) > section.max_unanswered_share * len(requests):
            raise CirfError(
                f"{endpoint.url}: {len(refused):,} of {len(requests):,} requests were not answered (the last: "
                f"{next(reversed(refused.values()))}); the received answers are kept: check the server, then run the same "
                "command again, or raise evaluate.max_unanswered_share to count them as wrong"
            )
        failed = {key: ServedOutput("", 0, False, why) for key, why in refused.items()}
        return [failed.get(each.key) or output(answers[each.key]) for each in requests]

    return generate


def _joined(answer: Answer, closing: str | None) -> str:
    """The whole output. Reasoning without content has no closing delimiter; a closed one without an answer looks the same."""
    if not answer.reasoning or closing == "":
        return answer.text
    start, end = ("<think>", "</think>\n\n") if closing is None else ("", closing)
    return start + answer.reasoning + (end + answer.text if answer.text else "")


LONGEST = 8192
"""Most tokens of a prompt and its answer, unless the model has fewer: vLLM keeps memory for one sequence of this length."""


def check_vllm() -> None:
    """``CirfError`` where vLLM is not installed, or this is one of several processes; vLLM is not imported."""
    if importlib.util.find_spec("vllm") is None:
        raise CirfError("evaluate.engine: vllm is not installed; pip install 'cirf[vllm]', or use evaluate.engine: transformers")
    if world_size() > 1:
        raise CirfError("evaluate.engine: vllm divides the work itself; start `cirf run` as one process")


class VllmEngine:
    """A saved model in vLLM. Its outputs are those of `cirf.lm.decoding.generate.generate`, except where two tokens are as likely
    but for rounding."""

    def __init__(self, source: Path | str, tokenizer: Any, section: schema.Backbone, steering: Path | None = None) -> None:
        """``tokenizer``: the model's, whose prompts are answered. ``steering``: a file of pickled logits processors that
        steer the answers (`cirf.evaluation.vllm_steering`). Raises ``CirfError`` where vLLM is not installed, or cannot load
        the model."""
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        check_vllm()
        try:
            import vllm
        except ImportError as error:
            raise CirfError(f"evaluate.engine: vllm cannot be imported ({error}); pip install 'cirf[vllm]'") from None
        from transformers import AutoConfig

        own_code = may_run(section.trust_remote_code)
        config = AutoConfig.from_pretrained(source, trust_remote_code=own_code)
        length = min(LONGEST, getattr(config.get_text_config(), "max_position_embeddings", None) or LONGEST)
        self._length = length
        self.version = f"vLLM {vllm.__version__}"
        self._sampling = vllm.SamplingParams
        self._tokenizer = tokenizer
        self._stops = stop_ids(unloaded(str(source)), tokenizer)
        self._steered = {} if steering is None else {"cirf_steering": str(steering)}
        if steering is not None:  # vLLM's newer runner, the default on GPUs, has another interface of logits processors
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        try:
            self._engine = vllm.LLM(
                str(source),
                dtype=section.dtype,
                load_format="safetensors",  # else pickles, where it finds no safetensors
                max_model_len=length,
                trust_remote_code=own_code,
                generation_config="vllm",  # no sampling settings or penalties of the model's own
                logits_processors=["cirf.evaluation.vllm_steering:Steered"] if steering else None,
            )
        except Exception as error:  # vLLM raises errors of many kinds, with the reason in its log
            raise CirfError(f"{source}: vLLM cannot load the model ({_line(error)}); use evaluate.engine: transformers") from None

    def generate(
        self,
        prompts: Sequence[str],
        cap: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        votes: Sequence[int] | None = None,
    ) -> list[Output]:
        """Outputs of rendered prompts, in their order; the arguments are those of `cirf.lm.decoding.generate.generate`.
        ``votes``: the number of each answer where prompts repeat, as in `cirf.lm.decoding.generate.sample_many`.
        ``CirfError``: a prompt leaves no room for an answer of ``cap`` tokens."""
        numbers = [NO_VOTE] * len(prompts) if votes is None else votes
        how = [
            self._sampling(
                temperature=temperature,
                top_p=top_p,
                max_tokens=cap,
                stop_token_ids=self._stops,
                skip_special_tokens=False,
                seed=seed_of(draw(seed, prompt, number)) % 2**31 if temperature > 0 else None,
                extra_args=self._steered,
            )
            for prompt, number in zip(prompts, numbers, strict=True)
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


def steers(processors: Sequence[Any]) -> bool:
    """Whether vLLM can steer by these logits processors: rows of its batches are not of one length."""
    return all(hasattr(processor, "ragged") for processor in processors)


@contextlib.contextmanager
def engine(source: Path | str, tokenizer: Any, section: schema.Backbone, processors: Sequence[Any] = ()) -> Iterator[VllmEngine]:
    """An engine while the context lasts, whose answers are steered by fresh logits processors (see `steers`)."""
    with tempfile.TemporaryDirectory(prefix="cirf-") as scratch:
        steering = Path(scratch, "steering.pickle") if processors else None
        if steering is not None:  # its engine is another process
            steering.write_bytes(pickle.dumps(list(processors)))
        made = VllmEngine(source, tokenizer, section, steering)
        try:
            yield made
        finally:
            made.close()


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
