"""Language checks of ``make lint``, for the lines changed since ``SINCE``.

A line with ``prose: REASON`` in a comment exempts its docstring, comment block,
or paragraph. If the repository does not have the commit ``SINCE``, every line is
checked. In a shallow clone or an unpacked archive, none is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.prose import EXCEPTION, Passage, read_passages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SINCE = "a7be404dfb5c447164d732a1dfbdecfa90fdea9b"
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
HUNK = re.compile(r"(?m)^@@ -\S+ \+(\d+)(?:,(\d+))? @@")

Lines = range | set[int]


@dataclass(frozen=True, order=True)
class Finding:
    """A fault of the lines ``start`` to ``end``."""

    path: str
    start: int
    end: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.start}: {self.message}"


def main() -> int:
    """Print the findings on changed lines, and return 1 if there are any."""
    # A shallow clone lacks the commit, so all lines would look changed.
    if _git("rev-parse", "--is-shallow-repository").strip() != "false":
        sys.stdout.write("language checks skipped: this is not a full git clone\n")
        return 0
    changed = changed_lines(SINCE)
    files = [path for path in changed if is_checked(Path(path))]
    findings = {
        finding
        for finding in check_files(files)
        if any(line in changed[finding.path] for line in _range(finding))
    }
    for finding in sorted(findings):
        sys.stdout.write(f"{finding}\n")
    if findings:
        sys.stdout.write(
            f"{len(findings)} findings; `# prose: reason` marks an exception\n"
        )
    return int(bool(findings))


def _range(finding: Finding) -> range:
    return range(finding.start, finding.end + 1)


def changed_lines(commit: str) -> Mapping[str, Lines]:
    """Return the changed lines of each file that differs from a commit.

    Returns:
        Every line of every file if the repository does not have the commit.
    """
    if not _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"):
        return dict.fromkeys(_git("ls-files").splitlines(), range(1, sys.maxsize))
    changed: dict[str, Lines] = defaultdict(set)
    diff = _git("diff", "--unified=0", "--no-color", "--no-ext-diff", commit)
    for part in re.split(r"(?m)^diff --git ", diff)[1:]:
        named = re.search(r"(?m)^\+\+\+ (?:b/)?(.+?)\t?$", part)
        if named and named[1] != "/dev/null":
            changed[named[1]] = set(_hunk_lines(part))
    for path in _git("ls-files", "--others", "--exclude-standard").splitlines():
        changed[path] = range(1, sys.maxsize)
    return changed


def _hunk_lines(diff: str) -> Iterator[int]:
    for start, count in HUNK.findall(diff):
        yield from range(int(start), int(start) + int(count or 1))


def _git(*arguments: str) -> str:
    """Return the output of git, or an empty string if it fails."""
    git = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(git, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode(errors="replace")


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
        line = passage.start + passage.prose.count("\n", 0, match.start())
        # The line breaks of a message differ from the lines in the source.
        start, end = (
            (passage.start, passage.end)
            if passage.kind == "message"
            else (line, line + match[0].count("\n"))
        )
        phrase = " ".join(match[0].split())
        yield Finding(name, start, end, f"rewrite {phrase!r}")


def _wide_summary(name: str, passage: Passage) -> Iterator[Finding]:
    line = _lines(name)[passage.start - 1]
    width = len(line.partition('"""  #')[0].rstrip())
    if width > WIDTH:
        start = passage.start
        message = f"summary line has {width} columns; the limit is {WIDTH}"
        yield Finding(name, start, start, message)


def _ruff(files: Sequence[str]) -> Iterator[Finding]:
    if not files:
        return
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "D205,D400"]
    for each in json.loads(_run(*ruff, "--output-format", "json", *files)):
        name = Path(each["filename"]).relative_to(Path.cwd()).as_posix()
        start, end = each["location"]["row"], each["end_location"]["row"]
        if not _is_exempt(name, start, end):
            yield Finding(name, start, end, f"{each['code']} {each['message']}")


def _codespell(files: Sequence[str]) -> Iterator[Finding]:
    if not files:
        return
    codespell = [sys.executable, "-m", "codespell_lib", "--quiet-level=3"]
    codespell += ["--builtin", "en-GB_to_en-US"]
    for line in _run(*codespell, *files).splitlines():
        name, number, message = line.split(":", 2)
        start = int(number)
        if not _is_exempt(name, start, start):
            yield Finding(name, start, start, message.strip())


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
