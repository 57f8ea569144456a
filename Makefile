# Everything happens in .venv, which is made when it is absent or when what it was made of has changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
CLIENTS := .venv-clients/.installed

.PHONY: install demo test clients check docs bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/rankhouse/io/_crc32.c src/rankhouse/index/lexical/_kernel.c src/rankhouse/nn/cpu/_infer.c src/rankhouse/nn/cpu/_train.c src/rankhouse/nn/cpu/_vector.h
	test "$$($(BIN)/python -V 2>&1)" = "$$($(PYTHON) -V)" || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all,dev,docs]"
	touch $@

demo: $(STAMP)
	$(BIN)/rankhouse demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

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

check: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_floors.py tests/test_house.py

# The site, as plain files under site/; a dead link or an undocumented name stops it (--quiet would not count warnings).
docs: $(STAMP)
	$(BIN)/python -m pytest tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/python benchmarks/first_stage.py

clean:
	rm -rf .venv .venv-clients tests/serve/npm/node_modules build demo site
