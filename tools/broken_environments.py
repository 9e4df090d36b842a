"""Makes ``docs/evidence/environments.md``: real environments, each broken in one way, examined and repaired.

Takes the environments to break, one of a CPU build and one of a CUDA build, and half an hour on a small machine:
``python -m tools.broken_environments CPU [CUDA]``. They are copied by hard links and stay as they are.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.broken import BROKEN, examined
from tests.lab.environments import packages

from gpuinstall.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.broken import Examined

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "environments.md"
HEAD = """\
# Broken environments

Environments with a real torch, each broken in one way: what `gpuinstall doctor` says first, what `gpuinstall verify`
says first, what `gpuinstall doctor --fix` does, and what the doctor says after that. On a machine without a GPU, so
that a build for CUDA is imported and stays `unproven`. `ENV` is the environment, `WHEELS` a folder of wheels. Made by
`python -m tools.broken_environments`; the lines are the program's own.
"""


def main(environments: list[str]) -> None:
    """Write the page, group by group as they are done."""
    PAGE.write_text(HEAD)
    for environment, cuda in zip(map(Path, environments), (False, True), strict=False):
        with PAGE.open("a") as page:
            page.write(f"\n## torch {_torch(environment)}\n")
        for row in _rows(environment, cuda=cuda):
            with PAGE.open("a") as page:
                page.write(_written(row))


def _rows(environment: Path, *, cuda: bool) -> Iterator[Examined]:
    for breakage in BROKEN:
        if breakage.cuda == cuda:
            with tempfile.TemporaryDirectory(dir=environment.parent) as folder:
                os.chdir(folder)
                sources = read_sources(os.environ.get("GPUINSTALL_TORCH_INDEX"), os.environ, Path(folder))
                yield examined(breakage, environment.absolute(), Path(folder), sources)
            os.chdir(PAGE.parent)


def _written(row: Examined) -> str:
    steps = "".join(f"- fix: `{step}`\n" for step in row.steps) or "- fix: none from here\n"
    said = f"- doctor: {_cell(row.doctor)}\n- verify: {_cell(row.verify)}\n{steps}- after: {_cell(row.after)}\n"
    return f"\n### {row.what}\n\n{said}"


def _cell(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _torch(environment: Path) -> str:
    site = packages(environment)
    (record,) = site.glob("torch-*.dist-info")
    cuda = re.search(r"^cuda\b.*= '([\d.]+)'", (site / "torch" / "version.py").read_text(), re.MULTILINE)
    return record.stem.partition("-")[2] + (f" for CUDA {cuda[1]}" if cuda else "")


if __name__ == "__main__":
    main(sys.argv[1:])
