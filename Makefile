# One door. Every target sets up what it needs, and nothing twice.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo picture check format reference docs test test-full bench bench-full lock clean

help:
	@echo "make demo       a support agent is killed again and again, and refunds once"
	@echo "make check      format, lint, types, import contracts, unit tests (under a minute)"
	@echo "make test       every test, the long ones sampled (10 to 15 minutes on 2 cores)"
	@echo "make test-full  every test at full counts"
	@echo "make bench      how fast it is, on SQLite and PostgreSQL, beside its peers, in 15 minutes"
	@echo "                (one chapter: ONLY=sqlite, postgres, values or where)"
	@echo "make bench-full the same at full sizes, instructions and scale, in one to two hours"
	@echo "make format     put the code into form"
	@echo "make reference  write what of docs/reference follows from the code"
	@echo "make docs       build the site of the docs into build/site; a dead link fails it"
	@echo "make picture    record the demo for the README"
	@echo "make lock       renew requirements-dev.lock"
	@echo "make clean      remove what make made"

setup: $(STAMP)

$(STAMP): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Outlive needs Python 3.11 or later; '$(PYTHON)' is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) can't make virtual environments (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/pyright --version >/dev/null    # fetches what it needs, once
	@sh scripts/install_tools.sh
	@sh scripts/install_pgbouncer.sh $(VENV)
	@sh scripts/install_masumi.sh $(BIN)/python
	@sh scripts/install_sw4rm.sh $(BIN)/python
	@touch $@

demo: $(STAMP)
	$(BIN)/outlive demo

picture: $(STAMP)
	$(BIN)/python scripts/record_demo.py docs/demo.svg

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests/typing tests/harness tests/programs examples
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python scripts/run_tests.py --quick

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: $(STAMP)
	$(BIN)/python scripts/write_reference.py

docs: $(STAMP)
	BIN=$(BIN) sh scripts/build_site.sh
	@echo "open it with: $(BIN)/python -m http.server --directory build/site --bind 127.0.0.1 8000"

test: $(STAMP)
	$(BIN)/python scripts/run_tests.py

test-full: $(STAMP)
	OUTLIVE_TEST_FULL=1 $(BIN)/python scripts/run_tests.py

bench: $(STAMP)
	$(BIN)/python -m bench quick $(if $(ONLY),--only $(ONLY))

bench-full: $(STAMP)
	$(BIN)/python -m bench full $(if $(ONLY),--only $(ONLY))

lock:
	sh scripts/lock.sh $(PYTHON)

clean:
	rm -rf $(VENV) .bench build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
