"""The text that ``gpuinstall explain`` reads: an argument, a file, a notebook, a pipe or a paste."""

from __future__ import annotations

import codecs
import json
import os
import re
import select
import sys
from bisect import bisect_right
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.failures.classify import APART
from gpuinstall.failures.excerpt import BLOCK, excerpt_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# One word that can only mean a file: a path, or a name that ends as logs do.
_PATH = re.compile(r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|ipynb|json|md)")
PASTE_SECONDS = 0.2
"""How long after an empty line the rest of a paste may take to come."""


class ExplainedText(NamedTuple):
    """A text, whether it is ``whole``, and where each cell of a notebook begins: its line and execution count."""

    text: str
    whole: bool = True
    cells: tuple[tuple[int, int], ...] = ()

    def position(self, line: int) -> dict[str, int | None]:
        """Say where a line is: by its number, in a notebook by its cell; None in a log that was shortened."""
        if not self.cells:
            return {"line": line if self.whole else None}
        start, cell = self.cells[bisect_right([start for start, _ in self.cells], line) - 1]
        return {"cell": cell, "line": line - start + 1}


def read_text(text: str | None) -> ExplainedText:
    """Read what to explain: a file where ``text`` names one, ``text`` itself, or stdin; raise UsageError."""
    if text is None or text == "-":
        return ExplainedText(_pasted()) if sys.stdin.isatty() else _read(sys.stdin.buffer)
    path = Path(text)
    with suppress(OSError, ValueError):
        if path.is_file():
            return _read_file(path)
    if _PATH.fullmatch(text):
        raise UsageError("file-missing", f"no such file: {path}", hint="gpuinstall explain FILE")
    return ExplainedText(text)


def _pasted() -> str:
    """Read a paste up to an empty line or the end of input; an empty line inside it is no end."""
    sys.stderr.write("Paste the error, then press Enter twice or Ctrl-D:\n")
    lines: list[str] = []
    for line in iter(sys.stdin.readline, ""):
        if line.strip():
            lines.append(line)
        elif lines and not _more_is_there():
            break
    if not lines:
        raise UsageError("usage", "there is nothing to explain", hint="gpuinstall explain FILE")
    return "".join(lines)


def _more_is_there() -> bool:
    return os.name != "nt" and bool(select.select([sys.stdin], [], [], PASTE_SECONDS)[0])


def _read_file(path: Path) -> ExplainedText:
    try:
        with path.open("rb") as file:
            return _notebook(json.load(file)) if path.suffix == ".ipynb" else _read(file)
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError("file-unreadable", f"{path} is not a Jupyter notebook") from None


def _notebook(document: Any) -> ExplainedText:
    """Write the cells that ran, each with its output, in the order in which they ran, as failures of their own."""
    ran = (cell for cell in document["cells"] if cell.get("execution_count"))
    parts, starts, line = [], [], 1
    for cell in sorted(ran, key=lambda cell: int(cell["execution_count"])):
        part = "\n".join(filter(None, (_joined(cell["source"]), *map(_output, cell["outputs"])))) + "\n" * (APART + 1)
        starts.append((line, int(cell["execution_count"])))
        parts.append(part)
        line += part.count("\n")
    return ExplainedText("".join(parts), cells=tuple(starts))


def _output(output: Any) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return "\n".join(output["traceback"]) if "traceback" in output else _joined(text)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _read(file: BinaryIO) -> ExplainedText:
    return ExplainedText(*excerpt_of(_decoded(iter(partial(file.read, BLOCK), b""))))


def _decoded(blocks: Iterator[bytes]) -> Iterator[str]:
    """Decode a log: UTF-8, or the UTF-16 that PowerShell writes; what cannot be read is replaced."""
    first = next(blocks, b"")
    marked = first.startswith((b"\xff\xfe", b"\xfe\xff"))
    decoder = codecs.getincrementaldecoder("utf-16" if marked else "utf-8-sig")("replace")
    yield from (decoder.decode(block) for block in chain((first,), blocks))
    yield decoder.decode(b"", final=True)
