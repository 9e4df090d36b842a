"""The commands of docs/windows.md, which a batch file runs in cmd."""

import re

from tests.lab.clone import ROOT
from tests.windows.machine import PYTHON, WHEELS

STOP = "@if errorlevel 1 exit /b 1"


def run_section(machine, heading, folder, *, path="", **placeholders):
    """Run the lines of a section's ``bat`` blocks until one fails.

    Args:
        machine: The machine.
        heading: The heading of the section.
        folder: The folder in which the section's commands run.
        path: Folders to add to PATH.
        placeholders: Values for the words of the page that a user replaces.
    """
    page = (ROOT / "docs/windows.md").read_text("utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?ms)^ *```bat\n(.+?)^ *```", section)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    assert lines
    text = "".join(f"{line}\n{STOP}\n" for line in lines)
    text = re.sub(r"(?m)^py ", "python ", text)  # Wine has no py
    for word, value in placeholders.items():
        text = text.replace(word, value)
    file = machine.path(folder).parent / "page.bat"
    file.write_text(text, newline="\r\n")
    env = {"UV_FIND_LINKS": WHEELS, "WINEPATH": f"{path};{PYTHON}"}
    return machine.run("cmd", "/c", r"..\page.bat", cwd=folder, env=env)
