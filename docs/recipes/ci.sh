#!/bin/sh
# Any other CI of a project that has committed its locks and bootstrap.py (see docs/teams.md); keep .cache between runs.
set -eu
export UV_CACHE_DIR="$PWD/.cache/uv" XDG_CACHE_HOME="$PWD/.cache/own" XDG_DATA_HOME="$PWD/.cache/data"
python3 bootstrap.py sync
PATH="$XDG_DATA_HOME/gpuinstall/bin:$PATH"
gpuinstall lock --check
gpuinstall run python -m unittest
