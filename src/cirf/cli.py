"""The command line. Every command reads its arguments, calls one function and prints.

Nothing heavy is imported until a command runs, so that ``cirf --help`` is fast.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cirf import __version__
from cirf.environment import limit_spinning, limit_threads
from cirf.errors import CirfError, is_disk_full, is_lost_process
from cirf.progress import printable
from cirf.user_code import look_only

app = typer.Typer(
    name="cirf",
    help="Turn chain-of-thought into functional tokens: train, evaluate and use a model that reasons in them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

data_app = typer.Typer(help="Fetch public benchmark data, or list it.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")

OptText = str | None
OptTexts = list[str] | None
OptPath = Path | None
RecipeName = Annotated[str, Argument(help="A recipe file, or the name of a shipped one (see `cirf recipes`).")]
RunPath = Annotated[Path, Argument(help="A run's folder.")]
Sets = Annotated[OptTexts, Option("--set", metavar="A.B=C", help="Override a key of the recipe. Repeatable.")]
Data = Annotated[OptPath, Option("--data", metavar="DIR", help="Folder of benchmark data: TASK/SPLIT.jsonl, rationales/*.jsonl.")]
Out = Annotated[OptPath, Option("--out", metavar="DIR", help="The folder (default: runs/NAME, with --limit runs/NAME-limit-N).")]
Limit = Annotated[
    int | None, Option("--limit", min=1, metavar="N", help="At most N training and N test problems a task, and N codes.")
]
Until = Annotated[OptText, Option("--until", metavar="STAGE", help="The last stage (see `cirf status`) or kind, such as models.")]
Part = Annotated[
    OptText, Option("--part", metavar="PART", help="After thoughts the rationale is: auto, thoughts or explanation.")
]
Delimiter = Annotated[
    list[str] | None,
    Option("--delimiter", metavar="MARK", help="What sets thoughts off: the mark before the answer, or twice for a pair around."),
]
Columns = Annotated[OptText, Option("--columns", metavar="A=B,...", help="Columns not detected: question=exercise,answer=key.")]
Json = Annotated[bool, Option("--json", help="One JSON document on standard output.")]
TrustCode = Annotated[bool, Option("--trust-remote-code", help="Run Python code of the model or run; only if you trust it.")]
TrustDry = Annotated[bool, Option("--trust-remote-code", help="With --dry-run: run Python code of the recipe or its model.")]
AllowEnv = Annotated[
    OptTexts, Option("--allow-env", metavar="NAME", help="Environment variable that may be sent as an API key. Repeatable.")
]
Forbid = Annotated[
    OptTexts,
    Option("--forbid", metavar="CODE", help="Never write this token, or those labelled with a word. Repeatable."),
]
AtMost = Annotated[
    OptTexts, Option("--at-most", metavar="CODE=N", help="Write it, or those of a word together, at most N times. Repeatable.")
]
Tasks = Annotated[OptText, Option("--tasks", metavar="A,B", help="Names (see `cirf tasks`) or files. Default: a run's own.")]
Protocol = Annotated[str, Option("--protocol", help="quick, full, paper (docs/reference/evaluation.md) or own: the recipe's.")]
EvaluationOut = Annotated[OptPath, Option("--out", metavar="DIR", help="The folder (default: one for each set of options).")]
TestLimit = Annotated[int | None, Option("--limit", min=1, metavar="N", help="At most N test problems a task.")]
Methods = Annotated[OptTexts, Option("--method", help="A method (see `cirf methods`), or one of a run's. Repeatable.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress on standard error.")]


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _share_cores(quiet: bool) -> None:
    line = limit_threads(os.environ)  # before torch is imported
    if line is not None and not quiet:
        _say(line)


def _look_only_unless(trust: bool, tasks: str | None, sets: list[str] | None, methods: list[str] | None) -> bool:
    """Look only at a run or a model that is evaluated, unless the user trusts it by a switch or by its key, or names the file;
    returns whether it is trusted."""
    trust = trust or any(option.replace(" ", "").lower() == "backbone.trust_remote_code=true" for option in sets or [])
    look_only(trust, (tasks or "", *(sets or []), *(methods or [])))
    return trust


@app.command()
def quickstart(sets: Sets = None, out: Out = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Train and compare small models on this machine."""
    run("quickstart", sets, None, out, quiet=quiet, as_json=as_json)


