"""Parses the Python sources of wheels, of which several may be read side by side."""

from __future__ import annotations

import ast
import threading

_LOCK = threading.Lock()


def parse_source(source: str | bytes) -> ast.Module:
    """Return what a source says.

    Raises:
        SyntaxError: if it is no Python, or of a newer one.
    """
    # CPython 3.11 counts the depth of trees once for all threads: two at once fail with a SystemError.
    with _LOCK:
        return ast.parse(source)
