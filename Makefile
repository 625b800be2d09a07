# Needs Python 3.11 or newer and nothing else: every target makes .venv, and what it needs in it, on first use.
#
#   make demo                 record a built-in model and explain it
#   make test                 the tests;  make test TORCH=2.6.0  with another torch,  ARGS="-k copies"  some of them
#   make check                format, lint, types, layers
#   make docs                 the documentation, into site/; a broken link fails it
#   make test-real            the tests against real peers
#   make corpus               download the libraries that lint's precision is measured on, into .corpus
#   make bench                every benchmark
#   make format               rewrite the sources in the house style
#   make clean                remove .venv and everything else that was made

TORCH  ?= 2.13.0
PYTHON ?= python3
ARGS   ?=

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check

# Stamps live in .venv and go with it. The one for torch has the version in its name, so another TORCH is installed anew.
MADE    := $(VENV)/.made
TORCHED := $(VENV)/.torch-$(TORCH)
RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev

.PHONY: demo test test-real corpus check docs bench format clean FORCE
.DELETE_ON_ERROR:

demo: $(RUNTIME)
	$(BIN)/stridewise demo

# Recorder tests run in a process a file. They end profilers inside operators and annotations on purpose, and torch
# writes the end of one that is closed under a later profiler of the same process into freed memory.
RECORDER_TESTS := $(sort $(wildcard tests/recorder/test_*.py))

# Compilers leave millions of objects behind, and tests of repair look through all that there are.
COMPILER_TESTS := tests/compiled tests/checks/artefacts tests/hazards/test_compiled.py tests/hazards/test_export.py

test: $(DEV)
	$(BIN)/python -m pytest -n 2 -m "not real" --ignore=tests/recorder $(COMPILER_TESTS:%=--ignore=%) $(ARGS)
	@$(BIN)/python -m pytest -n 2 -q --no-header -m "not real" $(COMPILER_TESTS) $(ARGS) \
	    || { code=$$?; test $$code -eq 5 || exit 1; }
	@printf '%s\n' $(RECORDER_TESTS) | xargs -P 2 -I{} sh -c \
	    '$(BIN)/python -m pytest -q --no-header -m "not real" {} $(ARGS) || { code=$$?; test $$code -eq 5 || exit 1; }'

test-real: $(DEV)
	$(BIN)/python -m pytest -m real $(ARGS)

# Their wheels, unpacked and not installed: only the source is read.
CORPUS      := .corpus
CORPUS_LIST := tests/real/corpus/requirements.txt

corpus: $(CORPUS)/.made

$(CORPUS)/.made: $(CORPUS_LIST) | $(MADE)
	rm -rf $(CORPUS)
	$(PIP) download --quiet --no-deps --only-binary :all: --dest $(CORPUS)/wheels --requirement $(CORPUS_LIST)
	for wheel in $(CORPUS)/wheels/*.whl; do $(BIN)/python -m zipfile -e "$$wheel" $(CORPUS)/src; done
	@touch $@

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

bench: $(DEV)
	@set -e; for file in $(sort $(wildcard benchmarks/[!_]*.py)); do echo "== $$file"; $(BIN)/python "$$file"; done

format: $(DEV)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(CORPUS) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv that was interrupted, moved, copied from elsewhere, or whose Python is gone or too old is made anew.
ifneq ($(MAKECMDGOALS),clean)
SOUND := $(shell test -x $(BIN)/python && test -f $(BIN)/pip \
                 && $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
                 && grep -qF '$(CURDIR)/$(VENV)/bin/python' $(BIN)/pip && echo sound)
ifneq ($(SOUND),sound)
$(MADE): FORCE
endif
endif

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python %d.%d found, 3.11 or newer needed: make PYTHON=python3.12" % sys.version_info[:2])'
	$(if $(filter sound,$(SOUND)),,rm -rf $(VENV) && $(PYTHON) -m venv $(VENV))
	@touch $@

# Alone in its command: pip then takes exactly this build, and what depends on torch finds it there.
$(TORCHED): $(MADE)
	@rm -f $(VENV)/.torch-*
	$(PIP) install "torch==$(TORCH)"
	@touch $@

# torch works without numpy, but warns at its first import.
$(RUNTIME): $(TORCHED) pyproject.toml
	$(PIP) install --quiet --editable . numpy
	@touch $@

$(DEV): $(TORCHED) pyproject.toml
	$(PIP) install --quiet --editable ".[dev]"
	@touch $@ $(RUNTIME)