@app.command()
def run(
    recipe: RecipeName,
    sets: Sets = None,
    data: Data = None,
    out: Out = None,
    limit: Limit = None,
    until: Until = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print stages, time, memory and disk; only models are fetched.")] = False,
    processes: Annotated[
        int | None, Option("--processes", min=1, metavar="N", help="With --dry-run: as one of N that train together.")
    ] = None,
    trust: TrustDry = False,
    allow_env: AllowEnv = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a recipe from data to report; run it again to resume."""
    if processes is not None and not dry_run:
        raise CirfError("--processes: only with --dry-run; to run in several processes, start them with torchrun")
    look_only(trust or not dry_run)
    _share_cores(quiet)
    from cirf.commands.run import dry, prepare, run_and_report
    from cirf.endpoints.requests import allow

    allow(allow_env or [])
    context = prepare(recipe, sets or [], data, out, limit, quiet)
    if dry_run:
        dry(context, until, as_json, processes)
    else:
        run_and_report(context, until, as_json, (lambda line: None) if quiet else _say)


@app.command()
def sweep(
    file: Annotated[
        OptText, Argument(help="A sweep file, or the name of a shipped one (see --list).", show_default=False)
    ] = None,
    sets: Sets = None,
    data: Data = None,
    out: Out = None,
    only: Annotated[OptTexts, Option("--only", metavar="PART", help="Run only this part. Repeatable.")] = None,
    until: Until = None,
    limit: Limit = None,
    share: Annotated[
        list[Path] | None, Option("--share", metavar="RUN", help="Also reuse stages of this run or sweep. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print which stages would be made or reused; write nothing.")] = False,
    shipped: Annotated[bool, Option("--list", help="List the sweeps that come with cirf.")] = False,
    trust: TrustDry = False,
    allow_env: AllowEnv = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a recipe with many settings; run it again to resume."""
    look_only(trust or not dry_run)
    if not (dry_run or shipped):
        _share_cores(quiet)
    from cirf.commands import list as listing
    from cirf.commands import sweep as sweeping
    from cirf.endpoints.requests import allow

    allow(allow_env or [])
    if shipped:
        listing.sweeps(as_json)
    elif file is None:
        raise CirfError("sweep: name a sweep file, or a shipped sweep (see `cirf sweep --list`)")
    else:
        options = sweeping.SweepOptions(tuple(sets or ()), data, out, tuple(only or ()), until, limit, tuple(share or ()), quiet)
        if dry_run:
            sweeping.dry(file, options, as_json)
        else:
            sweeping.sweep(file, options, as_json, (lambda line: None) if quiet else _say)


@app.command()
def status(
    folder: RunPath,
    verify: Annotated[bool, Option("--verify", help="Check every file against its hash; exit code 1 if one is damaged.")] = False,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Show a run's stages, and what a rerun would redo."""
    look_only(trust)
    from cirf.commands.show import status as show

    if not show(folder, as_json, verify):
        raise typer.Exit(1)


@app.command()
def check(
    source: Annotated[str, Argument(help="A file of your own rows, hub:ORG/NAME, a folder of benchmark data, or a recipe.")],
    columns: Columns = None,
    part: Part = None,
    delimiter: Delimiter = None,
    sets: Sets = None,
    data: Data = None,
    show: Annotated[int, Option("--show", metavar="N", min=0, help="Print the first N rows as steps, results and answer.")] = 0,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Check data before training: usable rows and speed-up."""
    look_only(trust)
    from cirf.commands.check import check as look

    look(source, sets or [], data, as_json, show, columns, part, delimiter or [])


@app.command()
def init(
    file: Annotated[
        str, Argument(metavar="FILE", help="A file of your own rows (question, answer, rationale, choices), or hub:ORG/NAME.")
    ],
    model: Annotated[
        str, Option("--model", metavar="ID", help="The language model: a hub id, a folder, or bundled:NAME.")
    ] = "bundled:qwen2.5-coder-0.5b-instruct",
    columns: Columns = None,
    part: Part = None,
    delimiter: Delimiter = None,
    data: Data = None,
) -> None:
    """Write a recipe for your own rows to standard output."""
    from cirf.commands.check import init as write

    write(file, model, data, columns, part, delimiter or [])


@app.command()
def report(folder: RunPath, trust: TrustCode = False, as_json: Json = False) -> None:
    """Write a run's report again."""
    look_only(trust)
    from cirf.commands.run import write_report

    write_report(folder, as_json)


@app.command()
def analyze(
    folder: Annotated[OptPath, Argument(metavar="RUN", help="The folder of a run or of a sweep.")] = None,
    names: Annotated[OptTexts, Argument(metavar="NAME", help="Analyses to make (default: all possible).")] = None,
    listing: Annotated[bool, Option("--list", help="List the analyses and what each needs.")] = False,
    paper: Annotated[bool, Option("--paper", help="Add the paper's values, marked as theirs.")] = False,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Make tables and figures from a run or a sweep."""
    look_only(trust)
    from cirf.commands.analyze import analyze as make
    from cirf.commands.analyze import show_analyses

    if listing:
        show_analyses(as_json)
    elif folder is None:
        raise CirfError("RUN is missing: name the folder of a run or of a sweep (or --list)")
    else:
        make(folder, names or [], paper, as_json)


@app.command()
def evaluate(
    model: Annotated[str, Argument(help="A run's folder, a model's folder, a hub id or bundled:NAME.")],
    tasks: Tasks = None,
    protocol: Protocol = "quick",
    votes: Annotated[
        OptText, Option("--votes", metavar="N,M", help="Self-consistency: vote over N sampled answers, such as 1,2,4,8.")
    ] = None,
    method: Methods = None,
    sets: Sets = None,
    data: Data = None,
    out: EvaluationOut = None,
    limit: TestLimit = None,
    trust: TrustCode = False,
    allow_env: AllowEnv = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run's methods, or any model."""
    trust = _look_only_unless(trust, tasks, sets, method)
    _share_cores(quiet)
    from cirf.commands.evaluate import EvaluateOptions
    from cirf.commands.evaluate import evaluate as run_and_report
    from cirf.endpoints.requests import allow

    allow(allow_env or [])
    run_and_report(
        EvaluateOptions(model, _listed(tasks), protocol, votes, tuple(method or ()), sets or [], data, out, limit, trust=trust),
        quiet,
        as_json,
    )


@app.command()
def probe(
    model: Annotated[str, Argument(help="A run's folder, or a model's folder.")],
    kinds: Annotated[
        str,
        Option("--probes", metavar="A,B", help="drop or shuffle the reasoning, or swap it with another question's."),
    ] = "drop,shuffle,swap",
    truncate: Annotated[
        OptText, Option("--truncate", metavar="K,L", help="Keep only the first K tokens or vectors; one probe for each number.")
    ] = None,
    results: Annotated[str, Option("--results", help="follow: results move with their tokens; keep: they stay.")] = "follow",
    tasks: Tasks = None,
    protocol: Protocol = "quick",
    method: Methods = None,
    sets: Sets = None,
    data: Data = None,
    out: EvaluationOut = None,
    limit: TestLimit = None,
    trust: TrustCode = False,
    allow_env: AllowEnv = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Perturb the reasoning and see if the answers change."""
    trust = _look_only_unless(trust, tasks, sets, method)
    _share_cores(quiet)
    from cirf.commands.evaluate import EvaluateOptions, parse_probes
    from cirf.commands.evaluate import evaluate as run_and_report
    from cirf.endpoints.requests import allow

    allow(allow_env or [])
    probes = parse_probes(kinds, truncate, results)
    named = tuple(method or ())
    options = EvaluateOptions(model, _listed(tasks), protocol, None, named, sets or [], data, out, limit, probes, trust)
    run_and_report(options, quiet, as_json)


@app.command()
def show(
    folder: RunPath,
    method: Annotated[OptText, Option("--method", help="The method whose answers to show; without it, the first.")] = None,
    task: Annotated[OptText, Option("--task", help="Only answers to this task.")] = None,
    wrong: Annotated[bool, Option("--wrong", help="Wrong answers, unparsed ones among them.")] = False,
    right: Annotated[bool, Option("--right", help="Right answers.")] = False,
    unparsed: Annotated[bool, Option("--unparsed", help="Unparsed answers.")] = False,
    truncated: Annotated[bool, Option("--truncated", help="Truncated answers.")] = False,
    item: Annotated[OptText, Option("--id", help="The answers to this question.")] = None,
    limit: Annotated[int, Option("--limit", min=1, metavar="N", help="At most N answers.")] = 10,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Browse the answers of an evaluation."""
    look_only(trust)
    from cirf.commands.show import AnswerFilter
    from cirf.commands.show import show as browse

    browse(folder, AnswerFilter(method, task, wrong, right, unparsed, truncated, item), limit, as_json)


@app.command()
def export(
    model: Annotated[Path, Argument(help="A run's folder, or with --gguf a model's.")],
    gguf: Annotated[OptPath, Option("--gguf", metavar="FILE", help="Write the model as this file, for llama.cpp.")] = None,
    kind: Annotated[str, Option("--type", help="With --gguf: number format, f32, f16, bf16 or q8_0.")] = "f16",
    trainer: Annotated[OptText, Option("--format", help="Write rows for trl, unsloth, llama-factory or axolotl.")] = None,
    out: Annotated[OptPath, Option("--out", metavar="DIR", help="With --format: the folder to write.")] = None,
    method: Annotated[str, Option("--method", help="With --format: whose rows.")] = "cirf_full",
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Write a GGUF file, or training rows for other trainers."""
    look_only(trust)
    from cirf.commands import export as exporting

    if gguf is not None and trainer is None and out is None:
        exporting.export(model, gguf, kind, as_json)
    elif trainer is not None and out is not None and gguf is None:
        exporting.rows(model, trainer, out, method, as_json)
    else:
        raise CirfError("export: name --gguf FILE (llama.cpp), or --format NAME --out DIR (training rows)")


@app.command()
def archive(
    run: Annotated[Path, Argument(help="The folder of a run or of a sweep.")],
    out: Annotated[Path, Option("--out", metavar="DIR", help="The archive's folder; an existing archive is replaced.")],
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Write a run's numbers without texts and weights.

    Two files, small enough for a repository: answers.parquet and measured.json."""
    look_only(trust)
    from cirf.commands.export import archive as write

    write(run, out, as_json)


@app.command()
def push(
    model: Annotated[Path, Argument(help="A run's folder, or a trained model's.")],
    to: Annotated[str, Option("--to", metavar="OWNER/NAME", help="The repository; created if missing.")],
    public: Annotated[bool, Option("--public", help="Make the repository public; without it, private.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="List what would be sent, show the card; send nothing.")] = False,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Send a model to the model hub."""
    look_only(trust)
    from cirf.commands.export import push as send

    send(model, to, public, dry_run, as_json)


@app.command(name="lm-eval")
def lm_eval(
    out: Annotated[Path, Argument(help="Folder to write to; the harness finds it with --include_path.")],
    tasks: Annotated[str, Option("--tasks", metavar="A,B", help="Names (see `cirf tasks`) or files to write.")],
    method: Annotated[
        str, Option("--method", help="The method whose prompt and cap to write (see `cirf methods`).")
    ] = "cirf_full",
    sets: Sets = None,
    data: Data = None,
    limit: TestLimit = None,
    as_json: Json = False,
) -> None:
    """Write tasks for lm-evaluation-harness and inspect_ai."""
    from cirf.commands.export import lm_eval as write

    write(out, _listed(tasks), method, sets or [], data, limit, as_json)


@app.command()
def ask(
    model: Annotated[Path, Argument(help="A run's folder, or that of a model trained by cirf.")],
    question: Annotated[str, Argument(help="The question.")],
    choice: Annotated[OptTexts, Option("--choice", help="An answer option of the question, in order. Repeatable.")] = None,
    budget: Annotated[int | None, Option("--budget", min=0, metavar="N", help="At most N functional tokens.")] = None,
    results: Annotated[bool, Option("--results/--no-results", help="Results between functional tokens, or none.")] = True,
    forbid: Forbid = None,
    at_most: AtMost = None,
    grammar: Annotated[bool, Option("--grammar", help="Allow one trace and an answer only.")] = False,
    calculator: Annotated[bool, Option("--calculator", help="Compute the number after an equals sign.")] = False,
    stream: Annotated[
        bool | None, Option("--stream/--no-stream", help="Print while generating (default: on a terminal).")
    ] = None,
    explain: Annotated[bool, Option("--explain", help="Show each token's probability, alternatives, and example steps.")] = False,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Ask a trained model one question."""
    look_only(trust)
    from cirf.commands.ask import ask as answer
    from cirf.commands.token_limits import limits_of

    steering: dict[str, Any] = {"budget": budget, "results": results, "grammar": grammar, "calculator": calculator}
    steering["limits"] = limits_of(forbid or [], at_most or [])
    answer(model, question, choice or [], as_json, steering, stream, explain, trust)


@app.command()
def serve(
    model: Annotated[str, Argument(help="A run's folder, a model's folder, a hub id or bundled:NAME.")],
    compare: Annotated[
        OptText, Option("--compare", metavar="MODEL", help="A second model, such as one that writes prose.")
    ] = None,
    forbid: Forbid = None,
    at_most: AtMost = None,
    host: Annotated[str, Option("--host", help="Address to bind; one that other machines can reach needs a key.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", min=0, max=65535, metavar="N", help="The port; 0: a free one.")] = 8000,
    api_key_env: Annotated[
        OptText, Option("--api-key-env", metavar="NAME", help="Environment variable with the key that clients must send.")
    ] = None,
    max_batch_size: Annotated[int, Option("--max-batch-size", min=1, metavar="N", help="Most answers decoded together.")] = 32,
    max_queue_size: Annotated[
        int, Option("--max-queue-size", min=1, metavar="N", help="Most queued requests; others are refused.")
    ] = 256,
    timeout: Annotated[
        float, Option("--timeout", min=1, metavar="SECONDS", help="Longest time of a request, queue included.")
    ] = 120.0,
    trust: TrustCode = False,
    as_json: Annotated[bool, Option("--json", help="Print address and models as JSON once the server is ready.")] = False,
) -> None:
    """Serve a model: an OpenAI-compatible API and a web page."""
    look_only(trust)
    from cirf.commands.serve import serve as run_and_report
    from cirf.commands.token_limits import limits_of
    from cirf.serving.limits import Limits

    limits = Limits(batch=max_batch_size, queue=max_queue_size, seconds=timeout, answers=min(max_batch_size, Limits.answers))
    run_and_report((model, compare), limits_of(forbid or [], at_most or []), host, port, api_key_env, limits, as_json, trust)


@app.command()
def codes(
    folder: RunPath,
    text: Annotated[OptText, Argument(help="A rationale to encode; without it, the codes are listed.")] = None,
    choice: Annotated[OptTexts, Option("--choice", help="An option of its question, in order. Repeatable.")] = None,
    forbid: Forbid = None,
    at_most: AtMost = None,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """List functional tokens, or encode a rationale in them.

    With --forbid or --at-most: the vLLM request that enforces them."""
    look_only(trust)
    from cirf.commands.ask import codes as show
    from cirf.commands.ask import for_vllm
    from cirf.commands.token_limits import limits_of

    if forbid or at_most:
        if text is not None or choice:
            raise CirfError("--forbid and --at-most print what to send to vLLM; leave out the rationale")
        for_vllm(folder, limits_of(forbid or [], at_most or []))
    else:
        show(folder, text, choice or [], as_json)


@app.command()
def label(
    folder: Annotated[Path, Argument(metavar="RUN", help="A run's folder, or a model's.")],
    labels: Annotated[
        OptTexts, Argument(metavar="CODE=LABEL", help='Such as "16=divides"; "16=" restores the rule\'s label.')
    ] = None,
    endpoint: Annotated[
        OptText, Option("--endpoint", metavar="URL", help="Label by a language model: its server's URL, or local.")
    ] = None,
    model: Annotated[OptText, Option("--model", help="Its name there; with local: a hub id, a folder or bundled:NAME.")] = None,
    api_key_env: Annotated[
        OptText, Option("--api-key-env", metavar="NAME", help="Environment variable with its API key.")
    ] = None,
    trust: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Label functional tokens, by hand or by a language model."""
    look_only(trust)
    from cirf.commands.label import label as keep

    keep(folder, labels or [], endpoint, model, api_key_env, as_json)


@app.command()
def recipes(
    name: Annotated[OptText, Argument(help="Print this recipe.")] = None,
    schema: Annotated[bool, Option("--schema", help="Every key with its type, default and meaning.")] = False,
    as_json: Json = False,
) -> None:
    """List or print the shipped recipes."""
    from cirf.commands.list import recipes as show

    show(name, schema, as_json)


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the tasks."""
    from cirf.commands.list import tasks as show

    show(as_json)


DataOut = Annotated[OptPath, Option("--out", metavar="DIR", help="The folder (default: that of recipes without --data).")]


@data_app.command("get")
def data_get(
    names: Annotated[
        OptTexts, Argument(metavar="NAME...", help="Benchmarks, rationales, files or all (see `cirf data list`).")
    ] = None,
    out: DataOut = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fetch benchmarks and public rationales; run it again to resume."""
    from cirf.commands.data import get

    get(names or [], out, quiet, as_json)


@data_app.command("list")
def data_list(out: DataOut = None, as_json: Json = False) -> None:
    """List the public files with licence and source."""
    from cirf.commands.data import listing

    listing(out, as_json)


@app.command()
def methods(
    name: Annotated[OptText, Argument(help="Show this method's settings and presets; yours is a path ending in .py.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or show the settings of one."""
    from cirf.commands.list import methods as show

    show(name, as_json)


@app.command()
def env(as_json: Json = False) -> None:
    """Show versions, hardware, caches and the bundled models."""
    from cirf.commands.list import env as show

    show(as_json)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, Option("--version", help="Print the version and stop.")] = False) -> None:
    look_only(trust=True)  # commands that only look say otherwise
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; a user error ends with one line on standard error and exit code 2."""
    limit_spinning(os.environ)  # read once, when torch is imported
    try:
        app()
    except CirfError as error:
        _fail(str(error))
    except OSError as error:
        if is_disk_full(error):
            _fail(_full(error.filename))
        where = str(error.filename or "a file")
        where = where if len(where) < 200 else f"{where[:80]}..."
        _fail(f"{where}: cannot be used ({error.strerror or error}); name a place that this user may read and write")
    except Exception as error:
        if is_lost_process(error):
            _tell("another process of this run has ended (see its last output); run the same command to resume")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(2)  # a normal exit would shut down gloo, which aborts if the others are gone
        if not is_disk_full(error):
            raise
        _fail(_full(None))
    except SystemExit as stop:
        if stop.code in (130, 143):  # Ctrl-C, and a SIGTERM handled by a training
            typer.echo("cirf: stopped; run the same command to resume", err=True)
        raise


def _full(where: str | None) -> str:
    what = f" (writing {where})" if where else ""
    return f"the disk is full{what}; free some space and run the same command: finished work is kept"


def _fail(message: str) -> None:
    _tell(message)
    sys.exit(2)


def _tell(message: str) -> None:
    typer.echo(f"cirf: {printable(' '.join(message.split()))}", err=True)
