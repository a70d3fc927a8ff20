"""The command line. Thin: every command reads its arguments, calls one function and prints.

Nothing heavy is imported until a command runs, so that ``cirf --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cirf import __version__
from cirf.errors import CirfError, tells_of_a_full_disk, tells_of_a_lost_process

app = typer.Typer(
    name="cirf",
    help="Turn chain-of-thought into functional tokens: train, evaluate and use a model that reasons in them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RecipeName = Annotated[str, typer.Argument(help="A recipe file, or the name of a shipped one (see `cirf recipes`).")]
RunPath = Annotated[Path, typer.Argument(help="A run's folder.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override a key of the recipe. Repeatable.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Folder of mirrored data sets: TASK/SPLIT.jsonl, rationales/*.jsonl.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The run's folder (default: runs/NAME, with --limit runs/NAME-limit-N)."),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, metavar="N", help="At most N training and N test problems a task, and one codebook of at most N."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="STAGE",
        help="Make this stage (see `cirf status`) and what it needs, no more; a kind, such as models, means all of them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model. Only for sources you trust.")
]
Int8 = Annotated[
    bool | None,
    typer.Option("--int8/--no-int8", help="Weights in eight bits, on a CPU: single answers are quicker, and may be others."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]


def _say(line: str) -> None:
    typer.echo(line, err=True)


@app.command()
def quickstart(sets: Sets = None, out: Out = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Train and compare a real CIRF model on this machine, from nothing, in minutes."""
    run("quickstart", sets, None, out, None, None, False, quiet, as_json)


