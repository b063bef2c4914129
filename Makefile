# Everything from nothing but Python, make and pip: `make demo` shows the tool, `make test` tests it.
#
# torch is installed first and pinned, so that pip never looks for a newer one. Where your index offers only the CUDA
# build and you want the small one:  make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.10 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
PIP_FLAGS ?=
TORCH := torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := build/demo
HERE := $(CURDIR)

.PHONY: help test oracle mutants styles lint demo ecosystem bench gains clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   rewrite a program, run it before and after on 2 CPU processes, print the verdict"
	@echo "make test   ruff, mypy and the whole test suite"
	@echo "make oracle 3,000 generated programs are run on a stub of FSDP1: no line that used it is passed over"
	@echo "make mutants  100 wrong migrations, made from the fixtures' right ones: each is rejected by the check that is there for it"
	@echo "make styles  each program of tests/rules in other styles: which findings are lost by that"
	@echo "make lint   ruff and mypy only"
	@echo "make ecosystem DIR=…  rewrite every repository of a folder, and compare with the table of BASE (a commit)"
	@echo "make bench  how long the tool takes, against ruff, grep and a byte scan; CORPUS=DIR adds repositories"
	@echo "make gains  what FSDP2 and each upgrade make of a small GPT, on 4 CPU processes: bytes gathered, and losses"
	@echo "make clean  remove $(VENV), build and caches"

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: Python 3.10 or newer is needed; name it with PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up $(VENV) with $$($(PYTHON) --version) (torch included: some minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) $(TORCH)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --editable '.[dev]'
	@$(BIN)/python -m compileall -q fsdp_migrate codemods
	@touch $@

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/mypy

# Those that start ranks one after the other, with the machine to themselves; the others on all cores.
RANKS := tests/checkpoints tests/parity tests/support tests/upgrades tests/verify tests/test_resume.py

test: lint
	@$(BIN)/python -m pytest $(RANKS)
	@$(BIN)/python -m pytest $(RANKS:%=--ignore=%) -n auto --dist loadfile

oracle: $(READY)
	@ORACLE=3000 $(BIN)/python -m pytest -q tests/oracle

mutants: $(READY)
	@$(BIN)/python -m tests.verify.mutants

styles: $(READY)
	@$(BIN)/python -m pytest -q -p tests.metamorphic.everywhere tests/rules

demo: $(READY)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@cp fixtures/quickstart/fsdp1/*.py $(DEMO)/
	@printf '\n%s\n\n' "== 1. What fsdp-migrate would change (rewrite --diff)"
	@cd $(DEMO) && $(HERE)/$(BIN)/fsdp-migrate rewrite --diff train.py
	@printf '\n%s\n\n' "== 2. Rewrite it"
	@cd $(DEMO) && $(HERE)/$(BIN)/fsdp-migrate rewrite train.py
	@printf '\n%s\n\n' "== 3. Does it train the same? Both programs under torchrun, 2 CPU processes"
	@cd $(DEMO) && $(HERE)/$(BIN)/fsdp-migrate check train.py --run-cpus 2

ecosystem: $(READY)
	@test -d "$(DIR)" || { echo "make: name the folder that holds the repositories with DIR=" >&2; exit 1; }
	@$(BIN)/python -m tests.corpus.table $(abspath $(DIR)) $(or $(BASE),HEAD)

bench: $(READY)
	@$(BIN)/python -m tests.bench.bench $(CORPUS)

gains: $(READY)
	@$(BIN)/python -m tests.upgrades.gains

clean:
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
