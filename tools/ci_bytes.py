"""Makes ``docs/evidence/ci.md``: what a runner without a GPU downloads for five projects, by plain uv and by us.

The default index is asked; torch's CPU build comes from the wheels in PIP_FIND_LINKS. Nothing is downloaded: the sizes
are those that the servers give. Takes minutes: ``python -m tools.ci_bytes``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import requests
import tomli
from packaging.pylock import PackageSdist, PackageWheel, Pylock

from gpuinstall import process, uv

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "ci.md"
PYTHON, TORCH = "3.11", "torch==2.13.0"
PROJECTS = ("botorch", "peft", "sentence-transformers", "stable-baselines3", "trl")
"""Projects whose dependencies bring torch, and neither torchvision nor torchaudio."""
INTRODUCTION = f"""# What a CI job downloads

On a runner without a GPU (Linux x86_64, Python {PYTHON}, empty caches), for a project that depends on the named one
and {TORCH}: by `uv sync`, which takes the default index's CUDA build, and by `gpuinstall install`. The sizes are those
that the servers give. Made by `python -m tools.ci_bytes`.

| project | `uv sync` | packages | `gpuinstall install` | packages | times less |
|---|---|---|---|---|---|
"""


class Download(NamedTuple):
    """What one way downloads."""

    bytes: int
    packages: int


def by_uv(folder: Path, project: str) -> Download:
    """Lock a project by plain uv; ask for the size of each file that it would install."""
    wanted = f'requires-python = "=={PYTHON}.*"\ndependencies = {json.dumps([project, TORCH])}'
    text = f'[project]\nname = "x"\nversion = "1"\n{wanted}\n'
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    export = ("export", "-q", "--format", "pylock.toml", "--no-emit-project", "-o", "pylock.toml")
    plain = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    for words in (("lock", "-q"), export):
        done = process.run([uv.uv(), *words], cwd=folder, env=plain, seconds=600)
        if not done.ok:
            raise RuntimeError(done.err)
    lock = Pylock.from_dict(tomli.loads((folder / "pylock.toml").read_text(encoding="utf-8")))
    urls = [file.url for _, file in lock.select() if isinstance(file, (PackageWheel, PackageSdist)) and file.url]
    return Download(sum(map(_size, urls)), len(urls))


def by_us(folder: Path, project: str) -> Download:
    """Rehearse our installation; torch's own wheel, which lies in a folder, counts as downloaded."""
    caches = {"XDG_CACHE_HOME": str(folder / "caches"), "UV_CACHE_DIR": str(folder / "caches" / "uv")}
    words = [sys.executable, "-m", "gpuinstall", "install", project, TORCH, "--python", PYTHON, "--dry-run", "--json"]
    done = process.run(words, cwd=folder, env={**os.environ, **caches}, seconds=600)
    data = json.loads(done.out)["data"]
    (torch,) = Path(os.environ["PIP_FIND_LINKS"]).glob(f"torch-*+cpu-cp{PYTHON.replace('.', '')}-*x86_64.whl")
    return Download(data["bytes"] + torch.stat().st_size, len(data["lock"]["changes"]))


def _size(url: str) -> int:
    """Ask a server for the size of a file."""
    answer = requests.head(url, allow_redirects=True, timeout=60, headers={"Accept-Encoding": "identity"})
    answer.raise_for_status()
    return int(answer.headers["Content-Length"])


def main() -> None:
    """Make the page."""
    rows = []
    for project in PROJECTS:
        with tempfile.TemporaryDirectory() as beside, tempfile.TemporaryDirectory() as own:
            plain, ours = by_uv(Path(beside), project), by_us(Path(own), project)
        times = f"{plain.bytes / ours.bytes:.0f}"
        rows.append(
            f"| {project} | {plain.bytes / 1e6:,.0f} MB | {plain.packages} | {ours.bytes / 1e6:,.0f} MB | "
            f"{ours.packages} | {times} |\n"
        )
        sys.stdout.write(rows[-1])
        sys.stdout.flush()
    PAGE.write_text(INTRODUCTION + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
