PYTHON ?= python3
VENV = .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint types pytest test-ray fuzz test-versions wheel bench docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

# One virtual environment serves every target; it is renewed when its inputs change.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "installing into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --disable-pip-version-check \
		-c constraints.txt -e '.[all,dev,docs]'
	touch $@

demo: $(INSTALLED)  ## run the demonstration
	$(BIN)/python -m agents.demo

test: lint types pytest test-ray docs wheel  ## everything that CI checks

lint: $(INSTALLED)  ## style: ruff check and ruff format --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## static types: mypy
	$(BIN)/mypy

# One thread a worker: two workers would otherwise fight over two cores.
pytest: $(INSTALLED)  ## doctests and tests, without the slow ones and those on Ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not ray"

# By themselves: one Ray serves them all, and its actors need the cores.
test-ray: $(INSTALLED)  ## tests that start a local Ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/agents/q_learning tests/agents/sweeps

FUZZ_MINUTES ?= 10
fuzz: $(INSTALLED)  ## random operations, until one finds something: FUZZ_MINUTES=60
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(FUZZ_MINUTES)

wheel: $(INSTALLED)  ## build the wheel and use it in an environment without extras
	PYTHON=$(PYTHON) .ci/wheel

VERSIONS ?= torch torchrl tensordict
test-versions:  ## test the memory with other versions: VERSIONS="torch==2.13.0 ..."
	PYTHON=$(PYTHON) .ci/versions $(VERSIONS)

bench: $(INSTALLED)  ## measure the speed of memory, streams, learner and policies
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.streams
	$(BIN)/python -m benchmarks.learner
	$(BIN)/python -m benchmarks.baselines
	$(BIN)/python -m benchmarks.q_step

docs: $(INSTALLED)  ## build the documentation in .docs-build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs .docs-build/html

clean:  ## remove build products and caches; the virtual environment stays
	rm -rf .docs-build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
