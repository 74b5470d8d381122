# Needs: Rust, a C compiler, Python 3 with pip, make. `make help` lists the targets.

# Port of the public API, and the directory for all data: two checkouts, or two runs, go side by side with others.
PORT ?= 8080
DATA ?= .dev/data
# `make up TOOLS=fetch` ignores the Postgres and nats-server that the machine itself has.
TOOLS ?=

PYTHON ?= python3
FETCH = $(PYTHON) deploy/local/fetch.py $(if $(filter fetch,$(TOOLS)),--fetch)
# Where cargo puts binaries, also when a setting of the person's own says otherwise.
TARGET = $$(cargo metadata --no-deps --format-version 1 | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
BIN = $(TARGET)/debug

# Queries are checked against what is checked in (.sqlx), not against whatever DATABASE_URL means to this person.
export SQLX_OFFLINE ?= true

.DEFAULT_GOAL := help
.PHONY: up down test lint gen fmt bench image chart e2e clean help

up: ## Start everything on this machine; PORT=8080 DATA=.dev/data choose where
	@$(FETCH)
	@cargo build --package standalone --package cli --bins
	@exec "$(BIN)/svc-standalone" up --port "$(PORT)" --data "$(DATA)"

down: ## Stop what `make up` started elsewhere; DATA=… for one of several
	@if [ -e "$(DATA)/lock" ] || [ -e .dev/standalone.lock ]; then \
	  test -x "$(BIN)/svc-standalone" || cargo build --quiet --package standalone --bins; \
	  exec "$(BIN)/svc-standalone" down $(if $(filter-out .dev/data,$(DATA)),--data "$(DATA)"); \
	else echo "nothing runs here"; fi

test: ## Run every test that needs no cluster, beside servers of its own
	@$(FETCH) --tests
	@cargo build --workspace --bins
	@exec "$(BIN)/svc-standalone" with-servers -- cargo test --workspace

lint: ## Check form and style, and that generated files are up to date, as CI does
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	@before=$$(git diff 2>/dev/null; git status --porcelain 2>/dev/null); $(MAKE) --no-print-directory gen; \
	after=$$(git diff 2>/dev/null; git status --porcelain 2>/dev/null); \
	if [ "$$before" != "$$after" ]; then git status --short; echo "generated files were out of date: commit what \`make gen\` wrote"; exit 1; fi

gen: ## Bring generated files up to date: offline data of queries, configuration table, catalog, schemas, chart
	@$(FETCH) --tests
	@cargo build --quiet --package standalone --no-default-features --bins
	@cargo build --quiet --package database --example offline_data
	@"$(BIN)/svc-standalone" with-servers -- "$(BIN)/examples/offline_data"
	@cargo build --quiet --package standalone --package cli --bins
	@"$(BIN)/svc-standalone" configuration > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	@"$(BIN)/svc-standalone" openapi > catalog/openapi.json.new && mv catalog/openapi.json.new catalog/openapi.json
	@"$(BIN)/svc" catalog show --output json > catalog/svc.catalog.json.new && mv catalog/svc.catalog.json.new catalog/svc.catalog.json
	@$(PYTHON) helm/generate.py
	@cargo run --quiet --package udm --example schema > libs/udm/event.schema.json.new && mv libs/udm/event.schema.json.new libs/udm/event.schema.json

fmt: ## Bring the code into form
	cargo fmt --all

bench: ## Measure the running system beside the best that this machine can do (needs 11 GB of disk; 4 minutes)
	@$(FETCH)
	@cargo build --release --package standalone --package bench --bins
	@exec "$(TARGET)/release/bench"

image: ## Build the images; ARGS="svc-ingest --dev" for some of them
	@$(PYTHON) deploy/image.py $(ARGS)

chart: ## Test the chart, the images and the Tiltfile (`make test` does too)
	@$(FETCH) --tests
	@$(PYTHON) tests/chart/run.py

e2e: ## Install and upgrade on the cluster of KUBECONFIG; tests/cluster/e2e.py says what else to set
	@$(FETCH) --tests
	@$(PYTHON) tests/cluster/e2e.py

clean: ## Stop what runs, remove its data and all of .dev (cargo clean removes the build)
	@if [ -e .dev/data/lock ] || [ -e .dev/standalone.lock ]; then \
	  test -x "$(BIN)/svc-standalone" || cargo build --quiet --package standalone --bins; \
	  "$(BIN)/svc-standalone" down --remove; fi
	rm -rf .dev

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
