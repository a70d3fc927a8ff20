"""``cirf push``: what is sent and how, to a hub on this machine that speaks the protocol; and all that is never sent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import yaml
from hub import TOKEN, Hub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")  # of the hub's own library


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, its address and a token where the hub's library looks for them."""
    from huggingface_hub import constants

    with Hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield running


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def document(*arguments: str | Path) -> Any:
    said = tinyrun.cirf("push", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def front(card: str) -> Any:
    return yaml.safe_load(card.split("---\n")[1])


def test_a_model_arrives_whole_private_and_loads(run: Path, hub: Hub, tmp_path: Path) -> None:
    summary = document(run, "--to", "me/tiny")
    there = hub.files["models/me/tiny"]
    assert hub.private == {"models/me/tiny": True} and hub.commits == 1
    assert summary["url"].startswith(f"{hub.url}/me/tiny/commit/") and summary["pushed"]
    assert {row["name"]: row["bytes"] for row in summary["files"]} == {name: len(data) for name, data in there.items()}
    folder = run / "models" / "cirf_full"
    assert {*there, *summary["left_out"]} == {path.name for path in folder.iterdir()}
    assert set(summary["left_out"]) == {"sft.jsonl", "timings.json"}
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"):
        assert there[name] == (folder / name).read_bytes()
    assert b'from_pretrained("me/tiny")' in there["README.md"] and b"vllm serve me/tiny" in there["README.md"]
    assert str(run.parent).encode() not in b"".join(there.values())

    for name, data in there.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(data)
    answers = [tinyrun.cirf("ask", place, "How many?", "--json") for place in (run / "models" / "cirf_full", tmp_path / "got")]
    here, elsewhere = [json.loads(said.out) | {"seconds": 0} for said in answers]
    assert here == elsewhere and here["output"]


def test_what_is_there_is_replaced_and_who_sees_it_is_not_changed_unasked(run: Path, hub: Hub) -> None:
    document(run, "--to", "me/tiny", "--public")
    assert hub.private == {"models/me/tiny": False}
    said = tinyrun.cirf("push", run, "--to", "me/tiny").error()
    assert "is public; give --public" in said and hub.commits == 1
    document(run, "--to", "me/tiny", "--public")
    assert hub.commits == 2 and hub.private == {"models/me/tiny": False}


def test_a_dry_run_lists_and_shows_and_asks_nobody(run: Path, hub: Hub) -> None:
    summary = document(run, "--to", "me/tiny", "--dry-run")
    assert not summary["pushed"] and "url" not in summary and summary["visibility"] == "private" and not hub.seen
    card = summary["card"]
    assert front(card)["library_name"] == "transformers" and "## Data and licences" in card
    said = tinyrun.cirf("push", run, "--to", "me/tiny", "--dry-run")
    assert said.code == 0 and card in said.out and "\nmodel.safetensors " in said.out and not hub.seen


def test_in_a_process_of_its_own_by_the_usual_environment(run: Path) -> None:
    with Hub() as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        said = tinyrun.command("push", run, "--to", "me/tiny", env=environment)
        assert said.code == 0, said.err
        assert hub.commits == 1 and "private model me/tiny: " in said.out and TOKEN not in said.out + said.err


def test_without_a_token_or_with_a_wrong_one_nothing_is_sent(run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    wrong = "hf_" + "w" * 34
    monkeypatch.setenv("HF_TOKEN", wrong)
    said = tinyrun.cirf("push", run, "--to", "me/tiny")
    assert "the hub rejects it" in said.error() and wrong not in said.out + said.err
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(run / "no-token"))
    assert "set HF_TOKEN" in tinyrun.cirf("push", run, "--to", "me/tiny").error()
    assert not hub.files


@pytest.mark.parametrize("name", ["tiny", "me/", "me/ti ny", "me/tiny/more", "/tiny", "me/a--b", "me/.tiny", "me/tiny-"])
def test_a_repository_has_an_owner_and_a_name(run: Path, name: str) -> None:
    assert f"--to {name}: expected OWNER/NAME" in tinyrun.cirf("push", run, "--to", name).error()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda model: (model / "config.json").unlink(), "neither a model's folder"),
        (lambda model: (model / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda model: (model / "tokenizer.json").unlink(), "tokenizer.json or"),
        (lambda model: (model / "README.md").unlink(), "`cirf report RUN`"),
        (lambda model: (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-9]), "truncated"),
        (lambda model: (model / "model.safetensors").write_bytes(b""), "truncated"),
        (lambda model: (model / "pytorch_model.bin").write_bytes(b"x"), "pytorch_model.bin may run code"),
        (lambda model: (model / "more").mkdir() or (model / "more" / "a.pkl").write_bytes(b"x"), "a.pkl may run code"),
        (lambda model: (model / "recipe.yaml").write_text("name: ["), "recipe.yaml"),
        (lambda model: (model / "functions.json").write_text("{"), "functions.json"),
    ],
)
def test_what_is_no_finished_model_is_refused(run: Path, hub: Hub, damage: Any, said: str) -> None:
    damage(run / "models" / "cirf_full")
    assert said in tinyrun.cirf("push", run, "--to", "me/tiny").error() and not hub.seen


def test_a_model_with_a_bit_turned_over_is_neither_pushed_nor_exported(run: Path, hub: Hub, tmp_path: Path) -> None:
    path = run / "models" / "cirf_full" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)
    said = f"{path}: not as it was written; `cirf run` makes it again"
    assert said in tinyrun.cirf("push", run, "--to", "me/tiny").error() and not hub.seen
    assert said in tinyrun.cirf("export", run, "--gguf", tmp_path / "m.gguf").error()
    assert not (tmp_path / "m.gguf").exists()


def test_of_weights_in_parts_all_must_be_there(run: Path, hub: Hub) -> None:
    from cirf.export.parcel import check_weights

    model = run / "models" / "cirf_full"
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"x": "model-00002-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00002-of-00002.safetensors is missing" in tinyrun.cirf("push", run, "--to", "me/tiny").error()
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    check_weights(model)
    index = {"weight_map": {"x": "model-00001-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks x, which model.safetensors.index.json names" in tinyrun.cirf("push", run, "--to", "me/tiny").error()


def test_local_folders_do_not_leave(run: Path, hub: Hub) -> None:
    model = run / "models" / "cirf_full"
    recipe = (model / "recipe.yaml").read_text()
    assert yaml.safe_load(recipe)["backbone"]["model"].startswith("/")
    document(run, "--to", "me/tiny")
    sent = yaml.safe_load(hub.files["models/me/tiny"]["recipe.yaml"])
    assert sent["backbone"]["model"] == "backbone" and sent["problems"]["tasks"][0]["train_file"] == "train.jsonl"
    assert (model / "recipe.yaml").read_text() == recipe


@pytest.mark.parametrize("name", ["README.md", "config.json"])
def test_a_link_to_a_file_elsewhere_is_not_shown_or_sent(run: Path, hub: Hub, tmp_path: Path, name: str) -> None:
    path = run / "models" / "cirf_full" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    for more in (("--dry-run",), ()):
        said = tinyrun.cirf("push", run, "--to", "me/tiny", *more)
        assert f"{name} is a link to a file outside of the folder" in said.error() and not said.out
    assert not hub.files
