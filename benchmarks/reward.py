"""Training by reward with cirf and with TRL's `GRPOTrainer`, alternating, each in its own process.

    cirf run reward-toy --out RUN --until models/cirf_full
    python -m benchmarks.reward RUN [--method by_reward] [--questions 8] [--answers 8] [--updates 4] [--rounds 3] [--threads N]

Needs TRL in the same environment (`make engines`). Both sides start from the same model, read the same questions and have the
same number of answers, cap, temperature, adapters, loss and optimiser, in float32 on the CPU. A made reward, which differs
among the answers to a question, lets every question be learned from. TRL samples by `generate` of transformers.

The speed is that of whole updates, sampling and gradients together, in sampled tokens a second, without the first update. The
last line is JSON; a ratio above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.finetuning import interval, run_child

Settings = dict[str, Any]


def made_reward(ids: Sequence[int]) -> float:
    """A reward that different answers to a question hardly ever share."""
    return sum((place + 1) * token for place, token in enumerate(ids)) % 1000 / 1000


def ours(settings: Settings) -> list[tuple[float, int]]:
    """Seconds since the start and tokens sampled so far, at the end of each update."""
    from cirf.lm import backbone
    from cirf.lm.training.reward import Questions, RewardTraining
    from cirf.progress import Progress
    from cirf.recipe.schema import Backbone, Finetune, Lora, Reward
    from cirf.stages.rewards import for_trl

    source, rows, _ = for_trl(settings["run"], settings["method"])
    how = Reward(
        max_steps=settings["updates"],
        questions=settings["questions"],
        num_generations=settings["answers"],
        draws=1,
        max_fall=None,
        min_entropy=0.0,
        lora=Lora(rank=settings["rank"], alpha=2 * settings["rank"]),
        learning_rate=settings["learning_rate"],
        warmup_steps=0,
        save_steps=10**6,
    )
    lm = Backbone(dtype="float32")
    tokenizer = backbone.load_tokenizer(source, lm)
    model, policy = backbone.load_model(source, lm, training="lora"), backbone.load_model(source, lm)
    found: list[tuple[float, int]] = []
    sampled = 0

    def judge(place: int, output: Any) -> tuple[float, bool]:
        nonlocal sampled
        sampled += len(output.ids)
        return made_reward(output.ids), False

    class Clock(Progress):
        @contextlib.contextmanager
        def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Any]:
            yield lambda count, note="": found.append((time.perf_counter(), sampled))

    questions = Questions([row["prompt"] for row in rows], judge, [], judge, settings["cap"])
    training = RewardTraining(model, policy, tokenizer, questions, how, Finetune(bf16=False), 1)
    with tempfile.TemporaryDirectory() as work:
        training.run(Path(work), Clock(), "benchmark")
    return found


def peer(settings: Settings) -> list[tuple[float, int]]:
    """The same by TRL."""
    import torch
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from cirf.stages.rewards import for_trl

    source, rows, _ = for_trl(settings["run"], settings["method"])
    found: list[tuple[float, int]] = []
    sampled = 0

    def reward(completion_ids: Sequence[Sequence[int]], **more: Any) -> list[float]:
        nonlocal sampled
        sampled += sum(map(len, completion_ids))
        return [made_reward(ids) for ids in completion_ids]

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **keys: Any) -> None:
            found.append((time.perf_counter(), sampled))

    size = settings["questions"] * settings["answers"]
    with tempfile.TemporaryDirectory() as work:
        config = GRPOConfig(
            output_dir=work,
            num_generations=settings["answers"],
            per_device_train_batch_size=size // settings["passes"],
            gradient_accumulation_steps=settings["passes"],
            max_completion_length=settings["cap"],
            max_steps=settings["updates"],
            learning_rate=settings["learning_rate"],
            loss_type="dr_grpo",
            scale_rewards="none",
            beta=0.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=1,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        adapters = LoraConfig(r=settings["rank"], lora_alpha=2 * settings["rank"], target_modules="all-linear")
        data = Dataset.from_list(rows)
        GRPOTrainer(model, reward, config, train_dataset=data, peft_config=adapters, callbacks=[Watch()]).train()
    return found


SIDES: dict[str, Callable[[Settings], list[tuple[float, int]]]] = {"ours": ours, "TRL": peer}


def speed(found: Sequence[Sequence[float]]) -> float:
    """Sampled tokens a second, without the first update."""
    (began, before), (ended, after) = found[0], found[-1]
    return (after - before) / (ended - began)


def main() -> None:
    """Run both sides in turns, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="by_reward", help="a variant of the run that has `reward`")
    parser.add_argument("--questions", type=int, default=8, help="of an update")
    parser.add_argument("--answers", type=int, default=8, help="to a question")
    parser.add_argument("--cap", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--passes", type=int, nargs="+", default=[1, 4], help="parts of TRL's batch; the fastest is used")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    settings = {key: str(value) if key == "run" else value for key, value in vars(options).items() if key != "only"}
    if options.only:
        side, _, passes = options.only.partition(":")
        print(json.dumps(SIDES[side](settings | {"passes": int(passes or 1)})))
        return

    def turn(side: str) -> float:
        command = [sys.executable, "-m", "benchmarks.reward", *sys.argv[1:], "--only", side]
        made = speed(run_child(command, options.threads))
        print(f"{side:8}{made:8.1f} sampled tokens/s", flush=True)
        return made

    tried = {f"TRL:{passes}": turn(f"TRL:{passes}") for passes in options.passes}
    best = max(tried, key=lambda name: tried[name])
    pairs = []
    for number in range(options.rounds):
        made = {side: turn(side) for side in ("ours", best)[:: -1 if number % 2 else 1]}
        pairs.append((made["ours"], made[best]))
    ratios = [one / other for one, other in pairs]
    summary = {
        "benchmark": "reward",
        "ours": round(statistics.median(one for one, _ in pairs), 1),
        "peer": round(statistics.median(other for _, other in pairs), 1),
        "ratio": round(statistics.median(ratios), 2),
        "interval": [round(bound, 2) for bound in interval(ratios)],
        "unit": "sampled tokens a second",
        "n": len(pairs),
        "peer_is": f"TRL {version('trl')}, {best.partition(':')[2]} passes an update",
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