@app.command()
def run(
    recipe: RecipeName,
    sets: Sets = None,
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    until: Until = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, with tokens, memory and disk; write nothing to the run.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a recipe from questions to report. Run it again to go on where it stopped."""
    from cirf.commands.running import dry, go, prepare

    context = prepare(recipe, sets or [], data, out, limit, quiet)
    if dry_run:
        dry(context, until, as_json)
    else:
        go(context, until, as_json, (lambda line: None) if quiet else _say)


@app.command()
def sweep(
    file: Annotated[
        str | None, typer.Argument(help="A sweep file, or the name of a shipped one (see --list).", show_default=False)
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Override a key of the recipe in every run. Repeatable.")
    ] = None,
    data: Data = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The sweep's folder (default: runs/NAME, with --limit runs/NAME-limit-N)."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="The runs of this part alone. Repeatable.")
    ] = None,
    until: Until = None,
    limit: Limit = None,
    share: Annotated[
        list[Path] | None,
        typer.Option("--share", metavar="RUN", help="Take finished stages over from this run or sweep too. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which stages would be made, which taken over; write nothing.")
    ] = False,
    shipped: Annotated[bool, typer.Option("--list", help="List the sweeps that come with cirf.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a recipe with many settings, each finished stage made once. Run it again to go on where it stopped."""
    from cirf.commands import listing, sweeping

    if shipped:
        listing.sweeps(as_json)
    elif file is None:
        raise CirfError("sweep: name a sweep file, or a shipped sweep (see `cirf sweep --list`)")
    else:
        asked = sweeping.Asked(tuple(sets or ()), data, out, tuple(only or ()), until, limit, tuple(share or ()), quiet)
        if dry_run:
            sweeping.dry(file, asked, as_json)
        else:
            sweeping.sweep(file, asked, as_json, (lambda line: None) if quiet else _say)


@app.command()
def status(
    folder: RunPath,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and hold it against its hash; ends with 1 where one is damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run's stages: rows, time, and what a rerun would redo."""
    from cirf.commands.standing import status as show

    if not show(folder, as_json, verify):
        raise typer.Exit(1)


@app.command()
def check(
    source: Annotated[str, typer.Argument(help="A JSONL file of your own, a folder of mirrored data sets, or a recipe.")],
    sets: Sets = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Tell, before any training, what of the data is usable and what speed-up to expect."""
    from cirf.commands.checking import check as look

    look(source, sets or [], data, as_json)


@app.command()
def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSONL file of your own: question, answer, rationale, choices.")],
    model: Annotated[
        str, typer.Option("--model", metavar="ID", help="The language model: a hub id, a folder, or bundled:NAME.")
    ] = "bundled:qwen2.5-coder-0.5b-instruct",
    data: Data = None,
) -> None:
    """Write a short recipe fitted to a file of your own, with a reason for each value: cirf init mine.jsonl > mine.yaml."""
    from cirf.commands.init import init as write

    write(file, model, data)


@app.command()
def report(folder: RunPath, as_json: Json = False) -> None:
    """Write a run's report.html and report.json anew."""
    from cirf.commands.running import write_report

    write_report(folder, as_json)


@app.command()
def analyze(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a run or of a sweep.")] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Analyses to make (default: all that can be).")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the analyses and what each needs.")] = False,
    paper: Annotated[bool, typer.Option("--paper", help="Lay the paper's values beside ours, marked as theirs.")] = False,
    as_json: Json = False,
) -> None:
    """Make the paper's tables and figures, and more, from a run or a sweep."""
    from cirf.commands.analyzing import analyze as make
    from cirf.commands.analyzing import show_analyses
    from cirf.errors import CirfError

    if listing:
        show_analyses(as_json)
    elif folder is None:
        raise CirfError("RUN is missing: name the folder of a run or of a sweep (or --list)")
    else:
        make(folder, names or [], paper, as_json)


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run's folder, a model's folder, a hub id or bundled:NAME.")],
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks",
            metavar="A,B",
            help="Names (see `cirf tasks`) or files (mine.jsonl, mytask.py). Default: a run's own.",
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="quick, full or paper (see docs/evaluation.md), or own: as --set says.")
    ] = "quick",
    votes: Annotated[
        str | None,
        typer.Option(
            "--votes", metavar="N,M", help="Also answer by the majority of so many sampled answers, such as 8 or 1,2,4,8."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="How the model is asked and read (see `cirf methods`); of a run, which to evaluate. Repeatable."
        ),
    ] = None,
    sets: Sets = None,
    data: Data = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The evaluation's folder (default: its own for each command)."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N test problems a task.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run's methods, or any saved model, on tasks of your choice. Run it again to go on where it stopped."""
    from cirf.commands.evaluating import evaluate as go

    named = tuple(name.strip() for name in tasks.split(",") if name.strip()) if tasks else ()
    go(model, named, protocol, votes, tuple(method or ()), sets or [], data, out, limit, quiet, as_json)


@app.command()
def probe(
    model: Annotated[str, typer.Argument(help="A run's folder, or a model's folder.")],
    kinds: Annotated[
        str,
        typer.Option(
            "--probes",
            metavar="A,B",
            help="What is done to thoughts, traces and pauses: drop, shuffle, swap (with another question's).",
        ),
    ] = "drop,shuffle,swap",
    truncate: Annotated[
        str | None,
        typer.Option("--truncate", metavar="K,L", help="Keep the first K of them alone, for each number."),
    ] = None,
    results: Annotated[
        str,
        typer.Option("--results", help="Results in a trace: follow (go with their functional tokens) or keep (stay in place)."),
    ] = "follow",
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks",
            metavar="A,B",
            help="Names (see `cirf tasks`) or files (mine.jsonl, mytask.py). Default: a run's own.",
        ),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="quick, full or paper (see docs/evaluation.md), or own: as --set says.")
    ] = "quick",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="How the model is asked; of a run, which to probe (default: all that can be). Repeatable."),
    ] = None,
    sets: Sets = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to write to (default: its own for each command).")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N test problems a task.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Ask whether thoughts, functional tokens or pauses do anything: perturb them, and see what becomes of the answers."""
    from cirf.commands.evaluating import probe as go

    named = tuple(name.strip() for name in tasks.split(",") if name.strip()) if tasks else ()
    go(model, kinds, truncate, results, named, protocol, tuple(method or ()), sets or [], data, out, limit, quiet, as_json)


