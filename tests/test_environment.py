"""``cirf env``: what is installed together, and what cannot work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tinyrun

from cirf.environment import SPINS, conflicts, engines, limit_spinning


def install(site: Path, name: str, version: str, *requires: str) -> None:
    """A package's metadata, as an installer leaves it."""
    about = site / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    (about / "METADATA").write_text("\n".join(lines) + "\n")


def test_an_engine_that_wants_other_versions_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conflicts()
    assert "vllm" not in engines()
    install(tmp_path, "vllm", "0.32.0", "transformers<5", "numpy", "nowhere-to-be-found>=2", 'absent; extra == "audio"')
    monkeypatch.syspath_prepend(tmp_path)
    assert engines()["vllm"] == "0.32.0"
    found = [line for line in conflicts() if line not in before]
    assert len(found) == 2
    assert found[0].startswith("vllm 0.32.0 requires transformers<5: ") and found[0].endswith("is installed")
    assert found[1] == "vllm 0.32.0 requires nowhere-to-be-found>=2: not installed"


def test_the_command_lists_them() -> None:
    said = tinyrun.cirf("env", "--json")
    assert said.code == 0 and isinstance(json.loads(said.out)["conflicts"], list)
    assert "conflicts:" in tinyrun.cirf("env").out


# How long threads spin is bounded, unless the user decided it


def test_spinning_is_bounded_where_nothing_is_set() -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    limit_spinning(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": SPINS} and int(SPINS) > 0


@pytest.mark.parametrize("mine", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_user_set_stays(mine: dict[str, str]) -> None:
    environment = dict(mine)
    limit_spinning(environment)
    assert environment == mine
