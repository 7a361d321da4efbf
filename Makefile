# Two commands for everyone: `make demo` and `make test`. Each sets up .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready

.PHONY: demo test test-all test-frameworks mutants lint format bench bench-full clean

demo: $(INSTALLED)
	@echo "== core over a recorded evening of four agents"
	@$(BIN)/policyguard simulate docs/demo/trace.jsonl --policy core
	@echo
	@echo "== the same with docs/demo/policy.yaml on top: a budget for web searches"
	@$(BIN)/policyguard simulate docs/demo/trace.jsonl --policy docs/demo/policy.yaml

test: $(READY)
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile

test-all: $(READY)
	POLICYGUARD_THOROUGH=1 $(BIN)/pytest -n 2 --dist loadfile

# Each framework of agents in an environment of its own, at the newest version its extra allows.
FRAMEWORKS := langchain openai_agents pydantic_ai claude_agent_sdk google_adk strands agent_framework \
  autogen ag2 crewai llama_index smolagents litellm

test-frameworks: $(FRAMEWORKS:%=.venv-frameworks/%/.ready)
	@for one in $(FRAMEWORKS); do \
	  .venv-frameworks/$$one/bin/pytest tests/adapters/frameworks/test_$$one.py || exit 1; done

.venv-frameworks/%/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-frameworks/$*
	.venv-frameworks/$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
	  -e '.[$(subst _,-,$*)]' pytest hypothesis
	@touch $@

# Small changes of the code, and how many of them the tests notice; CONTRIBUTING.md explains it.
MUTANTS := --workers 2

mutants: $(READY)
	$(BIN)/python -m benchmarks.mutants $(MUTANTS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Figures go to benchmarks/results; docs/performance.md explains them.
BENCHMARKS := hot_path sections growth memory replay commands stores start service mcp peers

bench: $(READY)
	@for one in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$one --quick || exit 1; done

bench-full: $(READY)
	@for one in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$one || exit 1; done
	$(BIN)/python -m benchmarks.instructions
	$(BIN)/python -m benchmarks.cel
	$(BIN)/python -m benchmarks.long_horizon
	$(BIN)/python -m benchmarks.search_boundary

# What a user gets, and with it what tests and linters need.
$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("policyguard needs Python 3.11 or newer; set PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $(INSTALLED)

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) benchmarks/results benchmarks/.peers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
