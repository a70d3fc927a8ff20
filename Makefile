# make quickstart | test | lint | wheel | env: each creates the environment in .venv when it is absent or out of date.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help env quickstart test lint format recipes wheel clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := torch==2.13.0

help:
	@echo "make quickstart   train a small model and write runs/quickstart/report.html (two CPU cores, 10 to 20 minutes)"
	@echo "make test         the default suite; more: $(BIN)/pytest -m slow"
	@echo "make lint         ruff and mypy"
	@echo "make wheel        build the wheel and check that it installs"
	@echo "make recipes      bring the comments of recipes/*.yaml and sweeps/*.yaml up to date with the schema"
	@echo "make env          the environment alone: $(VENV)"

env: $(STAMP)

# torch first and alone: what comes after it then finds its requirement met and does not choose another build.
$(STAMP): pyproject.toml constraints.txt
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	    for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	        if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	            echo "making $(VENV) with $$python"; "$$python" -m venv $(VENV); break; \
	        fi; \
	    done; \
	fi; \
	if [ ! -x $(BIN)/python ]; then echo "make: no Python 3.11 or later found; install one" >&2; exit 1; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

quickstart: $(STAMP)
	$(BIN)/cirf quickstart

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# After a change of the schema's texts in recipe.py or sweep.py.
recipes: $(STAMP)
	$(BIN)/python -m cirf.recipe_text recipes/*.yaml sweeps/*.yaml

# The wheel is unpacked beside the environment and imported from there, before the source tree.
wheel: $(STAMP)
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/installed dist/*.whl
	cd build && PYTHONPATH=installed ../$(BIN)/python -c 'import cirf, cirf.recipe_io as io; \
	    assert "build/installed" in cirf.__file__, cirf.__file__; \
	    names = [name for name in io.shipped() if io.load(name)]; assert names; \
	    from cirf import sweep_io; assert all(sweep_io.load(name).points() for name in sweep_io.shipped()) and sweep_io.shipped(); \
	    from cirf import tasks; from cirf.methods.shots import shots_of; \
	    assert all(shots_of(tasks.get(name)) for name in ("gsm8k", "bbh")); \
	    print("cirf", cirf.__version__, "installs, with the recipes", *names)'

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
