"""The README.md of a saved model, its card, with a table of the sources and licences of the data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml

from cirf import __version__
from cirf.analysis.names import NAMES
from cirf.errors import CirfError
from cirf.pictures.style import style
from cirf.report.data.measures import as_trained
from cirf.report.page import number, percent, tokens
from cirf.report.templates import template
from cirf.store.hub_names import is_hub_name, parse, short
from cirf.store.paths import without_folders
from cirf.tasks import JSONL, OWN, TASKS, get
from cirf.tasks.task import Task


class DataSource(NamedTuple):
    """A part of the data: the task or ``rationales``, where it comes from (Markdown), its licence as hubs write it (empty: not
    known), and whether it is for evaluation only."""

    name: str
    origin: str
    licence: str
    evaluation_only: bool = False


def sources(recipe: Mapping[str, Any]) -> list[DataSource]:
    """The sources of a resolved recipe's data (``model_dump(mode="json")``); files by name without folders."""
    return [*map(_task, recipe["problems"]["tasks"]), *_rationales(recipe.get("rationales") or {})]


def _of_hub(name: str) -> str:
    named = parse(name)
    address = f"[{named.id}](https://huggingface.co/datasets/{named.id})"
    return f"{address}{f' at {named.revision[:7]}' if named.revision else ''} ({named.config or 'default'}, {named.split})"


def _task(entry: Mapping[str, Any]) -> DataSource:
    task, name = entry["task"], entry.get("name") or entry["task"]
    if task == JSONL or task.endswith(OWN) or task not in TASKS:
        files = [short(entry[key]) for key in ("train_file", "test_file") if entry.get(key)]
        if files and all(map(is_hub_name, files)):
            return DataSource(name, ", ".join(map(_of_hub, files)), "")
        return DataSource(name, f"the author's own rows ({', '.join(files)})" if files else "the author's own rows", "")
    known = get(task)
    if known.hub is None:
        return DataSource(name, f"{known.title}: problems made by `cirf`", known.licence)
    hub = known.hub.id
    return DataSource(name, f"[{hub}](https://huggingface.co/datasets/{hub})", known.licence, known.evaluation_only)


def _rationales(section: Mapping[str, Any]) -> list[DataSource]:
    found = []
    if section.get("source") in ("auto", "files"):
        found = [DataSource("rationales", f"a file, {PurePath(name).name}", "") for name in section.get("files", ())]
    if section.get("source") == "teacher":
        models = dict.fromkeys(endpoint["model"] for endpoint in section["teacher"]["endpoints"])
        found = [DataSource("rationales", f"written by {without_folders(model)}", "") for model in models]
    return found or [DataSource("rationales", "the solutions that come with the problems", "as the problems")]


_HUB = {
    "bundled:smollm2-135m-instruct": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "bundled:qwen2.5-coder-0.5b-instruct": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    "bundled:qwen2.5-coder-1.5b-instruct": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
}
"""Hub ids of the bundled backbones, all Apache-2.0."""

_COMPARED = ("sft_cot", "direct_sft", "cot")  # methods that a card compares the model with


def card_from_report(
    method: str, report: Mapping[str, Any], functions: Mapping[str, Any] | None = None, latents: int = 0, guide: str | None = None
) -> str:
    """A model card in Markdown with YAML front matter. ``method`` is the model's name, such as ``cirf_full``; ``report`` is the
    dict of `cirf.report.data.collect.collect`.

    ``functions``: the model's ``functions.json``, ``None`` without functional tokens. ``latents``: latent vectors before the
    answer, which plain engines cannot compute; ``guide``: the smaller model that computes them. The text depends on the arguments
    alone, so latency is left out. Local files and models are named without folders.
    """
    trained, metrics = report["training"].get(method) or {}, report["methods"].get(method)
    recipe = as_trained(report["recipe"], trained.get("settings"), method, report["codebook"] if functions else None)
    names = [entry["task"] for entry in recipe["problems"]["tasks"]]  # a user's own task is found only by its path
    answer_cap = max(Task.cap if name == JSONL else get(name).cap for name in names) if functions else 0
    recipe = without_folders(recipe)
    delimiters = (functions or {}).get("delimiters", "cirf")
    codes = ((functions or {}).get("codes") or {}).items()
    evaluate, settings = recipe["evaluate"], recipe["variants"].get(method, {}).get("settings", {})
    cap = evaluate["max_trace_tokens"] + answer_cap if functions else evaluate["max_new_tokens"]
    opened = recipe["vocabulary"]["opening"] == "prompt"
    compared = {
        f"all, {NAMES[name]} (`{name}`)": report["methods"][name]
        for name in _COMPARED
        if name in report["methods"] and name != method and report["methods"][name]["same_questions"]
    }
    text: str = template("card.md.j2", {one.__name__: one for one in (percent, number, tokens, cell)}).render(
        front=_front(method, recipe, metrics, functional=functions is not None),
        title=style(method, [method]).title,
        base=hub_name(recipe["backbone"]["model"]),
        recipe=recipe,
        tasks=[entry.get("name") or entry["task"] for entry in recipe["problems"]["tasks"]],
        sources=sources(recipe),
        unsaid="unknown to `cirf`; ask the author",
        functions=functions,
        latents=latents,
        guide=without_folders(guide),
        start=f"<{delimiters}>",
        opened=opened,
        end=f"</{delimiters}>",
        budget=settings.get("budget"),
        form=_form(settings, functions, opened) if functions else None,
        cap=min(cap, evaluate.get("max_completion_tokens") or cap),
        metrics=metrics,
        rows={**metrics["tasks"], "**all**": metrics, **compared} if metrics else {},
        example=report["examples"].get(method),
        version=__version__,
        codes=sorted(codes, key=lambda item: (-item[1]["count"], int(item[0]))),
        facts=_facts(method, recipe, trained, functional=functions is not None)
        | _more_facts(report, [*trained.get("notes", ()), *(metrics or {}).get("caveats", ())]),
    )
    return text


