"""The card of a data set of traces: the README.md of a model's training rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cirf.report.cards.model import card_template, hub_name
from cirf.report.cards.sources import UNSAID, licence_of, sources
from cirf.store.paths import without_folders


def traces_card(
    repository: str,
    method: str,
    recipe: Mapping[str, Any],
    rows: Sequence[Mapping[str, str]],
    end: str,
    functions: Mapping[str, Any] | None = None,
) -> str:
    """The card in Markdown with YAML front matter.

    Args:
        repository: ``OWNER/NAME`` of the rows.
        method: the method whose rows they are, such as ``cirf_full``.
        recipe: the resolved recipe as a dict (``model_dump(mode="json")``).
        rows: ``prompt`` and ``completion`` each, at least one.
        end: the text of the token that ends a turn.
        functions: the functions of the functional tokens; ``None`` for rows without them.

    The text depends on the arguments alone.
    """
    recipe = without_folders(recipe)
    origins = sources(recipe)
    written = [len(re.findall(r"<cirf_\d{3,}>", row["completion"])) for row in rows]
    delimiters = (functions or {}).get("delimiters", "cirf")
    size = (functions or {}).get("size", 0)
    codes = sorted(((functions or {}).get("codes") or {}).items(), key=lambda item: (-item[1]["count"], int(item[0])))
    text: str = card_template("traces.md.j2").render(
        front=_front(rows, licence_of(origins), functions is not None),
        repository=repository,
        method=method,
        base=hub_name(recipe["backbone"]["model"]),
        book=f"{recipe['codebook']['representation'].replace('_', '-')} embeddings of {recipe['embeddings']['model']}",
        functions=functions,
        own=(recipe["variants"].get(method, {}).get("method") or method) == "cirf_self",
        start=f"<{delimiters}>",
        opened=all(row["prompt"].endswith(f"<{delimiters}>") for row in rows),
        close=f"</{delimiters}>",
        size=size,
        codes=codes,
        count=len(rows),
        characters=[sum(len(row[part]) for row in rows) / len(rows) for part in ("prompt", "completion")],
        written=sum(written) / len(rows),
        example=_fenced(rows[0]),
        end=end,
        sources=origins,
        unsaid=UNSAID,
    )
    return text


def _front(rows: Sequence[Mapping[str, str]], licence: str | None, functional: bool) -> str:
    """The YAML between the dashes; without a licence if there is no single one."""
    import yaml

    front: dict[str, Any] = {"license": licence} if licence else {}
    front["task_categories"] = ["text-generation"]
    front["size_categories"] = [_size(len(rows))]
    front["tags"] = ["cirf", "trl", "sft", *(["latent-reasoning"] if functional else [])]
    front["configs"] = [{"config_name": "default", "data_files": [{"split": "train", "path": "sft.jsonl"}]}]
    return str(yaml.safe_dump(front, sort_keys=False, allow_unicode=True))


def _size(count: int) -> str:
    """The hub's name of a size."""
    bounds = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))
    return next((name for bound, name in bounds if count < bound), "n>1M")


def _fenced(row: Mapping[str, str]) -> str:
    """A row as JSON in a fence that its content cannot close."""
    text = json.dumps(row, indent=2, ensure_ascii=False)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}"
