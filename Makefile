# `make demo` and `make test` need no other set-up than Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHECKED := --quiet --no-deps --only-binary :all: --require-hashes

TESTS := $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test fast check all-tests test-core test-bench test-explore test-mixture validate audit clean

demo: $(READY)  ## Make data, train, score and report: open runs/demo/report.html.
	$(BIN)/gpo run ns2d --preset quick --out runs/demo

# The checks run beside the tests, so that no core is idle; neither stops the other.
test: $(READY)  ## All tests but the slow ones, and the checks: what continuous integration runs.
	$(MAKE) --jobs 2 --keep-going check all-tests

all-tests: $(READY)
	$(TESTS) -m "not slow"

fast: $(READY)  ## The method, data and training in about a minute: no long tests, one geometry each.
	$(TESTS) --fast $(addprefix tests/core/,model transforms numerics data training) tests/contracts

test-core: $(READY)  ## The tests of gpo.
	$(TESTS) -m "not slow" tests/core tests/contracts

test-bench: $(READY)  ## The tests of gpo_bench.
	$(TESTS) -m "not slow" tests/bench tests/contracts/test_models.py

test-explore: $(READY)  ## The tests of gpo_explore.
	$(TESTS) -m "not slow" tests/explore

test-mixture: $(READY)  ## The tests of gpo_mixture.
	$(TESTS) -m "not slow" tests/mixture

check: $(READY)  ## Style, types and the direction of imports.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

validate: audit $(VENV)/.ready-to-validate  ## The slow validations against independent solvers.
	$(BIN)/pytest -m slow

audit: $(READY)  ## Check that no pinned or installed package has a known vulnerability.
	$(BIN)/python -m tests.audit

# Rebuilt only when the pins or pyproject.toml change. Pinned packages are installed from wheels whose
# hashes are those of requirements.txt. torch is installed first: pip would prefer the large build of an
# index, whose hashes it knows, to a local build without a GPU. The last step also installs what torch
# needs on this platform only, such as libraries of a GPU, which no list could name for all platforms.
$(READY): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^torch==/,/[^\\]$$/p' requirements.txt > $(VENV)/torch.txt
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --dest $(VENV)/wheels $$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.txt)
	$(BIN)/python -m pip install $(CHECKED) --no-index --find-links $(VENV)/wheels --requirement $(VENV)/torch.txt
	rm -r $(VENV)/wheels
	$(BIN)/python -m pip install $(CHECKED) --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	touch $@

$(VENV)/.ready-to-validate: $(READY) requirements-validate.txt
	$(BIN)/python -m pip install $(CHECKED) --requirement requirements-validate.txt
	touch $@

clean:
	rm -rf $(VENV) runs
