"""Makes ``docs/evidence/refusals.md``: what is advised where a request cannot be met as it is written, before and now.

``python -m tools.refusals BEFORE``, where BEFORE is the folder ``src`` of the commit before ``--relax``.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "refusals.md"
SOURCE = Path(__file__).parent.parent / "src"
MACHINES = {
    "RTX 5090": "580.95.05",
    "H100": "580.95.05",
    "RTX 4090": "535.183.01",
    "T4": "550.163.01",
    "A100": "550.163.01",
}
"""The driver of each GPU."""
REQUESTS = (
    ("torch==2.0.1", "RTX 5090"),
    ("torch==2.0.1 torchvision==0.15.2", "RTX 5090"),
    ("torch==2.3.1 torchvision==0.18.1 torchaudio==2.3.1", "RTX 5090"),
    ("torch==1.13.1", "H100"),
    ("torch==1.13.1 torchvision==0.14.1", "H100"),
    ("torch==1.10.2", "RTX 4090"),
    ("torch==1.10.2", "T4"),
    ("torch>=2.15", "RTX 4090"),
    ("torch>=2.15", "T4"),
    ("torch>=2.15", "A100"),
    ("torch==2.15.0 torchvision==0.18.1", "T4"),
    ("torch>=2.15 torchvision==0.18.1", "A100"),
)
PREFACE = """\
# Requests that cannot be met as they are written

What `gpuinstall plan REQUEST --gpu GPU --driver DRIVER` advises: before `--relax` and `--cuda-compat`, and now. The words
that describe the machine are left out of the commands. The first command of each is then run as it stands; the last
column is what it chose. The tests do the same with `install`, on played machines and a stand-in index
(`tests/integration/test_unmet_requests_lab.py`); no GPU was used. Made by `python -m tools.refusals`.

| request | GPU, driver | before | now | the first command gives |
|---|---|---|---|---|
"""


class Answer(NamedTuple):
    """What a plan says."""

    status: int
    advice: tuple[str, ...]
    torch: str


def ask(words: list[str], source: Path) -> Answer:
    """Run a command of gpuinstall as it is in a folder of source."""
    command = [sys.executable, "-m", "gpuinstall", *words, "--json"]
    variables = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    build = document["data"]["build"] or {}
    torch = f"{build['torch']}+{build['backend']}" if build else ""
    hints = [error["hint"] or "" for error in document["errors"]]
    advice = "\n".join(hints).replace(" --json", "").splitlines()
    return Answer(done.returncode, tuple(advice), torch)


def row(request: str, gpu: str, before: Path) -> str:
    """Return the row of a request."""
    driver = MACHINES[gpu]
    machine = ["--gpu", gpu, "--driver", driver]
    words = ["plan", *request.split(), *machine]
    earlier = ask(words, before)
    now = ask(words, SOURCE)
    commands = [line for line in now.advice if line.startswith("gpuinstall ")]
    pasted = ask(shlex.split(commands[0], comments=True)[1:], SOURCE)
    cells = [
        f"`{request}`",
        f"{gpu}, {driver}",
        _shown(earlier.advice, machine),
        _shown(now.advice, machine),
        f"torch {pasted.torch}, exit {pasted.status}",
    ]
    return f"| {' | '.join(cells)} |"


def _shown(advice: tuple[str, ...], machine: list[str]) -> str:
    lines = []
    for line in advice:
        command, _, note = line.replace(f" {shlex.join(machine)}", "").partition("   # ")
        shown = f"`{command}`" if command.startswith("gpuinstall ") else command
        lines.append(f"{shown} ({note})" if note else shown)
    return "<br>".join(lines)


def main() -> None:
    """Write the page."""
    before = Path(sys.argv[1])
    rows = [row(request, gpu, before) for request, gpu in REQUESTS]
    PAGE.write_text(PREFACE + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
