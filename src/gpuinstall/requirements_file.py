"""Requirements files as far as they say what is wanted: requirements, comments, and further files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.files import read_document

if TYPE_CHECKING:
    from pathlib import Path


def read_requirements(path: Path, inside: tuple[Path, ...] = ()) -> list[str]:
    """Read a requirements file: one requirement a line, comments, ``-r`` of another file; nothing else."""
    if path.resolve() in inside:
        raise UsageError("requirements-circular", f"{path} includes itself")
    try:
        lines = read_document(path).replace("\\\n", " ").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}") from None
    files = (*inside, path.resolve())
    words = (line.partition(" #")[0].strip() for line in lines)
    return [requirement for line in words for requirement in _requirement(line, path, files)]


def _requirement(line: str, path: Path, inside: tuple[Path, ...]) -> list[str]:
    if not line or line.startswith("#"):
        return []
    if further := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
        return read_requirements(path.parent / further[1], inside)
    if option := re.search(r"(?:^|\s)(--?[a-z][\w-]*)", line):
        hint = "where packages come from is said by --torch-index and by pip's and uv's own configuration"
        raise UsageError("requirements-option", f"{path}: the option {option[1]} is not read here", hint=hint)
    return [line]
