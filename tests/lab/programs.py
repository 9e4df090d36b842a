"""Shell scripts that simulate programs."""

from pathlib import Path


def write_program(path: Path, text: str = ""):
    """Write a shell script and its folder, or replace a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
