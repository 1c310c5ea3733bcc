# Everything that is run by hand or by CI. `make` alone lists the targets.

CARGO ?= cargo
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))

# command:package of everything that must be there besides cargo, as Debian names the packages.
NEEDED := cc:build-essential sqlite3:sqlite3 flock:util-linux git:git bash:bash dash:dash hostname:hostname etcd:etcd-server etcdctl:etcd-client openssl:openssl tmux:tmux
# Shells that the tests use if they can be had.
SHELLS := busybox zsh mksh fish

# How the release binary is built. A static one starts in two thirds of the time, because nothing is linked then. It
# needs a static C library, which some systems package separately: without it, the binary is dynamic.
HOST = $(shell $(CARGO) -vV | sed -n 's/^host: //p')
LINKS_STATIC = echo 'int main(void) { return 0; }' | cc -static -x c -o /dev/null - 2>/dev/null && echo yes
STATIC = $(if $(filter %-linux-gnu,$(HOST)),$(shell $(LINKS_STATIC)))
STATIC_FLAGS = --target $(HOST) --config 'target.$(HOST).rustflags="-Ctarget-feature=+crt-static -Crelocation-model=static"'
RELEASE_FLAGS = $(if $(STATIC),$(STATIC_FLAGS))
RELEASE_DIR = $(TARGET_DIR)/$(if $(STATIC),$(HOST)/)release
# SQLite counts no memory, which takes a lock for each allocation, and loads no extensions.
bench install: export LIBSQLITE3_FLAGS ?= -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_OMIT_LOAD_EXTENSION

.DEFAULT_GOAL := help
.PHONY: help demo test programs soak check count bench install share deny tools shells
# `make check test` must not run two cargos against one target folder.
.NOTPARALLEL:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: NEEDED := cc:build-essential
demo: tools ## Build the command, quickly and without etcd, and watch it share a project's tasks among runners
	$(CARGO) build --profile demo --locked -p tenure-cli --no-default-features
	TENURE="$(TARGET_DIR)/demo/tenure" bash demo/demo.sh

# Most tests wait for the processes that they start: one for each core would leave the cores idle.
test soak programs: export RUST_TEST_THREADS ?= $(shell expr 2 \* $$(nproc))
test: programs ## Install what the tests need when it is missing, and run all of them
	$(CARGO) test --workspace --locked --doc

# Not listed: all of them but the examples in the documentation.
programs: tools shells
	.ci/test

# How many times longer than in `make test` the random kills and races of a soak go on.
SCALE ?= 10

soak: tools ## Run all tests with many more rounds of kills and races (SCALE=10), for hours
	TENURE_BATTERY_SCALE=$(SCALE) .ci/test

check: ## Formatting, lints and documentation, all of them strict
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	for feature in "" config etcd file ledger sqlite; do \
	  $(CARGO) clippy -p tenure --no-default-features --features "$$feature" --locked -- -D warnings || exit 1; \
	done
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

count: ## Count the shipped lines of each crate: not blank, not comment, not test, without the test kit
	@.ci/count

bench: ## Run the benchmarks
	$(CARGO) bench -p tenure-cli --bench ratios --locked $(RELEASE_FLAGS)

# Where the manual pages and the completions go: beside PREFIX/bin, or where a user has their own.
SHARE = $(if $(PREFIX),$(PREFIX)/share,$(or $(XDG_DATA_HOME),$(HOME)/.local/share))
# The command that was just installed.
TENURE = $(if $(PREFIX),$(PREFIX),$(or $(CARGO_INSTALL_ROOT),$(CARGO_HOME),$(HOME)/.cargo))/bin/tenure

install: ## Install the command, its manual pages and completions (into PREFIX when it is set)
	$(CARGO) install --path crates/cli --locked $(RELEASE_FLAGS) $(if $(PREFIX),--root "$(PREFIX)")
	@$(MAKE) --no-print-directory share

# Not listed: the part of `install` that needs no compiler.
share:
	"$(TENURE)" man --dir "$(SHARE)/man/man1"
	mkdir -p "$(SHARE)/bash-completion/completions" "$(SHARE)/zsh/site-functions" "$(SHARE)/fish/vendor_completions.d"
	"$(TENURE)" completions bash > "$(SHARE)/bash-completion/completions/tenure"
	"$(TENURE)" completions zsh > "$(SHARE)/zsh/site-functions/_tenure"
	"$(TENURE)" completions fish > "$(SHARE)/fish/vendor_completions.d/tenure.fish"

deny: ## Check licences, advisories and sources of the dependencies
	@$(CARGO) deny --version >/dev/null 2>&1 || \
	  { echo "cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	$(CARGO) deny check

# Not listed: it is only ever needed by the targets above.
tools:
	@command -v $(CARGO) >/dev/null || \
	  { echo "cargo is missing: install Rust 1.89 or newer, for example with rustup" >&2; exit 1; }
	@missing=; \
	for need in $(NEEDED); do \
	  command -v "$${need%%:*}" >/dev/null || missing="$$missing $${need##*:}"; \
	done; \
	test -n "$$missing" || exit 0; \
	if test "$$(id -u)" = 0; then root=; \
	elif sudo -n true 2>/dev/null; then root="sudo -n"; \
	else root=none; fi; \
	if test "$$root" = none || ! command -v apt-get >/dev/null; then \
	  echo "missing:$$missing. Install them with your system's package manager." >&2; exit 1; \
	fi; \
	$$root apt-get update -qq && \
	$$root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing

# Not listed either: a shell that can't be installed is not tested.
shells: tools
	@-missing=; \
	for shell in $(SHELLS); do command -v "$$shell" >/dev/null || missing="$$missing $$shell"; done; \
	test -z "$$missing" || $(MAKE) --no-print-directory tools NEEDED="$$(for shell in $$missing; do printf '%s ' "$$shell:$$shell"; done)" || \
	  echo "not tested, because they can't be installed:$$missing" >&2
