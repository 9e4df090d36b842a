"""Language checks of ``make lint``.

A line with ``prose: REASON`` in a comment exempts its docstring, comment block,
or paragraph. Outside a git repository, no file is checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.prose import EXCEPTION, Passage, read_passages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH = 79
"""Columns of a summary line, with its indentation and quotes."""
PHRASES = (
    "of others",
    "of ours",
    "but for",
    "anew",
    "whoever",
    "is told",
    "are told",
    "those of",
    "that of",
    "advices",
    "goes with",
    "comes to",
    "in place of",
    "as far as",
    "beside",
)
_WORDS = "|".join(phrase.replace(" ", r"[ ]*[ \n][ ]*") for phrase in PHRASES)
PHRASE = re.compile(rf"(?i)(?<![\w-])(?:{_WORDS})(?![\w-])")
PROSE = {".cfg", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}
"""Suffixes of the files that are checked."""
OTHERS = (
    "LICENSE",
    "lockfiles/",
    "src/gpuinstall/catalog/data/conda_mapping.txt",
    "tests/data/",
)
"""Files that other programs or people wrote."""


@dataclass(frozen=True, order=True)
class Finding:
    """A fault in a line of a file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def main() -> int:
    """Print the findings in the repository, and return 1 if there are any."""
    files = [path for path in list_files() if is_checked(Path(path))]
    findings = set(check_files(files))
    for finding in sorted(findings):
        sys.stdout.write(f"{finding}\n")
    if findings:
        sys.stdout.write(
            f"{len(findings)} findings; `# prose: reason` marks an exception\n"
        )
    return int(bool(findings))


def list_files() -> list[str]:
    """Return the tracked and new files, or none outside a git repository."""
    if not Path(".git").exists():
        return []
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return _run(*command).split("\0")


def is_checked(path: Path) -> bool:
    """Return whether people of this project wrote the file."""
    is_managed = not path.as_posix().startswith(OTHERS)
    return is_managed and path.suffix in PROSE and path.is_file()


def check_files(files: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings in all lines of the files."""
    passages = {name: _read(name) for name in files}
    for name, found in passages.items():
        for passage in found:
            yield from _phrases(name, passage)
            if passage.kind == "docstring":
                yield from _wide_summary(name, passage)
    yield from _ruff([name for name in files if name.endswith(".py")])
    yield from _codespell(files)


def _read(name: str) -> list[Passage]:
    is_source = name.startswith("src/") or name == "bootstrap.py"
    return read_passages(Path(name), messages=is_source)


def _phrases(name: str, passage: Passage) -> Iterator[Finding]:
    for match in PHRASE.finditer(passage.prose):
        # The line breaks of a message differ from the lines in the source.
        is_message = passage.kind == "message"
        above = 0 if is_message else passage.prose.count("\n", 0, match.start())
        phrase = " ".join(match[0].split())
        yield Finding(name, passage.start + above, f"rewrite {phrase!r}")


def _wide_summary(name: str, passage: Passage) -> Iterator[Finding]:
    line = _lines(name)[passage.start - 1]
    width = len(line.partition('"""  #')[0].rstrip())
    if width > WIDTH:
        message = f"summary line has {width} columns; the limit is {WIDTH}"
        yield Finding(name, passage.start, message)


def _ruff(files: Sequence[str]) -> Iterator[Finding]:
    if not files:
        return
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "D205,D400"]
    for each in json.loads(_run(*ruff, "--output-format", "json", *files)):
        name = Path(each["filename"]).relative_to(Path.cwd()).as_posix()
        start, end = each["location"]["row"], each["end_location"]["row"]
        if not _is_exempt(name, start, end):
            yield Finding(name, start, f"{each['code']} {each['message']}")


def _codespell(files: Sequence[str]) -> Iterator[Finding]:
    if not files:
        return
    codespell = [sys.executable, "-m", "codespell_lib", "--quiet-level=3"]
    codespell += ["--builtin", "en-GB_to_en-US"]
    for line in _run(*codespell, *files).splitlines():
        name, number, message = line.split(":", 2)
        start = int(number)
        if not _is_exempt(name, start, start):
            yield Finding(name, start, message.strip())


def _is_exempt(name: str, start: int, end: int) -> bool:
    return any(EXCEPTION.search(line) for line in _lines(name)[start - 1 : end])


def _lines(name: str) -> list[str]:
    return Path(name).read_text(encoding="utf-8").splitlines()


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", check=False
    )
    # ruff exits with 2 if it cannot run, codespell with the count of its findings.
    if not done.stdout and done.stderr:
        sys.exit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
