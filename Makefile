# Needs: Rust, a C compiler, Python 3 with pip, make. `make help` lists the targets.

# Port of the public API, and the directory for all data: two checkouts, or two runs, go side by side with others.
PORT ?= 8080
DATA ?= .dev/data
# `make up TOOLS=fetch` ignores the Postgres and nats-server that the machine itself has.
TOOLS ?=

PYTHON ?= python3
FETCH = $(PYTHON) deploy/local/fetch.py $(if $(filter fetch,$(TOOLS)),--fetch)
# Where cargo puts binaries, also when a setting of the person's own says otherwise.
BIN = $$(cargo metadata --no-deps --format-version 1 | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/debug

# Queries are checked against what is checked in (.sqlx), not against whatever DATABASE_URL means to this person.
export SQLX_OFFLINE ?= true

.DEFAULT_GOAL := help
.PHONY: up down test lint fmt clean help

up: ## Start everything on this machine; PORT=8080 DATA=.dev/data choose where
	@$(FETCH)
	@cargo build --package standalone --package cli --bins
	@exec "$(BIN)/svc-standalone" up --port "$(PORT)" --data "$(DATA)"

down: ## Stop what `make up` started elsewhere; DATA=… for one of several
	@if [ -e "$(DATA)/lock" ] || [ -e .dev/standalone.lock ]; then \
	  cargo build --quiet --package standalone --bins && \
	  exec "$(BIN)/svc-standalone" down $(if $(filter-out .dev/data,$(DATA)),--data "$(DATA)"); \
	else echo "nothing runs here"; fi

test: ## Run every test that needs no cluster, beside servers of its own
	@$(FETCH) --tests
	@cargo build --workspace --bins
	@exec "$(BIN)/svc-standalone" with-servers -- cargo test --workspace

lint: ## Check form and style, as CI does
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings

fmt: ## Bring the code into form
	cargo fmt --all

clean: ## Stop what runs, remove its data and all of .dev (cargo clean removes the build)
	@if [ -e .dev/data/lock ] || [ -e .dev/standalone.lock ]; then \
	  cargo build --quiet --package standalone --bins && "$(BIN)/svc-standalone" down --remove; fi
	rm -rf .dev

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
