# The two commands: `make demo` and `make test`. `make dist` and `make wheel` build what people
# install. The rest are test's steps.
CARGO ?= cargo
# The rivals' engines are compiled only by the benchmarks that compare with them.
PACKAGES := --workspace --exclude strandline-bench-rivals
# Crates with models for the shuttle scheduler (tests named `shuttle`).
MODELS := -p strandline-txn -p strandline-index -p strandline-tail -p strandline-engine

TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test format lint tidy docs unit models clients python dist wheel

demo:
	$(CARGO) run --release -p strandline-cli -- demo

test: format tidy docs lint unit clients python models

format:
	$(CARGO) fmt --all --check

tidy:
	$(CARGO) xtask tidy

# Links of the documentation; its examples are run by the tests of the shell.
docs:
	$(CARGO) xtask docs

lint:
	$(CARGO) clippy $(PACKAGES) --all-targets -- -D warnings

# Unit, integration and documentation tests.
unit:
	$(CARGO) test $(PACKAGES)

# psql, pg_dump, pgbench, psycopg, SQLAlchemy, Alembic, Django, TPC-C, JDBC and node-postgres against
# `strandline serve`; what is missing of them is installed by server/tests/clients/install.sh. `--tests`
# here and below: the dependencies get the features they have for the tests, and are not built again.
clients:
	$(CARGO) build $(PACKAGES) --bin strandline --tests
	python3 server/tests/clients/run.py "$(TARGET)/debug/strandline"

# The Python package over the debug build of its module. What tests it comes from PyPI, into a
# virtual environment outside the clone.
VENV ?= $(HOME)/.cache/strandline/venv
python: $(VENV)/installed
	$(CARGO) build $(PACKAGES) --lib --tests
	ln -sf "$(abspath $(TARGET))/debug/libstrandline_native.so" \
		python/strandline/_native.abi3.so
	PYTHONPATH="$(CURDIR)/python" $(VENV)/bin/python -m pytest -q python/tests

$(VENV)/installed: python/tests/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q -r $<
	touch $@

# Interleavings of the lock-free protocols, explored by a controlled scheduler. Another cfg means
# another build of the dependencies, hence a target directory of its own.
models: export RUSTFLAGS = --cfg shuttle
models: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/shuttle
models:
	$(CARGO) test $(MODELS) --test shuttle

# What people install comes into dist/, with checksums: an archive with the binary, the licence and a
# list of the libraries in it with theirs, and a wheel for every Python from 3.10 on.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
HOST := $(shell rustc -vV | sed -n 's/^host: //p')
ARCHIVE := strandline-$(VERSION)-$(HOST)

dist:
	$(CARGO) build --release -p strandline-cli
	rm -rf dist/$(ARCHIVE) && mkdir -p dist/$(ARCHIVE)
	cp $(TARGET)/release/strandline LICENSE README.md CHANGELOG.md dist/$(ARCHIVE)/
	$(CARGO) tree -p strandline-cli -e normal --prefix none --format "{p}: {l}" | \
		sed 's/ (\*)$$//; /(\//d' | sort -u > dist/$(ARCHIVE)/LIBRARIES
	tar -C dist --owner=0 --group=0 --sort=name -czf dist/$(ARCHIVE).tar.gz $(ARCHIVE)
	rm -r dist/$(ARCHIVE)
	cd dist && sha256sum *.tar.gz > $(ARCHIVE).sha256 && cat $(ARCHIVE).sha256

wheel: $(VENV)/maturin
	rm -f dist/strandline-*.whl
	$(VENV)/bin/maturin build --release -m python/Cargo.toml -o dist
	cd dist && sha256sum *.whl > wheel.sha256 && cat wheel.sha256

$(VENV)/maturin:
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q 'maturin>=1.9,<2'
	touch $@
