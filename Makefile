# Each target runs its own setup. CONTRIBUTING.md has the commands of `make test` for a machine without make.
PYTHON ?= python3
CARD_PYTHON ?= 3.12
DEV := .venv-dev/bin/python
READY := .venv-dev/ready
HEAVY := .venv-dev/heavy
NEWEST := .venv-newest/bin/python
SITE := .venv-site/ready
TESTS := $(DEV) -m pytest -q -n auto --dist worksteal
COMPILE := .venv-dev/bin/uv pip compile -q --upgrade --universal --generate-hashes --no-header --no-annotate
# The tests start hundreds of processes, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# A company's certificate may be only in the system's store, and pip may be configured to install for the user only.
export UV_SYSTEM_CERTS := true
export PIP_USER := 0

.PHONY: test test-only test-all test-newest test-windows torture lint types bench docs site lockfiles bootstrap packages release card card-wheels

# Debian's Python has no venv and no pip: bootstrap.py installs the uv that creates the environment.
DATA := $(or $(XDG_DATA_HOME),$(HOME)/.local/share)
UV = $$(ls -td "$(DATA)"/gpuinstall/[0-9]*-*/bin/uv | head -n 1)

$(READY): lockfiles/development.txt lockfiles/compiler.txt pyproject.toml
	XDG_DATA_HOME="$(DATA)" $(PYTHON) bootstrap.py --version
	"$(UV)" venv -q --allow-existing --no-project --python $(PYTHON) .venv-dev
	"$(UV)" pip install -q --python $(DEV) --compile-bytecode --require-hashes -r lockfiles/development.txt
	command -v cc > /dev/null || .venv-dev/bin/uv pip install -q --python $(DEV) --require-hashes -r lockfiles/compiler.txt
	.venv-dev/bin/uv pip install -q --python $(DEV) --no-deps -e .
	$(DEV) -m tests.lab.environments
	@# pytest compiles the tests once here, not once in each worker.
	$(DEV) -m pytest -qq --collect-only > /dev/null || true
	@touch $@

$(HEAVY): $(READY) lockfiles/heavy.txt
	.venv-dev/bin/uv pip install -q --python $(DEV) --require-hashes -r lockfiles/heavy.txt
	@touch $@

$(SITE): $(READY) lockfiles/site.txt
	.venv-dev/bin/uv venv -q --clear --python $(PYTHON) .venv-site
	.venv-dev/bin/uv pip install -q --python .venv-site/bin/python --require-hashes -r lockfiles/site.txt
	@touch $@

# mypy runs on one processor for half a minute, while the tests use the others.
test: $(READY)
	$(MAKE) -j 2 lint types test-only

test-only: $(READY)
	$(TESTS) -m "not heavy and not network"

test-all: lint types $(HEAVY)
	$(TESTS) -m "not windows"
	$(MAKE) test-newest

# CPython for Windows, uv.exe, and torch run on two machines of Wine, which are kept in the user's cache. WINDOWS selects tests.
WINDOWS ?= tests/windows
test-windows: $(READY)
	command -v x86_64-w64-mingw32-gcc > /dev/null || .venv-dev/bin/uv pip install -q --python $(DEV) --require-hashes -r lockfiles/compiler.txt
	$(DEV) -m pytest -q -n 2 --dist loadgroup $(WINDOWS)

# The quick tests with the newest versions that pyproject.toml allows. bootstrap.py installs the pinned ones.
test-newest: $(READY)
	.venv-dev/bin/uv venv -q --clear --no-project --python $(PYTHON) .venv-newest
	.venv-dev/bin/uv pip install -q --python $(NEWEST) --upgrade -e . --group dev
	command -v cc > /dev/null || .venv-dev/bin/uv pip install -q --python $(NEWEST) --group compiler
	$(NEWEST) -m tests.lab.environments
	$(subst $(DEV),$(NEWEST),$(TESTS)) -m "not heavy and not network" --ignore tests/integration/test_bootstrap.py

lint: $(READY)
	$(DEV) -m ruff check .
	$(DEV) -m ruff format --check .
	$(DEV) -m tools.language

types: $(READY)
	$(DEV) -m mypy

torture: $(READY)
	LAB_SECONDS=300 $(DEV) -m pytest -q -m "not network" tests/hostile

bench: $(READY)
	$(DEV) -m compileall -q src
	$(DEV) -m bench

docs: $(READY)
	$(DEV) -m tools.docs
	$(DEV) -m tools.picture

site: $(SITE)
	$(DEV) -m tools.site .venv-site/bin/sphinx-build

lockfiles: $(READY)
	$(COMPILE) --python-version 3.10 pyproject.toml -o lockfiles/tool.txt
	$(COMPILE) --python-version 3.10 pyproject.toml --group dev -o lockfiles/development.txt
	$(COMPILE) --python-version 3.10 --group heavy -c lockfiles/development.txt -o lockfiles/heavy.txt
	$(COMPILE) --python-version 3.10 --group compiler -o lockfiles/compiler.txt
	$(COMPILE) --python-version 3.10 --group site -o lockfiles/site.txt
	grep -o '^uv==[0-9.]*' lockfiles/tool.txt | $(COMPILE) --python-version 3.8 - -o lockfiles/uv.txt
	$(DEV) tools/uv_programs.py

bootstrap:
	$(PYTHON) -m tools.bundle

# Programs that the heavy tests start, on Debian and Ubuntu.
packages:
	sudo apt-get update -q
	sudo apt-get install -q -y chromium chromium-driver debootstrap slurm-wlm zsh

release: $(READY)
	$(DEV) -m tools.release $(VERSION)

# For a machine with a GPU. If .card/wheels exists (make card-wheels), the tool is installed from these wheels, without a
# network. Without make: python3 tools/card.py [PYTHON WITH TORCH].
card:
	$(PYTHON) tools/card.py $(TORCH_PYTHON)

card-wheels: $(READY)
	$(DEV) -m pip download -q --no-deps --require-hashes --only-binary :all: --python-version $(CARD_PYTHON) -d .card/wheels -r lockfiles/tool.txt
