"""Kill, damage and starve runs of disk space, and compare the results with an undisturbed run.

    python -m benchmarks.chaos [--kills 100] [--damage 40] [--full] [--seed 0]

The run is small and has every kind of stage: teacher, results, two codebooks, learning-rate trials, pruned results, prepared
rows, a latent method, sampled runs, votes, probes and times. Each attempt is a fork of a process that has the libraries loaded.

- Kills: in a random stage, at a random time (SIGKILL), before a change of the disk (SIGKILL), or inside a write (the kernel ends
  the process at a limit of file size). The next attempt resumes. A finished run is compared with the undisturbed one, byte by
  byte, except for files of times and pages made from them. No written row and no finished stage may be computed twice.
- Damage: one file of a finished run loses a bit, its second half or everything. The next run must name the file and restore the
  result.
- ``--full``: the run is on an in-memory file system that fills up repeatedly and grows by a tenth each time. Each attempt must
  end with one line. Needs permission to mount.

The last line is JSON; a ratio of 1 means that nothing was lost, computed twice or left unnamed.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

sys.path.insert(0, str(File(__file__).parents[1] / "tests"))
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

KEYS: dict[str, Any] = {
    "methods": ["cirf_full", "cirf_fast", "cirf_lean", "direct_sft", "token_skip", "coconut", "cot"],
    "rationales__source": "teacher",
    "results__by": "llm",
    "codebook__sizes": [8],
    "embeddings__batch_size": 8,
    "finetune__learning_rates": [0.01, 0.003],
    "finetune__trial_epochs": 0.5,
    "finetune__save_steps": 3,
    "evaluate__sampled": {"runs": 1},
    "evaluate__voting": {"votes": [1, 3]},
    "evaluate__probes": {"kinds": ["drop", "swap"]},
    "evaluate__latency_questions": 1,
}
LOADED = (
    "accelerate",
    "cirf.commands.run",
    "cirf.lm.training.finetune",
    "cirf.lm.training.trainer",
    "cirf.report.data.collect",
    "huggingface_hub",
    "matplotlib.pyplot",
    "peft",
    "sentence_transformers",
    "sklearn.metrics",
    "tinyrun",
    "transformers.trainer",
)
CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.chmod")
UNBROKEN = "ledger-unbroken"
"""Of the undisturbed run: rows of two questions may be equal."""


@dataclass(frozen=True)
class Doom:
    """How an attempt ends in a stage: at a time (``share`` of the stage's time), at a change of the disk, or inside a write."""

    stage: str
    kind: str
    share: float


@dataclass(frozen=True)
class Usual:
    """Cost of an undisturbed stage: seconds, changes of the disk, and bytes of its largest file."""

    seconds: float
    changes: int
    largest: int


def _watched(folder: File, ledger: File, doom: Doom | None, usual: Mapping[str, Usual], summary: Any) -> None:
    """Make this process log every finished row to the ledger, announce each stage, and end as ``doom`` says."""
    from cirf.store.files import RowLog
    from cirf.store.run_folder import RunFolder, StagePlan

    append, run = RowLog.append, RunFolder.run
    changes = [0]
    last: list[int | None] = [None]

    def noted(self: RowLog, *rows: Mapping[str, Any]) -> None:
        append(self, *rows)
        log = self.path.relative_to(folder)
        made = ({name: value for name, value in row.items() if not name.endswith("seconds")} for row in rows)
        lines = [f"{log} {hashlib.sha256(json.dumps(row).encode()).hexdigest()}\n" for row in made]
        with open(ledger, "a") as file:
            file.write("".join(lines))

    def begun(self: RunFolder, plan: StagePlan) -> File:
        if not self.is_done(plan):
            summary.send((plan.name, time.perf_counter(), changes[0]))
            if doom is not None and doom.stage == plan.name:
                if doom.kind == "write":
                    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                    most = max(1, int(doom.share * usual[plan.name].largest))
                    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
                elif doom.kind == "change":
                    last[0] = changes[0] + 1 + int(doom.share * usual[plan.name].changes)
        place = run(self, plan)
        summary.send(("", time.perf_counter(), changes[0]))
        return place

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES and any(str(argument).startswith(str(folder)) for argument in arguments[:2]):
            if event == "open" and not set(str(arguments[1] or "")) & set("wa"):
                return
            changes[0] += 1
            if last[0] is not None and changes[0] >= last[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    RowLog.append, RunFolder.run = noted, begun  # type: ignore[method-assign]
    sys.addaudithook(hook)


def _live(arguments: Sequence[str], log: str, watch: tuple[Any, ...]) -> None:
    """One attempt of the command line, in a fork."""
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _watched(*watch)
    sys.argv = ["cirf", *arguments]
    from cirf.cli import main

    main()


@dataclass(frozen=True)
class Life:
    """Exit code and output of an attempt, and name, seconds and disk changes of each finished stage.

    ``missed``: the doom came too late, so the attempt was killed between two stages.
    """

    code: int
    said: str
    begun: tuple[tuple[str, float, int], ...]
    missed: bool


class Chaos:
    """A recipe, and attempts to run it."""

    def __init__(self, work: File, recipe: File, seed: int) -> None:
        self.work, self.recipe, self.draw = work, recipe, random.Random(seed)
        self._forks = multiprocessing.get_context("forkserver")
        self._forks.set_forkserver_preload(list(LOADED))

    def live(
        self, folder: File, doom: Doom | None = None, usual: Mapping[str, Usual] | None = None, ledger: str = "ledger"
    ) -> Life:
        """Run the recipe in ``folder`` to its end or its doom; if the doom comes too late, it ends before the next stage."""
        ours, theirs = self._forks.Pipe(duplex=False)
        log, usual = self.work / "log", usual or {}
        watch = (folder, self.work / ledger, doom, usual, theirs)
        process = self._forks.Process(target=_live, args=(["run", str(self.recipe), "--out", str(folder)], str(log), watch))
        process.start()
        theirs.close()
        begun: list[tuple[str, float, int]] = []
        open_stage: tuple[str, float, int] | None = None
        strike: float | None = None
        missed = False
        while True:
            wait = None if strike is None else max(0.0, strike - time.perf_counter())
            try:
                if ours.poll(wait):
                    name, at, changes = ours.recv()
                else:
                    process.kill()
                    break
            except EOFError:
                break
            if name:
                open_stage = (name, at, changes)
                if doom is not None and name == doom.stage and doom.kind == "moment":
                    strike = time.perf_counter() + doom.share * usual[name].seconds
                elif doom is not None and doom.stage in [stage for stage, _, _ in begun]:
                    process.kill()
                    missed = True
                    break
            elif open_stage is not None:
                begun.append((open_stage[0], at - open_stage[1], changes - open_stage[2]))
                open_stage = None
        process.join()
        return Life(process.exitcode or 0, log.read_text(errors="replace"), tuple(begun), missed)


def largest(folder: File) -> int:
    """Bytes of the largest file below a folder."""
    return max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=1)


def whole(folder: File) -> dict[str, str]:
    """Hashes of a run's files by name, without times, the log of answers, and files set aside."""
    import tinyrun

    found = {name: hashlib.sha256(data).hexdigest() for name, data in tinyrun.artefacts(folder).items()}
    apart = (".work/", "asked/", "environment.json")
    return {name: digest for name, digest in found.items() if not name.startswith(apart)}


def one_line(said: str) -> bool:
    """Whether a failed command printed the reason in one line, without a traceback."""
    return "Traceback" not in said and sum(line.startswith("cirf: ") for line in said.splitlines()) == 1


def kills(chaos: Chaos, count: int, usual: Mapping[str, Usual], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Kill runs ``count`` times in all, and check the result of each."""
    import tinyrun

    ended: collections.Counter[str] = collections.Counter()
    struck: collections.Counter[str] = collections.Counter()
    runs, lost, twice, last = 0, list[str](), list[str](), list(usual)[-1]
    while sum(ended.values()) < count:
        folder, ledger = chaos.work / f"killed-{runs}", f"ledger-{runs}"
        runs += 1
        for stage in usual:
            for _ in range(chaos.draw.choice((0, 1, 1, 2))):
                if sum(ended.values()) >= count:
                    break
                doom = Doom(stage, chaos.draw.choice(("moment", "change", "write")), chaos.draw.random())
                before = tinyrun.stages(folder)
                if stage in before:  # the doom before came too late
                    break
                life = chaos.live(folder, doom, usual, ledger)
                if life.missed:
                    ended["between stages"] += 1
                elif life.code == 0 and stage == last:
                    pass  # it was finished before the kill
                elif life.code >= 0:
                    lost.append(f"{doom}: ended with {life.code}: {life.said.splitlines()[-1:]}")
                else:
                    ended[{-signal.SIGKILL: doom.kind, -signal.SIGXFSZ: "write"}.get(life.code, str(life.code))] += 1
                    struck[stage] += 1
                after = tinyrun.stages(folder)
                twice += [f"{name}: made again after {doom}" for name, state in before.items() if after.get(name) != state]
        life = chaos.live(folder, ledger=ledger)
        if life.code:
            lost.append(f"run {runs}: could not be finished: {life.said.splitlines()[-1:]}")
            continue
        found = whole(folder)
        lost += [
            f"run {runs}: {name} came out different"
            for name in sorted(found.keys() | wanted)
            if found.get(name) != wanted.get(name)
        ]
        made, once = (collections.Counter((chaos.work / name).read_text().splitlines()) for name in (ledger, UNBROKEN))
        twice += [
            f"run {runs}: a row of {row.split()[0]} was made {times} times, not {max(1, once[row])}"
            for row, times in made.items()
            if times > max(1, once[row])
        ]
        if not lost:
            shutil.rmtree(folder)
    return {"kills": dict(ended), "stages": dict(struck), "runs": runs, "lost": lost, "twice": twice}


def damages(chaos: Chaos, count: int, folder: File, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Damage a file of a finished run and run again, ``count`` times."""
    import tinyrun

    left_out = (*tinyrun.TOUCHED_BY_A_CLOCK, "recipe.yaml", "README.md")
    lost, how = list[str](), collections.Counter[str]()
    for _ in range(count):
        stages = {path.parent for path in folder.rglob("stage.json") if ".work" not in path.parts}
        stage = chaos.draw.choice(sorted(stages))
        path = chaos.draw.choice(sorted(path for path in stage.rglob("*") if path.is_file() and path.name not in left_out))
        data = bytearray(path.read_bytes())
        kind = chaos.draw.choice(("bit", "half", "gone") if data else ("gone",))
        how[kind] += 1
        path.unlink()
        if kind == "bit":
            data[chaos.draw.randrange(len(data))] ^= 1 << chaos.draw.randrange(8)
        if kind != "gone":
            path.write_bytes(data if kind == "bit" else data[: len(data) // 2])
        life = chaos.live(folder)
        name = f"{kind}: {path.relative_to(folder)}"
        if life.code:
            lost.append(f"{name}: the run ended with {life.code}: {life.said.splitlines()[-1:]}")
        else:
            unsaid = f"{path}: missing or changed" not in life.said
            if unsaid and (kind != "bit" or path.name != "stage.json"):  # which may turn into the record of another stage
                lost.append(f"{name}: not named")
        if whole(folder) != wanted:
            lost.append(f"{name}: the run came out different")
    return {"damages": dict(how), "lost": lost}


def full(chaos: Chaos, wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """Run on a full disk until it is large enough; ``None`` if nothing can be mounted."""
    disk, size = chaos.work / "disk", 96 * 1024
    disk.mkdir()

    def mount(*how: str) -> bool:
        return subprocess.run(["mount", "-t", "tmpfs", *how, "none", str(disk)], capture_output=True, check=False).returncode == 0

    if os.geteuid() != 0 or not mount("-o", f"size={size}"):
        return None
    folder, lost, stages = disk / "run", list[str](), collections.Counter[str]()
    try:
        for _ in range(200):
            life = chaos.live(folder)
            if life.code == 0:
                break
            begun = [line.removesuffix(" ...") for line in life.said.splitlines() if line.endswith(" ...")]
            stages[begun[-1] if begun else "before the first"] += 1
            if (
                life.code != 2
                or not one_line(life.said)
                or not any(sign in life.said for sign in ("the disk is full", "make room"))
            ):
                lost.append(f"with {size:,} bytes the run ended with {life.code}: {life.said.splitlines()[-1:]}")
            size = int(size * 1.1)
            mount("-o", f"remount,size={size}")
        if whole(folder) != wanted:
            lost.append("the run came out different")
    finally:
        subprocess.run(["umount", str(disk)], check=False)
    return {"failures": dict(stages), "bytes": size, "lost": lost}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--damage", type=int, default=40)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import tinyrun

    faulty = tinyrun.faulty()
    with tempfile.TemporaryDirectory() as place, faulty.serve(faulty.Server(tinyrun.reply)) as server:
        work = File(place).resolve()
        endpoint = [{"url": server.url, "model": "m", "concurrency": 2}]
        keys = KEYS | {"rationales__teacher__endpoints": endpoint, "results__writer__endpoints": endpoint}
        questions = tinyrun.write_jsonl(
            work / "questions.jsonl", [{k: row[k] for k in ("question", "answer")} for row in tinyrun.sums(40)]
        )
        asked = tinyrun.write_jsonl(work / "test.jsonl", tinyrun.sums(8, seed=9, steps=2))
        house = tinyrun.Workshop(
            tinyrun.write_backbone(work / "backbone"), tinyrun.write_embedder(work / "embedder"), questions, asked
        )  # fmt: skip
        chaos = Chaos(work, house.recipe(work / "recipe.yaml", **keys), options.seed)
        unbroken = work / "unbroken"
        life = chaos.live(unbroken, ledger=UNBROKEN)
        if life.code:
            raise SystemExit(f"the unbroken run ended with {life.code}:\n{life.said}")
        usual = {name: Usual(seconds, changes, largest(unbroken / name)) for name, seconds, changes in life.begun}
        wanted = whole(unbroken)
        requests = len(server.asked)
        seconds = sum(stage.seconds for stage in usual.values())
        print(f"unbroken: {len(usual)} stages, {len(wanted)} files, {requests} requests, {seconds:.0f} s")
        found: dict[str, Any] = {}
        if options.kills:
            found["killed"] = killed = kills(chaos, options.kills, usual, wanted)
            by = ", ".join(f"{count} {kind}" for kind, count in sorted(killed["kills"].items()))
            print(
                f"killed: {sum(killed['kills'].values())} times ({by}) in {len(killed['stages'])} of {len(usual)} stages, ",
                end="",
            )
            print(f"{killed['runs']} runs; lost: {len(killed['lost'])}; made twice: {len(killed['twice'])}")
        if options.damage:
            found["damaged"] = damaged = damages(chaos, options.damage, unbroken, wanted)
            print(f"damaged: {options.damage} files ({damaged['damages']}); not mended or not named: {len(damaged['lost'])}")
        if options.full:
            found["full"] = short = full(chaos, wanted)
            if short is None:
                print("full disk: nothing can be mounted here")
            else:
                times, stages, lost = sum(short["failures"].values()), len(short["failures"]), len(short["lost"])
                print(f"full disk: {times} times in {stages} stages; lost: {lost}")
        bad = [line for part in found.values() if part for key in ("lost", "twice") for line in part.get(key, ())]
        for line in bad:
            print(f"  {line}")
    tries = options.kills + options.damage + sum((found.get("full") or {}).get("failures", {}).values())
    ratio = 1 - len(bad) / max(1, tries)
    summary = {
        "benchmark": "chaos",
        "ours": tries - len(bad),
        "peer": tries,
        "ratio": round(ratio, 4),
        "unit": "tries that lost nothing",
    }
    print(json.dumps(summary | {"n": tries, "seed": options.seed} | found))


if __name__ == "__main__":
    main()
