# Every path is relative, so that a checkout may lie in a folder with a space in its name.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin

# Python 3.10 has its own pins: Spark 4.3 and NumPy 2.4 begin with 3.11.
PINS := constraints/$(shell $(PYTHON) -c 'import sys; print("py310" if sys.version_info < (3, 11) else "py311")' 2>/dev/null).txt
# Two stamps, named after what they stand for: an older checkout date changes nothing, another Python, folder or branch
# does. After an edit of pyproject.toml the environment stays and pip only adds what is missing, which may be nothing.
MADE := .venv/made-$(shell { $(PYTHON) -c 'import sys; print(sys.version)'; pwd -P; } 2>/dev/null | cksum | cut -d ' ' -f 1)
INSTALLED := .venv/installed-$(shell cat pyproject.toml $(PINS) 2>/dev/null | cksum | cut -d ' ' -f 1)

BENCH := $(subst installed-,bench-,$(INSTALLED))

# A user's own settings for pip and Spark are not for this environment.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USER := 0
unexport PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX SPARK_HOME SPARK_CONF_DIR

PIP = $(BIN)/python -m pip install --quiet --constraint $(PINS)

.PHONY: help venv run test lint bench bench-small wheel clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-18s %s\n", $$1, $$2 }'

venv: $(INSTALLED) ## set up .venv with everything that the other targets need (once; the only step that downloads)
	@:

$(MADE):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.10 to 3.13" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "$$($(PYTHON) --version) is too old, Python 3.10 to 3.13 is needed; name another: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@said=$$($(PYTHON) -m venv --clear .venv 2>&1) || $(PYTHON) -m virtualenv --quiet --clear .venv 2>/dev/null || { \
	    rm -rf .venv; echo "$$said" >&2; \
	    echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@touch $@

$(INSTALLED): $(MADE)
	@echo "Installing Spark, a Java runtime and the tools into .venv, about 1.5 GB. The first time takes a few minutes ..." >&2
	@rm -f .venv/installed-*
	@# The build tools first: then nothing is built with tools that no file pins.
	@$(PIP) setuptools wheel
	@$(PIP) --no-build-isolation --editable '.[local,test,dev]'
	@touch $@

run: venv ## make a seeded impression log, evaluate it, print the table: the whole thing in two minutes
	@$(BIN)/rankmetrics demo --output out/demo

test: venv ## run the whole test suite
	@# Two processes: one has the Spark session that all its tests share, the other takes everything else.
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: venv ## check style, types, and who imports whom
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict rankmetrics_spark jobs
	$(BIN)/lint-imports

$(BENCH): $(INSTALLED)
	@echo "Installing DuckDB, Polars and what measures them into .venv, about 100 MB. This happens once ..." >&2
	@rm -f .venv/bench-*
	@$(PIP) --no-build-isolation --editable '.[bench]'
	@touch $@

bench: $(BENCH) ## measure the project beside its peers: 2 M and 10 M rows, skew, growth (hours; downloads two peers)
	@$(BIN)/python -m tests.benchmarks.run --rows 2000000
	@$(BIN)/python -m tests.benchmarks.run --rows 2000000 --layout scattered
	@$(BIN)/python -m tests.benchmarks.run --rows 10000000 --rounds 3
	@$(BIN)/python -m tests.benchmarks.memory
	@$(BIN)/python -m tests.benchmarks.growth

bench-small: $(BENCH) ## check values, Spark jobs and the plan on 200,000 rows, about two minutes
	@$(BIN)/python -m tests.benchmarks.run --small

wheel: venv ## build dist/*.whl, and dist/rankmetrics_spark.zip for spark-submit --py-files
	@rm -rf build dist
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@cp dist/*.whl dist/rankmetrics_spark.zip
	@ls dist/*

clean: ## remove everything that the other targets made, .venv too
	rm -rf .venv build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
