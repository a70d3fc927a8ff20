"""``cirf env``: what is installed together, and what cannot work."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tinyrun

from cirf.environment import SPINS, conflicts, engines, limit_spinning, limit_threads, with_large_pages


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


def test_an_engine_that_is_older_than_cirf_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conflicts()
    assert not any("cirf" in line and "vllm" in line for line in before)  # it is not installed, and need not be
    install(tmp_path, "vllm", "0.31.0")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = [line for line in conflicts() if line not in before]
    assert found.startswith("cirf ") and found.endswith(" requires vllm>=0.32: 0.31.0 is installed")


def test_the_command_lists_them() -> None:
    said = tinyrun.cirf("env", "--json")
    assert said.code == 0 and isinstance(json.loads(said.out)["conflicts"], list)
    assert "conflicts:" in tinyrun.cirf("env").out


@pytest.mark.parametrize("metadata", ["", None, "Metadata-Version: 2.1\nName: vllm\n"])
def test_a_package_without_a_version_is_damaged(metadata: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conflicts()
    (about := tmp_path / "vllm-0.32.0.dist-info").mkdir()
    if metadata is not None:
        (about / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    assert engines()["vllm"] == "of unknown version"
    assert [line for line in conflicts() if line not in before] == [
        "vllm: its metadata has no version, so it is damaged; install it again"
    ]


def test_a_requirement_without_a_version_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conflicts()
    install(tmp_path, "vllm", "0.32.0", "broken-one>=2")
    (tmp_path / "broken_one-3.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = [line for line in conflicts() if line not in before]
    assert line.startswith("broken-one: its metadata has no version")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('raise OSError("libcudart.so.13: cannot open shared object file\\nmore")', "libcudart.so.13: cannot open shared object"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("def broken(:", "invalid syntax"),
        ("", "has no attribute"),
    ],
)
def test_a_pytorch_that_cannot_be_imported_is_named(code: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), tinyrun.ENVIRONMENT["PYTHONPATH"]])
    found = tinyrun.command("env", env={"PYTHONPATH": path})
    assert found.code == 0 and not found.err, found
    (line,) = [line for line in found.out.splitlines() if line.startswith("  torch ") and "install it again" in line]
    assert said in line and " cannot be imported (" in line
    assert "unknown: torch" in found.out


def test_packages_that_our_models_are_used_with_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("inspect_ai", "openai", "xllamacpp", "llama_cpp_python"):
        install(tmp_path, name, "1.2")
    monkeypatch.syspath_prepend(tmp_path)
    assert {name: engines()[name] for name in ("inspect-ai", "openai", "xllamacpp", "llama-cpp-python")} == {
        "inspect-ai": "1.2", "openai": "1.2", "xllamacpp": "1.2", "llama-cpp-python": "1.2",
    }  # fmt: skip


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


# Threads are for the cores that other processes leave free, unless the user decided it


def count(file: Path, *busy: int, looks: int = 1) -> None:
    """The system's file of ticks, after processes used each core for so many of 1,000 ticks, some times over."""
    lines = [f"cpu{core} {looks * used} 0 {looks * 300} {looks * (700 - used)} 0 0 0 0 0 0" for core, used in enumerate(busy)]
    file.write_text("\n".join(["cpu  1 2 3 4", *lines, "", "intr 5"]))


@pytest.mark.parametrize(
    ("used", "threads"),
    [((0, 0), None), ((400, 0), None), ((700, 0), "1"), ((500, 500), "1"), ((700, 700), "1"), ((700, 700, 600, 0), "2")],
)
def test_only_free_cores_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: tuple[int, ...], threads: str | None
) -> None:
    cores = tmp_path / "stat"
    count(cores, *used, looks=0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(len(used))), raising=False)
    looks = itertools.count(1)
    monkeypatch.setattr("time.sleep", lambda seconds: count(cores, *used, looks=next(looks)))
    environment = {"A": "1"}
    sentence = limit_threads(environment, cores=cores)
    assert environment.get("OMP_NUM_THREADS") == threads
    assert (sentence is None) == (threads is None)
    if sentence is not None:
        busy = f"other processes use {sum(used) / 1000:.1f}"
        assert sentence.startswith(f"computing with {threads} of {len(used)} cores, since {busy}")


