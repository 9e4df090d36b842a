"""Scripts that play programs."""

from pathlib import Path


def write_program(path: Path, text: str = ""):
    """Write a script of ``sh``, with the folder that it lies in, or in the place of the program that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
