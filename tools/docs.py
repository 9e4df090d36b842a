"""Run again every command whose output README.md and docs/ show, and write the pages that are made from data.

A block that is made here is a ``console`` block below the line ``<!-- made by `make docs` -->``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = re.compile(r"(?P<head><!-- made by `make docs` -->\n```console\n\$ (?P<command>.+)\n)(?P<output>(?:.*\n)*?)```")


def main() -> None:
    """Write what has changed."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


def pages() -> list[Path]:
    """List the pages that may show a command's output."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(text: str) -> str:
    """Replace the output below each command by what the command says now."""
    return SHOWN.sub(lambda shown: f"{shown['head']}{output(shown['command'])}```", text)


def output(command: str) -> str:
    """Run a gpuinstall command as a person at a terminal of 100 columns without colour sees it."""
    program = Path(sys.executable).with_name("gpuinstall")
    words = [str(program), *shlex.split(command)[1:]]
    screen = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(words, env=screen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