def test_cores_that_the_process_may_not_use_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tmp_path / "stat"
    cores.write_text("cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {1, 2}, raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: count(cores, 700, 0, 0))
    assert limit_threads({}, cores=cores) is None


def test_a_process_that_ends_meanwhile_takes_no_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tmp_path / "stat"
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    counts = iter(["cpu0 700 0 0 300\ncpu1 0 0 0 1000", "cpu0 800 0 0 1200\ncpu1 0 0 0 2000"])
    cores.write_text("cpu0 0 0 0 0\ncpu1 0 0 0 0")
    monkeypatch.setattr("time.sleep", lambda seconds: cores.write_text(next(counts)))
    assert limit_threads({}, cores=cores) is None
    assert next(counts, None) is None


@pytest.mark.parametrize("command", ["run", "evaluate", "sweep", "probe"])
def test_commands_that_compute_say_that_cores_are_busy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    monkeypatch.setattr("cirf.cli.limit_threads", lambda environment: "computing with 1 of 2 cores")
    missing = tmp_path / "missing.yaml"
    assert tinyrun.cirf(command, missing).err.startswith("computing with 1 of 2 cores\n")
    assert "computing" not in tinyrun.cirf(command, missing, "--quiet").err


def test_a_number_of_threads_that_the_user_set_stays(tmp_path: Path) -> None:
    environment = {"OMP_NUM_THREADS": "8"}
    assert limit_threads(environment) is None and environment == {"OMP_NUM_THREADS": "8"}
    assert limit_threads({}, cores=tmp_path / "missing") is None, "no such count on this system"


# glibc asks for large pages where the system gives them to processes that ask, unless the user decided it


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    file = tmp_path / "enabled"
    file.write_text("always [madvise] never\n")
    return file


def test_large_pages_are_asked_for_next_to_other_settings(pages: Path) -> None:
    started = with_large_pages({"A": "1", "GLIBC_TUNABLES": "glibc.malloc.check=1"}, pages)
    assert started is not None and started["A"] == "1"
    assert started["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    assert with_large_pages(started, pages) is None
    assert with_large_pages(started | {"GLIBC_TUNABLES": ""}, pages) is None, "a setting that gets lost is no endless loop"


@pytest.mark.parametrize("mine", [{"CIRF_LARGE_PAGES": "0"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}])
def test_what_the_user_set_about_pages_stays(pages: Path, mine: dict[str, str]) -> None:
    assert with_large_pages(mine, pages) is None


@pytest.mark.parametrize("setting", ["[always] madvise never", "always madvise [never]", None])
def test_a_restart_that_would_change_nothing_is_left_out(pages: Path, setting: str | None) -> None:
    pages.unlink()
    if setting is not None:
        pages.write_text(setting)
    assert with_large_pages({}, pages) is None


@pytest.mark.parametrize(
    ("program", "own"), [(["-m", "cirf"], True), (["-c", "import runpy; runpy.run_module('cirf', run_name='__main__')"], False)]
)
def test_the_command_starts_once_more_with_its_arguments_and_no_other_program_does(
    tmp_path: Path, program: list[str], own: bool
) -> None:
    started = tmp_path / "started"
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nopen({str(started)!r}, 'a').write(os.environ.get('GLIBC_TUNABLES', 'unset') + '\\n')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("CIRF_LARGE_PAGES", "GLIBC_TUNABLES")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tmp_path), environment.get("PYTHONPATH"))))
    again = own and with_large_pages(environment) is not None  # not on every system
    command = [sys.executable, "-W", "error", *program, "methods", "no such method"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "no such method" in done.stderr
    assert started.read_text().split() == ["unset", *(["glibc.malloc.hugetlb=1"] if again else [])]


def test_the_container_is_built_from_what_is_there() -> None:
    root = Path(__file__).parents[1]
    lines = (root / "Dockerfile").read_text(encoding="utf-8").splitlines()
    ignored, *kept = (root / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert ignored == "*" and sorted(copied) == sorted(name.removeprefix("!") for name in kept)
    assert all((root / name).exists() for name in copied)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {project["readme"], "LICENSE", *project.get("license-files", [])}
    assert needed <= set(copied)  # without them the package is not built
    arguments = dict(line.removeprefix("ARG ").split("=", 1) for line in lines if line.startswith("ARG "))
    assert arguments["TORCH"] in (root / "constraints.txt").read_text(encoding="utf-8").split()
    assert set(arguments["EXTRAS"].split(",")) <= set(project["optional-dependencies"])