def _form(settings: Mapping[str, Any], functions: Mapping[str, Any], opened: bool) -> str | None:
    """As JSON, the expression of answers steered by a method's settings; ``None`` if they are not, or it cannot say how."""
    from cirf.lm.decoding.trace_grammar import expression
    from cirf.lm.vocabulary import token_names
    from cirf.methods.cirf.cirf import FormSettings, formed

    form = FormSettings(**{key: value for key, value in settings.items() if key in FormSettings.model_fields})
    try:
        names = token_names(functions["size"], functions["delimiters"])
        return json.dumps(expression(form.steering(), names, opened)) if formed(form) else None
    except CirfError:
        return None


def hub_name(model: str) -> str:
    """A bundled model's id on the hub; another one by its name."""
    return _HUB.get(model, model)


def cell(text: str, longest: int = 110) -> str:
    """A text as a cell of a Markdown table: one line, no pipes, no markup, at most ``longest`` characters."""
    line = " ".join(text.split())
    line = line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
    return re.sub(r"([\\`*_|<>\[\]#~$])", r"\\\1", line)


def _front(method: str, recipe: Mapping[str, Any], metrics: Mapping[str, Any] | None, functional: bool) -> str:
    """The YAML between the dashes. A local backbone is named only in the text, since it has no hub id."""
    source = recipe["backbone"]["model"]
    base = hub_name(source)
    front: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    if source in _HUB:
        front["license"] = "apache-2.0"
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", base):
        front["base_model"] = base
    front["tags"] = ["cirf", "latent-reasoning", "implicit-chain-of-thought"] if functional else ["cirf", "baseline"]
    if metrics:
        results = [
            {
                "task": {"type": "text-generation"},
                "dataset": {"name": task, "type": task},
                "metrics": [{"type": "accuracy", "value": round(100 * row["accuracy"], 2), "name": _qualified(row)}],
            }
            for task, row in metrics["tasks"].items()
        ]
        front["model-index"] = [{"name": f"{recipe['name']}-{method}", "results": results}]
    return str(yaml.safe_dump(front, sort_keys=False, allow_unicode=True))


def _qualified(row: Mapping[str, Any]) -> str:
    low, high = (100 * bound for bound in row["interval"])
    shares = f"{row['truncated']:.1%} truncated, {row['unparsed']:.1%} unparsed"
    return f"accuracy in % (95 % interval {low:.1f} to {high:.1f}, n = {row['n']}, {shares})"


def _facts(method: str, recipe: Mapping[str, Any], trained: Mapping[str, Any], functional: bool) -> dict[str, str]:
    training: Mapping[str, Any] = trained.get("numbers") or {}
    own = without_folders((trained.get("settings") or {}).get("method") or {})
    tune = recipe["finetune"]
    override = {key: value for key, value in (tune["overrides"].get(method) or {}).items() if value is not None}
    tune = {**tune, **own.get("preset", {}), **override}
    adapted = f"LoRA, rank {tune['lora']['rank']}, merged" if tune["adaptation"] == "lora" else "every weight"
    epochs: float | str = training.get("epochs", tune["epochs"])  # auto is as many as the rows needed
    facts = {
        "Adaptation": "none: the backbone's weights are unchanged" if training.get("adaptation") == "frozen" else adapted,
        "Epochs": epochs if isinstance(epochs, str) else number(epochs),
        "Rows an update": number(tune["batch_size"] * tune["gradient_accumulation_steps"]),
        "Peak learning rate": f"{training.get('learning_rate', tune['learning_rate']):g} ({tune['lr_scheduler_type']})",
        "Seed": str(recipe["seed"]),
        **({"Computed in": str(training["computed_in"])} if "computed_in" in training else {}),
    }
    if reward := own.get("reward"):
        learned = f"LoRA, rank {reward['lora']['rank']}, merged" if reward["adaptation"] == "lora" else "every weight"
        facts = {"Trained by reward": "from the model of its start", "Adaptation": learned, "Seed": facts["Seed"]} | {
            "Answers an update": f"{reward['num_generations']} to each of {reward['questions']} questions",
            "Peak learning rate": f"{reward['learning_rate']:g}",
        }
    if functional:
        book = recipe["codebook"]
        kind = book["representation"].replace("_", "-")
        facts["Codebook"] = f"{book['size']} codes from {kind} embeddings of {recipe['embeddings']['model']}"
    for key, name in (("rows", "Training rows"), ("updates", "Updates"), ("target_tokens", "Target tokens an epoch")):
        if key in training:
            facts[name] = number(training[key])
    if "method" in own:
        facts = {"Method": str(own["method"])} | facts
    if own.get("settings"):
        facts["Settings of the method"] = cell(json.dumps(own["settings"], ensure_ascii=False).strip("{}"), 1000)
    return facts


def _more_facts(report: Mapping[str, Any], notes: Sequence[str]) -> dict[str, str]:
    questions = ", ".join(f"{task} {number(count)}" for task, count in report["data"]["train"].items())
    return ({"Notes": "; ".join(notes)} if notes else {}) | ({"Training questions": questions} if questions else {})
