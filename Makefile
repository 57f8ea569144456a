# Everything happens in .venv, which is made when it is absent or when what it was made of has changed. Another
# Python beside it:  make test VENV=.venv-newest PYTHON=python3.13
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for other programs part of their time: one worker more than there are cores.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(MORE)
MARKED := slow or outside or kill
# What the source looks like is asked by `make check` alone.
CHECKS := tests/test_floors.py tests/test_house.py tests/test_cycles.py
CLIENTS := .venv-clients/.installed
HOSTS := .venv-hosts/.installed

# Hundreds of tests start a command: each would compile the source again where an environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-slow test-all test-newest clients hosts test-hosts check docs docs-version bench wheels release test-aarch64 clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/rankhouse/core/_processor.h src/rankhouse/io/_crc32.c src/rankhouse/text/_porter.c src/rankhouse/index/lexical/_kernel.c src/rankhouse/index/lexical/_rank.h src/rankhouse/index/lexical/_postings.h src/rankhouse/text/_words.h src/rankhouse/nn/cpu/_infer.c src/rankhouse/nn/cpu/_train.c src/rankhouse/nn/cpu/_train_loops.h src/rankhouse/nn/cpu/_vector.h src/rankhouse/nn/cpu/_wide.c src/rankhouse/nn/cpu/_wide_loops.h
	test "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V)" || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev,docs]"
	touch $@

demo: $(STAMP)
	$(BIN)/rankhouse demo --out demo

# The quick tier; tests/TIERS.md.
test: $(STAMP)
	$(PYTEST) -m "not ($(MARKED))" $(CHECKS:%=--ignore=%)

# What is marked slow, outside or kill, and nothing else.
test-slow: $(STAMP)
	$(PYTEST) -m "$(MARKED)"

test-all: $(STAMP)
	$(PYTEST)

# All tests on another Python, in a virtual environment of its own:  make test-newest PYTHON=python3.13
test-newest:
	$(MAKE) test-all VENV=.venv-newest PYTHON=$(PYTHON)

# Other people's clients from PyPI and npm, which tests/serve runs against the service where they are installed.
clients: $(CLIENTS)

$(CLIENTS): $(wildcard tests/serve/clients/*.txt) tests/serve/npm/package.json tests/serve/npm/package-lock.json
	for set in sdks frameworks; do \
	  $(PYTHON) -m venv --clear .venv-clients/$$set && \
	  .venv-clients/$$set/bin/python -m pip install --quiet --disable-pip-version-check -r tests/serve/clients/$$set.txt \
	  || exit 1; \
	done
	npm ci --prefix tests/serve/npm --ignore-scripts --no-audit --no-fund
	touch $@

# The frameworks that rankhouse.hosts adapts to, in an environment of their own: 2.5 GB.
hosts: $(HOSTS)

$(HOSTS): pyproject.toml constraints.txt $(wildcard tests/hosts/requirements/*.txt)
	$(PYTHON) -m venv --clear .venv-hosts
	.venv-hosts/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -r tests/hosts/requirements/hosts.txt pytest hypothesis -e ".[neural,dense,demo]"
	touch $@

# What the other environment skips: the adapters beside their hosts, and the pages that import them.
test-hosts: $(HOSTS)
	.venv-hosts/bin/python -m pytest -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function \
	  tests/hosts tests/test_docs.py -m outside -k "not extension and (hosts or from-)" $(REPORT)

check: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks .ci
	$(BIN)/ruff check src tests benchmarks .ci
	$(BIN)/mypy
	$(BIN)/python .ci/api.py
	$(BIN)/python -m pytest $(CHECKS)

# The site, as plain files under site/; a dead link stops it (--quiet would not count warnings).
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# This version of the site beside the earlier ones, on the branch gh-pages:  make docs-version VERSION=0.1.0
docs-version: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mike
	NO_MKDOCS_2_WARNING=1 SITE_VERSIONS=mike PATH="$(CURDIR)/$(BIN):$$PATH" \
	  $(BIN)/mike deploy --update-aliases "$(VERSION)" latest

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/first_stage.py

# What a release uploads, in dist/: the source, a wheel for each platform, compiled by Zig, and one without compiled loops.
wheels: release
	.venv-release/bin/python .ci/wheels.py dist

release:
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ".[release]"

# The wheel for Linux on ARM installed in an emulated Python: its doctor, its bits beside this processor's, and
# the tests of index, text and networks:  make test-aarch64 [TESTS="tests/index"]. Debian 12 with qemu-user.
test-aarch64: $(STAMP) release
	.venv-release/bin/python .ci/aarch64.py .venv-aarch64 $(TESTS) --beside $(BIN)/python

clean:
	rm -rf .pytest_cache .venv .venv-newest .venv-clients .venv-hosts .venv-release .venv-aarch64 dist tests/serve/npm/node_modules build demo site
