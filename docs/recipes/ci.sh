#!/bin/sh
# Any other CI of a project that has committed its locks and bootstrap.py (see docs/teams.md); keep .cache between runs.
set -eu
export UV_CACHE_DIR="$PWD/.cache/uv" XDG_CACHE_HOME="$PWD/.cache/own"
python3 bootstrap.py sync
PATH="$HOME/.local/share/gpuinstall/bin:$PATH"
gpuinstall lock check
gpuinstall run python -m unittest
