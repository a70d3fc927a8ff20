"""A model's exported file in llama.cpp against plain ``generate`` of transformers, one question at a time.

    python -m benchmarks.gguf --run RUN [--method cirf_full] [--types f16,q8_0] [--rows 10] [--dtype bfloat16] [--threads 2]

Needs xllamacpp, which holds llama.cpp's own server. The questions are those of the run's evaluation, ``--rows`` of each task.
Both sides decode greedily, render the saved chat template and alternate. The table shows times and how many answers are equal
to those of the run's model in float32; 16 bits and fewer round differently. The last line is JSON for the first type; a ratio
above 1 means that llama.cpp is faster.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

_CONTEXT = 1024


def _questions(run: Path, method: str, rows: int) -> list[dict[str, Any]]:
    """The first rows of each task of an evaluation, with prompt and gold answer."""
    from cirf.store.jsonl import read_rows

    return [row for path in sorted((run / "evaluation" / method).glob("*.jsonl")) for row in read_rows(path)[:rows]]


def serve(model: Path, threads: int) -> Any:
    """llama.cpp's server of a GGUF file, until the object is deleted; ``listening_address`` is its URL."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel = str(model), _CONTEXT, 1
    settings.cpuparams.n_threads, settings.verbosity = threads, 0
    return xllamacpp.Server(settings)


def main() -> None:
    """Export, answer by both, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, type=Path)
    parser.add_argument("--method", default="cirf_full")
    parser.add_argument("--types", default="f16,q8_0")
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--cap", type=int, default=128)
    parser.add_argument("--dtype", default="bfloat16", help="of transformers' side")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    import openai
    import torch

    from cirf.cpu import number_formats
    from cirf.export.gguf import KINDS, write_gguf
    from cirf.lm import backbone
    from cirf.lm.decoding import generate as decode
    from cirf.recipe.schema import Backbone

    torch.set_num_threads(options.threads)
    model_folder = options.run / "models" / options.method
    asked = _questions(options.run, options.method, options.rows)
    tokenizer = backbone.load_tokenizer(model_folder, Backbone())
    prompts = [backbone.prompt_text(tokenizer, row["prompt"]) for row in asked]
    exact = backbone.load_model(model_folder, Backbone(dtype="float32"))
    wanted = [decode.generate_one(exact, tokenizer, prompt, options.cap).text for prompt in prompts]
    del exact
    plain = backbone.load_model(model_folder, Backbone(dtype=options.dtype))
    decode.generate_one(plain, tokenizer, prompts[0], 4)  # to warm up

    def by_transformers(place: int) -> tuple[str, int]:
        output = decode.generate_one(plain, tokenizer, prompts[place], options.cap)
        return output.text, output.tokens

    number = number_formats.computed_in(options.dtype, str(plain.device))
    sides: dict[str, Any] = {f"transformers {number}": by_transformers}
    with tempfile.TemporaryDirectory() as folder:
        for kind in [known for known in KINDS if known in options.types.split(",")]:
            path = Path(folder) / f"{kind}.gguf"
            write_gguf(model_folder, path, kind)
            server = serve(path, options.threads)
            client = openai.OpenAI(base_url=f"{server.listening_address}/v1", api_key="none")

            def by_llama(place: int, server: Any = server, client: openai.OpenAI = client) -> tuple[str, int]:
                content = backbone.sanitise(asked[place]["prompt"], tokenizer)
                made = client.chat.completions.create(
                    model="", messages=[{"role": "user", "content": content}], temperature=0.0, max_tokens=options.cap
                )
                assert made.usage is not None
                assert made.usage.prompt_tokens == len(tokenizer(prompts[place], add_special_tokens=False).input_ids)
                return made.choices[0].message.content or "", made.usage.completion_tokens

            by_llama(0)  # to warm up
            sides[f"llama.cpp {kind}"] = by_llama
        seconds, tokens = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
        texts: dict[str, list[str]] = {name: [] for name in sides}
        for place in range(len(prompts)):
            for name in list(sides)[:: 1 if place % 2 else -1]:
                started = time.perf_counter()
                text, count = sides[name](place)
                seconds[name] += time.perf_counter() - started
                tokens[name] += count
                texts[name].append(text)
    count = len(prompts)
    print(f"{model_folder}, {count} questions, {options.threads} threads")
    same = {name: sum(one == other for one, other in zip(texts[name], wanted, strict=True)) for name in sides}
    for name in sides:
        speed = tokens[name] / seconds[name]
        print(f"{name:22} {seconds[name] / count:.3f} s a question, {speed:5.1f} tokens/s, {same[name]} as in float32")
    peer, ours = list(sides)[:2]
    summary = {"benchmark": "gguf", "ours": round(seconds[ours] / count, 4), "peer": round(seconds[peer] / count, 4)}
    summary |= {"ratio": round(seconds[peer] / seconds[ours], 2), "unit": "s a question", "n": count, "type": ours.split()[-1]}
    summary |= {
        "same": sum(one == other for one, other in zip(texts[ours], wanted, strict=True)),
        "xllamacpp": version("xllamacpp"),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
