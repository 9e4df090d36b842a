"""Locks for the tests of this room, and the linter of what is made of them."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuinstall.base import process
from gpuinstall.lock.lock import Lock, parse, render
from gpuinstall.lock.target import Target

INDEX = "https://index.example"


def digest(name: str) -> str:
    return f"{sum(name.encode()):064x}"


def wheel(name: str, version: str, tags: str = "py3-none-any", **other: Any) -> dict[str, Any]:
    address = f"{INDEX}/{name}-{version.replace('+', '%2B')}-{tags}.whl"
    return {
        "name": name,
        "version": version,
        "wheels": [{"url": address, "hashes": {"sha256": digest(name)}}],
        **other,
    }


def source(name: str, version: str) -> dict[str, Any]:
    address = f"{INDEX}/{name}-{version}.tar.gz"
    return {
        "name": name,
        "version": version,
        "sdist": {"url": address, "hashes": {"sha256": digest(name)}},
    }


def lock(
    target: str,
    *packages: dict[str, Any],
    inputs: tuple[str, ...] = ("torch",),
    python: str = "3.12",
) -> Lock:
    document = {
        "lock-version": "1.0",
        "environments": [Target.parse(target).marker],
        "requires-python": f"=={python}.*",
        "created-by": "gpuinstall",
        "packages": list(packages),
        "tool": {"gpuinstall": {"inputs": list(inputs)}},
    }
    return parse(f"pylock.{target}.toml", render(document))


def cuda_lock(target: str = "cu126", *more: dict[str, Any], torch: str = "2.14.1") -> Lock:
    backend = Target.parse(target).backend
    packages = [
        wheel("numpy", "2.3.4"),
        wheel("torch", f"{torch}+{backend}", "cp312-cp312-manylinux_2_28_x86_64"),
    ]
    triton = [wheel("triton", "3.8.0")] if "-windows-" not in target else []
    return lock(target, *packages, *triton, *more)


def cpu_lock() -> Lock:
    return lock("cpu", wheel("torch", "2.14.1+cpu"))


def dockerfile_findings(texts: Mapping[str, str], folder: Path) -> str:
    """Return what the linter for Dockerfiles finds in texts; the test is skipped where it does not start."""
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not program.exists() or not process.run([program, "--version"]).ok:
        pytest.skip("hadolint does not start here")
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    done = process.run([program, "--no-color", *texts], cwd=folder)
    return done.out + done.err
