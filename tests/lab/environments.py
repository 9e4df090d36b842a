"""Environments by uv: one with the small torch of the stand-in wheels, one with a real torch for the CPU.

``python -m tests.lab.environments`` has uv fetch what the real torch needs, so that the tests need no network.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uv

from gpuinstall import process
from tests.lab.shared import once
from tests.lab.stub_torch import modules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = "2.13.0+cpu"
WHEEL = f"torch-{VERSION}-cp311-*linux*_x86_64.whl"


def small_torch(folder: Path, backend: str = "cu126", version: str = "2.14.1") -> Path:
    """Make an environment with this Python that holds the small torch; return the folder of its packages."""
    _uv("venv", "--no-project", "--python", sys.executable, str(folder))
    site = packages(folder)
    for path, text in modules(f"{version}+{backend}", backend).items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_text(text)
    return site


def small_package(
    site: Path, name: str, text: str = "", *, requires: str = "", files: tuple[str, ...] = ()
) -> None:
    """Put a package with this ``__init__.py`` into a folder of packages, and its record, which names ``files`` too."""
    module = name.replace("-", "_")
    (site / module).mkdir()
    (site / module / "__init__.py").write_text(text)
    record = site / f"{module}-1.0.dist-info"
    record.mkdir()
    demands = f"Requires-Dist: {requires}\n" if requires else ""
    (record / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{demands}"
    )
    (record / "RECORD").write_text(
        "".join(f"{file},,\n" for file in (f"{module}/__init__.py", *files))
    )


def put_package(
    site: Path,
    name: str,
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> None:
    """Put a package into a folder of packages as an installer does, with the size of each file in its record."""
    record = f"{name}-{version}.dist-info"
    demands = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demands}"
    rows = [f"{record}/RECORD,,\n"]
    for path, text in {**files, f"{record}/METADATA": metadata}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
        rows.append(f"{path},,{len(text)}\n")
    (site / record / "RECORD").write_text("".join(rows), encoding="utf-8")


def cpu_torch(factory: pytest.TempPathFactory, *, offline: bool = False) -> Path:
    """Give an environment that holds a real torch from pip's find-links; it is shared: copy it before changing it.

    ``offline`` takes what torch needs from uv's cache alone; the test is skipped where that does not have it.
    """
    find_links, python = os.environ.get("PIP_FIND_LINKS", ""), _python()
    if not any(Path(find_links).glob(WHEEL)):
        pytest.skip(f"no wheel of torch {VERSION} in PIP_FIND_LINKS ({find_links or 'not set'})")

    def make(folder: Path) -> None:
        _uv("venv", "--no-project", "--python", python, str(folder))
        where = ["--python", str(folder / "bin" / "python"), "--find-links", find_links]
        network = ["--offline"] if offline else []
        _uv("pip", "install", *network, *where, f"torch=={VERSION}")

    return once(factory, "cpu-torch", make)


def copied(environment: Path, folder: Path) -> Path:
    """Copy an environment by hard links: files may be removed and replaced in the copy, never written into.

    Its activate script leads to the copy, as if it had been made there.
    """
    shutil.copytree(environment, folder, symlinks=True, copy_function=os.link)
    activate = folder / "bin" / "activate"
    if activate.is_file():
        rewrite(activate, activate.read_text().replace(str(environment), str(folder)))
    return folder


def packages(environment: Path) -> Path:
    """The folder of its packages."""
    return next(environment.glob("lib/python*/site-packages"))


def rewrite(file: Path, text: str) -> None:
    """Replace a file of a copy, leaving the original alone."""
    file.unlink(missing_ok=True)
    file.write_text(text)


def fetch() -> None:
    """Fill uv's cache with what the real torch needs, where its wheel is here.

    Where that fails, the tests of it are skipped.
    """
    find_links = os.environ.get("PIP_FIND_LINKS", "")
    if any(Path(find_links).glob(WHEEL)):
        with tempfile.TemporaryDirectory() as folder:
            where = ["--target", folder, "--python-version", "3.11", "--find-links", find_links]
            process.run([uv.find_uv_bin(), "pip", "install", *where, f"torch=={VERSION}"])


def _python() -> str:
    found = shutil.which("python3.11") or next(
        map(str, Path.home().glob(".pyenv/versions/3.11.*/bin/python")), None
    )
    if found is None:
        pytest.skip("no Python 3.11, which the wheel is for")
    return found


def _uv(*words: str) -> None:
    done = process.run([uv.find_uv_bin(), *words, "-q"])
    if not done.ok and "--offline" in words:
        pytest.skip("what torch needs is not in uv's cache: make test-all fetches it")
    assert done.ok, done.err


if __name__ == "__main__":
    fetch()
