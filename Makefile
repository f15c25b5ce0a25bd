# Every target sets up what it needs (scripts/setup); `make test` is what decides whether a change is good.

BIN := .venv/bin

.PHONY: test oldest demo word-count lint format guards lock setup clean

test: lint
	$(BIN)/pytest
	scripts/oldest-spark -q

# Live runs on the oldest PySpark that is promised to work. The first time it is fetched, some 450 MB.
oldest: setup
	scripts/oldest-spark

# Searches in, spikes and dips out, on Spark. ARGS="--seed 3 --keep zeitgeist" takes others, and keeps the tables.
demo: setup
	@$(BIN)/tidemill demo $(ARGS)

# Counts words in one process, then on a simulated cluster that fails. SEED=3 takes another run.
word-count: setup
	@$(BIN)/python examples/word_count.py $(SEED)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Takes the guards of the protocols out, one by one, and watches a test fail for each.
guards: setup
	$(BIN)/python -m tests.guards

# Writes requirements-dev.lock anew: one set for every Python that pyproject.toml allows. ARGS=--upgrade takes newer versions.
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra spark --group dev \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(ARGS) \
		--output-file requirements-dev.lock pyproject.toml

setup:
	@scripts/setup

clean:
	rm -rf .venv .oldest-spark build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