@app.command()
def show(
    folder: RunPath,
    method: Annotated[
        str | None, typer.Option("--method", help="The method whose answers to show; without it, the first.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Answers to this task alone.")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Wrong answers, unparsed ones among them.")] = False,
    right: Annotated[bool, typer.Option("--right", help="Right answers.")] = False,
    unparsed: Annotated[bool, typer.Option("--unparsed", help="Answers that could not be read.")] = False,
    truncated: Annotated[bool, typer.Option("--truncated", help="Answers cut off at the cap.")] = False,
    item: Annotated[str | None, typer.Option("--id", help="The answers to this question.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="METHOD", help="Questions that this other method answered otherwise.")
    ] = None,
    sampled: Annotated[bool, typer.Option("--sampled", help="The sampled runs that stand beside a greedy evaluation.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most N answers.")] = 10,
    as_json: Json = False,
) -> None:
    """Browse the answers of an evaluation: question, trace, what was read, what was right."""
    from cirf.commands.showing import Wanted
    from cirf.commands.showing import show as browse

    browse(folder, Wanted(method, task, wrong, right, unparsed, truncated, item, against, sampled), limit, as_json)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a model's.")],
    gguf: Annotated[Path, typer.Option("--gguf", metavar="FILE", help="The file to write, for llama.cpp.")],
    kind: Annotated[str, typer.Option("--type", help="Number format of the matrices: f32, f16, bf16 or q8_0.")] = "f16",
    as_json: Json = False,
) -> None:
    """Write a model as one file for llama.cpp: weights, tokenizer with functional tokens, chat template."""
    from cirf.commands.exporting import export as write

    write(model, gguf, kind, as_json)


@app.command()
def archive(
    run: Annotated[Path, typer.Argument(help="The folder of a run or of a sweep.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The archive: a new folder, or one of the same recipe.")],
    as_json: Json = False,
) -> None:
    """Write the numbers of a run, or of each run of a sweep, without texts, weights and vectors: small enough for a repository,
    whole enough to go on from."""
    from cirf.commands.archiving import archive as write

    write(run, out, as_json)


@app.command()
def push(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a trained model's.")],
    to: Annotated[str, typer.Option("--to", metavar="OWNER/NAME", help="The repository; it is made where there is none.")],
    traces: Annotated[
        bool, typer.Option("--traces", help="Not the model but the rows it was trained on, as a data set.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="For everyone to see; without it the repository is private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent, show the card; send nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Send a finished model with its card, or its training rows, to the Hugging Face hub."""
    from cirf.commands.pushing import push as send

    send(model, to, traces, public, dry_run, as_json)


@app.command(name="lm-eval")
def lm_eval(
    out: Annotated[Path, typer.Argument(help="Folder to write to; the harness finds it with --include_path.")],
    tasks: Annotated[
        str, typer.Option("--tasks", metavar="A,B", help="Names (see `cirf tasks`) or files (mine.jsonl, mytask.py) to write.")
    ],
    method: Annotated[
        str, typer.Option("--method", help="Whose prompt and cap to write: the one the models are read by (see `cirf methods`).")
    ] = "cirf_full",
    choice: Annotated[
        bool, typer.Option("--choice", help="Score the likelihood of every possible answer instead of what is generated.")
    ] = False,
    sets: Sets = None,
    data: Data = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N test problems a task.")] = None,
    as_json: Json = False,
) -> None:
    """Write tasks for lm-evaluation-harness, which evaluates the saved models as they are."""
    from cirf.commands.exporting import lm_eval as write

    write(out, tuple(name.strip() for name in tasks.split(",") if name.strip()), method, choice, sets or [], data, limit, as_json)


@app.command()
def ask(
    model: Annotated[Path, typer.Argument(help="A run's folder, or a model CIRF has trained.")],
    question: Annotated[str, typer.Argument(help="The question.")],
    choice: Annotated[list[str] | None, typer.Option("--choice", help="An option, in order. Repeatable.")] = None,
    budget: Annotated[int | None, typer.Option("--budget", min=0, metavar="N", help="At most N functional tokens.")] = None,
    results: Annotated[bool, typer.Option("--results/--no-results", help="Results between functional tokens, or none.")] = True,
    grammar: Annotated[bool, typer.Option("--grammar", help="Hold the answer to the form of traces.")] = False,
    calculator: Annotated[bool, typer.Option("--calculator", help="Work out what stands behind an equals sign.")] = False,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Print while it is written (default: on a terminal).")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Of each functional token: segments, its probability, the likeliest others."),
    ] = False,
    trust: TrustCode = False,
    int8: Int8 = None,
    as_json: Json = False,
) -> None:
    """Ask a trained model: its trace with a readable label for each token, the answer, the time."""
    from cirf.commands.asking import ask as answer

    steering = {"budget": budget, "results": results, "grammar": grammar, "calculator": calculator}
    answer(model, question, choice or [], as_json, steering, stream, explain, trust, int8)


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="A run's folder, a model's folder, a hub id or bundled:NAME.")],
    beside: Annotated[
        str | None,
        typer.Option("--beside", metavar="MODEL", help="A second model to compare with, such as one that writes prose."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to answer; what other machines can reach needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 8000,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="Environment variable with the key that clients must give.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Most answers decoded together.")] = 32,
    queue: Annotated[int, typer.Option("--queue", min=1, metavar="N", help="Most answers that wait; more are refused.")] = 256,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, metavar="S", help="Longest time of a request, waiting included.")
    ] = 120.0,
    trust: TrustCode = False,
    int8: Int8 = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say address and models as JSON once requests are taken.")] = False,
) -> None:
    """Serve a trained model: an API that OpenAI's clients know, and a page to try it on."""
    from cirf.commands.serving import serve as go
    from cirf.serving.limits import Limits

    limits = Limits(batch=batch, queue=queue, seconds=seconds, votes=min(batch, Limits.votes))
    go(model, beside, host, port, key_env, limits, as_json, trust, int8)


@app.command()
def codes(
    folder: RunPath,
    text: Annotated[str | None, typer.Argument(help="A rationale to encode; without it, the codes are listed.")] = None,
    question: Annotated[str | None, typer.Option("--question", help="Its question, for question-centred codes.")] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option("--choice", help="An option of its question, in order. Repeatable. Without any: a question that has none."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List a run's functional tokens, or write a new rationale in them."""
    from cirf.commands.asking import codes as show

    show(folder, text, question, choice or [], as_json)


@app.command()
def label(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a model's.")],
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="CODE=LABEL", help='Such as "16=divides"; "16=" goes back to the rule\'s.')
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="Have a language model label all codes: its server, or local.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model there; of local a hub id, a folder or bundled:NAME.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="Environment variable with its API key.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Name functional tokens yourself, or have a language model name them; without either, show the names given."""
    from cirf.commands.labelling import label as keep

    keep(folder, labels or [], endpoint, model, key_env, as_json)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Every key with its type, default and meaning.")] = False,
    as_json: Json = False,
) -> None:
    """List the shipped recipes, or print one to start your own from."""
    from cirf.commands.listing import recipes as show

    show(name, schema, as_json)


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the tasks."""
    from cirf.commands.listing import tasks as show

    show(as_json)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this method's settings and presets. A path ending in .py is a method of your own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or show one's settings and presets."""
    from cirf.commands.listing import methods as show

    show(name, as_json)


@app.command()
def env(as_json: Json = False) -> None:
    """Show versions, hardware, caches and the bundled models."""
    from cirf.commands.listing import env as show

    show(as_json)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; a mistake of the user's ends with one line on standard error and exit code 2."""
    try:
        app()
    except CirfError as error:
        _fail(str(error))
    except OSError as error:
        if tells_of_a_full_disk(error):
            _fail(_full(error.filename))
        where = str(error.filename or "a file")
        where = where if len(where) < 200 else f"{where[:80]}..."
        _fail(f"{where}: cannot be used ({error.strerror or error}); name a place that this user may read and write")
    except Exception as error:
        if tells_of_a_lost_process(error):
            _tell("another process of this run is gone (what it printed last tells why); run the same command to go on")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(2)  # gloo, which is taken down at a usual end, aborts where the others are gone
        if not tells_of_a_full_disk(error):
            raise
        _fail(_full(None))
    except SystemExit as stop:
        if stop.code in (130, 143):  # Ctrl-C, and a SIGTERM that a training heard
            typer.echo("cirf: stopped; run the same command to go on", err=True)
        raise


def _full(where: str | None) -> str:
    what = f" (writing {where})" if where else ""
    return f"the disk is full{what}; free some space and run the same command: finished work is kept"


def _fail(message: str) -> None:
    _tell(message)
    sys.exit(2)


def _tell(message: str) -> None:
    typer.echo(f"cirf: {' '.join(message.split())}", err=True)
