#!/bin/sh
# For any CI. The project has committed its lock files and bootstrap.py (see docs/teams.md). Keep .cache between runs.
set -eu
export UV_CACHE_DIR="$PWD/.cache/uv" XDG_CACHE_HOME="$PWD/.cache/own"
python3 bootstrap.py lock check
PATH="$HOME/.local/share/gpuinstall/bin:$PATH"
gpuinstall sync
gpuinstall run python -m unittest
