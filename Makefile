# Each target does its own set-up. Without make, `make test` is:
#   python3 -m venv .venv-dev && .venv-dev/bin/python -m pip install -q --require-hashes -r lockfiles/development.txt && .venv-dev/bin/uv pip install -q --python .venv-dev/bin/python --no-deps -e . && .venv-dev/bin/python -m pytest
PYTHON ?= python3
DEV := .venv-dev/bin/python
READY := .venv-dev/ready

.PHONY: test test-all lint types bench docs lockfiles bootstrap

$(READY): lockfiles/development.txt pyproject.toml
	$(PYTHON) -m venv .venv-dev
	$(DEV) -m pip install -q --require-hashes -r lockfiles/development.txt
	.venv-dev/bin/uv pip install -q --python $(DEV) --no-deps -e .
	@touch $@

test: $(READY)
	$(DEV) -m ruff check .
	$(DEV) -m ruff format --check .
	$(DEV) -m mypy
	$(DEV) -m pytest -n auto -m "not heavy"

test-all: $(READY)
	$(DEV) -m pytest -n auto

lint: $(READY)
	$(DEV) -m ruff check .
	$(DEV) -m ruff format --check .

types: $(READY)
	$(DEV) -m mypy

lockfiles: $(READY)
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.10 pyproject.toml -o lockfiles/tool.txt
	$(DEV) -m uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.10 pyproject.toml --group dev -o lockfiles/development.txt
