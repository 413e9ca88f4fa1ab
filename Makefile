# Two commands are all the set-up there is: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CHECKED := --quiet --no-deps --only-binary :all: --require-hashes

TESTS := $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test fast check all-tests validate audit clean

demo: $(READY)  ## Makes data, trains, scores and reports: open runs/demo/report.html.
	$(BIN)/gpo run ns2d --preset quick --out runs/demo

# Style, types and imports are checked beside the tests: a core is never idle. Both come to their end.
test: $(READY)  ## Everything continuous integration runs.
	$(MAKE) --jobs 2 --keep-going check all-tests

all-tests: $(READY)
	$(TESTS) -m "not slow"

fast: $(READY)  ## The tests that take under five minutes on two cores.
	$(TESTS) -m "not slow and not thorough"

check: $(READY)  ## Style, types and the direction of imports.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

validate: audit $(VENV)/.ready-to-validate  ## The slow validations, beside independent codes.
	$(BIN)/pytest -m slow

audit: $(READY)  ## No package is pinned or installed in a version with known holes.
	$(BIN)/python -m tests.audit

# Rebuilt only when the pins or the package's own description change. What is pinned is installed from
# wheels whose sums are those of requirements.txt. torch comes first: where a build without a GPU is at
# hand, pip would pass it over for the large one of an index, whose sums it knows before it looks. Then
# what torch needs on this platform alone, such as libraries of a GPU, which no list could name for all.
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
