# `make up` and `make test` are all a person types; each prepares .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: up test check tests soak bench setup clean

up: .venv/ready
	$(BIN)/nearcast up

test: .venv/ready
	$(MAKE) --no-print-directory --jobs 2 check tests

tests: .venv/ready
	$(BIN)/pytest --numprocesses 4  # twice the cores: many tests wait for something

check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

soak: .venv/ready
	NEARCAST_EFFORT=10 $(BIN)/pytest -m 'soak or hypothesis' -s

bench: .venv/ready
	$(BIN)/python benchmarks/page.py  # writes docs/benchmarks.md

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Nearcast needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	$(BIN)/python -m nearcast.cli.compile_kernels
	$(BIN)/python -m nearcast.cli.archive_classes
	touch .venv/ready

clean:
	rm -rf .venv build dist world .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
