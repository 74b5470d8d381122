# Needs: Rust, a C compiler, Python 3 with pip, make. `make help` lists the targets.

# Port of the public API and directory for all data. Change both to run a second instance.
PORT ?= 8080
DATA ?= .dev/data
# `make up TOOLS=fetch` ignores an installed Postgres and nats-server.
TOOLS ?=

PYTHON ?= python3
FETCH = $(PYTHON) deploy/local/fetch.py $(if $(filter fetch,$(TOOLS)),--fetch)
# The target directory of cargo, including settings of the user.
TARGET = $$(cargo metadata --no-deps --format-version 1 | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
BIN = $(TARGET)/debug

# All targets of the workspace share one build: with `--package`, cargo selects other features and compiles the dependencies again.
BUILD = cargo build --workspace

# Queries are checked against .sqlx, not against a DATABASE_URL of the user.
export SQLX_OFFLINE ?= true

.DEFAULT_GOAL := help
.PHONY: up down test pictures lint gen fmt advisories bench simulate mutants mutation campaign fuzz image release chart chart-checks e2e clean help

up: ## Start the system on this machine; options PORT=8080 DATA=.dev/data
	@$(FETCH)
	@$(BUILD) --bin svc-standalone --bin svc
	@exec "$(BIN)/svc-standalone" up --port "$(PORT)" --data "$(DATA)"

down: ## Stop an instance of another terminal; option DATA=…
	@if [ -e "$(DATA)/lock" ] || [ -e .dev/standalone.lock ]; then \
	  test -x "$(BIN)/svc-standalone" || $(BUILD) --quiet --bin svc-standalone; \
	  exec "$(BIN)/svc-standalone" down $(if $(filter-out .dev/data,$(DATA)),--data "$(DATA)"); \
	else echo "no instance is running"; fi

test: ## Run all tests that need no cluster, with their own Postgres and nats-server; ARGS="--test system -- failover" selects some
	@$(FETCH) --tests
	@$(BUILD) --bins
	@exec "$(BIN)/svc-standalone" with-servers -- $(PYTHON) tests/run.py $(ARGS)

pictures: ## Make pictures of every page and mail (light, dark, narrow, failures) in target/pages/index.html, and those of the README
	@rm -rf "$(TARGET)/pages"
	@$(MAKE) --no-print-directory test ARGS="--test pages -- appearance:: failures:: mails::"
	@$(PYTHON) tests/pages/gallery.py "$(TARGET)/pages"
	@$(PYTHON) tests/pages/terminal.py "$(BIN)" docs/pictures/terminal.svg

lint: ## Check wording, structure, formatting, lints and generated files, as CI does
	@$(PYTHON) tests/wording/check.py
	@$(PYTHON) tests/structure/circles.py
	@$(PYTHON) tests/structure/lines.py
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	@before=$$(git diff 2>/dev/null; git status --porcelain 2>/dev/null); $(MAKE) --no-print-directory gen; \
	after=$$(git diff 2>/dev/null; git status --porcelain 2>/dev/null); \
	if [ "$$before" != "$$after" ]; then git status --short; echo "generated files were out of date: commit the output of \`make gen\`"; exit 1; fi

gen: ## Update generated files: query data, configuration table, OpenAPI, catalog, schemas, chart, diagram of the crates, comparison with other programs
	@$(FETCH) --tests
	@$(BUILD) --quiet --example offline_data
	@"$(BIN)/examples/offline_data"
	@$(BUILD) --quiet --bin svc-standalone --bin svc --bin svc-operator --example schema
	@"$(BIN)/svc-standalone" configuration > docs/configuration.md.new && mv docs/configuration.md.new docs/configuration.md
	@"$(BIN)/svc-standalone" openapi > catalog/openapi.json.new && mv catalog/openapi.json.new catalog/openapi.json
	@for table in routes variables; do "$(BIN)/svc-standalone" $$table > helm/svc/files/$$table.json.new && mv helm/svc/files/$$table.json.new helm/svc/files/$$table.json; done
	@"$(BIN)/svc-operator" crds > helm/svc/files/crds.json.new && mv helm/svc/files/crds.json.new helm/svc/files/crds.json
	@"$(BIN)/svc" catalog show --output json > catalog/svc.catalog.json.new && mv catalog/svc.catalog.json.new catalog/svc.catalog.json
	@$(PYTHON) helm/generate.py
	@$(PYTHON) tests/structure/diagram.py
	@$(PYTHON) tests/bench/peers.py
	@"$(BIN)/examples/schema" > libs/udm/event.schema.json.new && mv libs/udm/event.schema.json.new libs/udm/event.schema.json

fmt: ## Format the code
	cargo fmt --all

CARGO_DENY = .dev/tools/cargo-deny-0.20.2
advisories: $(CARGO_DENY) ## Check the dependencies for known vulnerabilities; needs internet access
	$(CARGO_DENY)/bin/cargo-deny check advisories

$(CARGO_DENY):
	cargo install --quiet --locked --root $@ cargo-deny@$(@:.dev/tools/cargo-deny-%=%)

bench: ## Compare the running system with the limits of this machine (25 GB of disk, 25 minutes); ARGS="--only logins", ARGS=--help
	@$(FETCH)
	@cargo build --release --package standalone --package cli --package bench --bins
	@exec "$(TARGET)/release/svc-standalone" with-servers -- "$(TARGET)/release/bench" $(ARGS)

# Inputs that libFuzzer finds, and inputs that fail, are in target/fuzz.
FUZZ = .dev/tools/cargo-fuzz-0.13.2
TARGETS ?= $(notdir $(basename $(wildcard tests/fuzz/targets/*.rs)))
SECONDS ?= 60
fuzz: $(FUZZ) ## Fuzz the parsers, each for SECONDS=60; TARGETS="event batch" selects some; needs a C++ compiler
	@for target in $(TARGETS); do \
	  mkdir -p target/fuzz/$$target && echo "--- $$target" && \
	  SQLX_OFFLINE=true CARGO_TARGET_DIR=$(CURDIR)/target/fuzz $(FUZZ)/bin/cargo-fuzz fuzz run --fuzz-dir tests/fuzz --sanitizer none $$target \
	    target/fuzz/$$target tests/fuzz/corpus/$$target -- -max_total_time=$(SECONDS) -print_final_stats=1 -artifact_prefix=target/fuzz/$$target- \
	    || exit 1; \
	done

$(FUZZ):
	cargo install --quiet --locked --root $@ cargo-fuzz@$(@:.dev/tools/cargo-fuzz-%=%)

# A failing schedule is shortened and printed; the file that it is saved to repeats it.
SCHEDULES ?= 1000000
simulate: ## Run SCHEDULES=1000000 random schedules of each simulation: publisher, outbox relay, credential cache, account status
	SVC_TEST_SCHEDULES=$(SCHEDULES) SQLX_OFFLINE=true cargo test --profile simulation \
	  --package bus --package database --package authn --package session --lib -- simulation --skip postgres

mutants: ## Check that the simulations find bugs; ARGS="--only relay" selects some
	@$(PYTHON) tests/simulation/mutants.py $(ARGS)

CARGO_MUTANTS = .dev/tools/cargo-mutants-27.1.0
mutation: $(CARGO_MUTANTS) ## Check that tests find wrong code in authn, hashing, ratelimit, udm and the domains (5 hours); ARGS="--only udm", ARGS=--help
	@$(FETCH) --tests
	@$(BUILD) --bins
	@exec "$(BIN)/svc-standalone" with-servers -- $(PYTHON) tests/mutation/run.py --cargo-mutants "$(CURDIR)/$(CARGO_MUTANTS)/bin/cargo-mutants" $(ARGS)

$(CARGO_MUTANTS):
	cargo install --quiet --locked --root $@ cargo-mutants@$(@:.dev/tools/cargo-mutants-%=%)

campaign: ## Test the system with random faults under load for ten minutes; ARGS="--minutes 60 --seed 7", ARGS=--help
	@$(FETCH) --tests
	@cargo build --release --package standalone --package identity --package session --package ingest --package campaign --bins
	@exec "$(TARGET)/release/svc-standalone" with-servers -- "$(TARGET)/release/campaign" $(ARGS)

image: ## Build the images; option ARGS="svc-ingest --dev"
	@$(PYTHON) deploy/image.py $(ARGS)

release: ## Write images, chart, client, SBOM and checksums to target/dist; docs/release.md
	@$(PYTHON) deploy/release.py $(ARGS)

chart: ## Test the chart, the images and the Tiltfile (`make test` does too)
	@$(FETCH) --tests
	@$(PYTHON) tests/chart/run.py

# Tools of `make chart-checks`, and copies of software that no package index has: the chart of NATS, and directories with the definitions of
# custom resources. .github/workflows/ci.yml has their versions. Tests without a copy are skipped.
CHECKOV = .dev/tools/checkov-3.3.30
HELM_4 = .dev/tools/helm-4.3.1
NATS_CHART ?=
CRDS ?=
chart-checks: export NATS_CHART := $(NATS_CHART)
chart-checks: export CRDS := $(CRDS)
chart-checks: $(CHECKOV) $(HELM_4) ## Check the chart with checkov and Helm 4, and the examples; needs Go; CONTRIBUTING.md has the options
	@$(FETCH) --tests
	@CHECKOV=$(CHECKOV) $(PYTHON) tests/chart/run.py check_checkov
	@HELM=$(HELM_4)/helm $(PYTHON) tests/chart/run.py

$(CHECKOV):
	$(PYTHON) -m pip install --quiet --target $@ checkov==$(@:.dev/tools/checkov-%=%)

$(HELM_4):
	GOBIN=$(CURDIR)/$@ go install helm.sh/helm/v4/cmd/helm@v$(@:.dev/tools/helm-%=%)

e2e: ## Test installation and upgrade on the cluster of KUBECONFIG; ARGS="--only drain" selects steps, ARGS=--help lists settings
	@$(FETCH) --tests
	@$(PYTHON) tests/cluster/e2e.py $(ARGS)

clean: ## Stop the instance, delete its data and .dev (`cargo clean` deletes the build)
	@if [ -e .dev/data/lock ] || [ -e .dev/standalone.lock ]; then \
	  test -x "$(BIN)/svc-standalone" || $(BUILD) --quiet --bin svc-standalone; \
	  "$(BIN)/svc-standalone" down --remove; fi
	rm -rf .dev

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
